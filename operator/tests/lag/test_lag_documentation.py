"""docs/lag.md says what the code does: every metric with its labels, every option with its default, every status."""

import re
from itertools import pairwise
from pathlib import Path

from barnabas_lag.app.options import parse
from barnabas_lag.evaluation.progress import Status
from barnabas_lag.exposition.catalogue import CATALOGUE
from barnabas_lag.exposition.own_metrics import PREFIX, OwnMetrics

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "lag.md").read_text(encoding="utf-8")


def table(title: str) -> list[list[str]]:
    """The cells of the rows of the table under a heading."""
    part = GUIDE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_metric_of_groups_and_partitions_stands_in_the_guide_with_its_labels() -> None:
    told = {words(name)[0]: tuple(words(labels)) for name, labels, _ in table("What it tells")}
    assert told == {each.name: each.labels for each in CATALOGUE}


def test_every_metric_of_its_own_stands_in_the_guide() -> None:
    told = {name for names, _ in table("Of its own work") for name in words(names)}
    families = [each for each in OwnMetrics(lambda: 0.0, 15.0).registry.collect() if each.name.startswith(PREFIX)]
    assert told == {each.name + ("_total" if each.type == "counter" else "") for each in families}


def test_every_status_stands_in_the_guide_with_its_number() -> None:
    told = [(int(number), name) for number, name, _ in table("Status")]
    assert told == [(each.value, each.name) for each in Status]
    assert all(before < after for before, after in pairwise(told))


def test_every_limit_stands_in_the_guide_with_its_default() -> None:
    told = {words(option)[0]: int(default) for option, default, _ in table("Limits")}
    limits = parse(["--bootstrap", "localhost:9092"]).limits
    assert told == {f"--max-{name.replace('_', '-')}": default for name, default in limits._asdict().items()}

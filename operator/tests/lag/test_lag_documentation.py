"""docs/how-to/lag.md agrees with the code: it links to all metrics, and lists every limit and every status."""

import re
from itertools import pairwise
from pathlib import Path

from barnabas_lag.app.options import parse
from barnabas_lag.evaluation.lags import Status
from barnabas_lag.exposition import CATALOGUE, PREFIX, OwnMetrics

DOCS = Path(__file__).resolve().parents[3] / "docs"
GUIDE, METRICS = ((DOCS / name).read_text(encoding="utf-8") for name in ("how-to/lag.md", "reference/metrics.md"))


def table(title: str) -> list[list[str]]:
    """The cells of the rows of the table under a heading."""
    part = GUIDE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_guide_links_to_a_list_of_all_metrics() -> None:
    assert GUIDE.count("](../reference/metrics.md#lag-exporter)") == 2
    part = METRICS.split("\n# Lag exporter\n", 1)[1].split("\n# ", 1)[0]
    families = [each for each in OwnMetrics(lambda: 0.0, 15.0).registry.collect() if each.name.startswith(PREFIX)]
    own = {each.name + ("_total" if each.type == "counter" else "") for each in families}
    listed = {row.split("`")[1] for row in part.splitlines() if row.startswith("| `")}
    assert {each.name for each in CATALOGUE} | own <= listed


def test_the_guide_lists_every_status_with_its_number() -> None:
    told = [(int(number), name) for number, name, _ in table("Status")]
    assert told == [(each.value, each.name) for each in Status]
    assert all(before < after for before, after in pairwise(told))


def test_the_guide_lists_every_limit_with_its_default() -> None:
    told = {words(option)[0]: int(default) for option, default, _ in table("Limits")}
    limits = parse(["--bootstrap", "localhost:9092"]).limits
    assert told == {f"--max-{name.replace('_', '-')}": default for name, default in limits._asdict().items()}

"""docs/reference/metrics.md has exactly the metrics that processes report."""

import re
from typing import Final

from ruamel.yaml import YAML

from barnabas_operator.observed.operator_metrics import STRIMZI
from monitoring.metrics_page import page_text
from monitoring.origins import ORIGINS
from monitoring.panels_of import DASHBOARDS, metrics_of, read
from monitoring.promtool import GUIDE, RULES

PAGE: Final = (GUIDE.parents[1] / "reference" / "metrics.md").read_text(encoding="utf-8")
LISTED: Final = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))


def test_the_metrics_page_is_the_generated_one() -> None:
    assert page_text() == PAGE, "run `make metrics`"


def test_every_metric_with_an_origin_is_on_the_page() -> None:
    assert (set(ORIGINS) | set(STRIMZI)) - LISTED == set()


def test_metrics_in_dashboards_and_alerts_are_on_the_page() -> None:
    asked = set().union(*(metrics_of(expr) for expr in _exprs()))
    assert len(asked) > 50
    assert {re.sub("_(bucket|sum|count)$", "", each) for each in asked - LISTED} - {"up"} <= LISTED


def _exprs() -> list[str]:
    rules = YAML(typ="safe").load(RULES)
    of_panels = [
        target["expr"] for file in DASHBOARDS for panel in read(file)["panels"] for target in panel.get("targets", ())
    ]
    return of_panels + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]

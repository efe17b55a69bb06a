"""docs/reference/metrics.md has every metric that a process tells, and no other."""

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


def test_the_page_is_the_one_that_brokers_exporter_and_operator_make() -> None:
    assert page_text() == PAGE, "`make metrics` writes it"


def test_no_origin_is_that_of_a_metric_that_nobody_tells() -> None:
    assert (set(ORIGINS) | set(STRIMZI)) - LISTED == set()


def test_what_dashboards_and_alerts_ask_for_is_on_the_page() -> None:
    asked = set().union(*(metrics_of(expr) for expr in _exprs()))
    assert len(asked) > 50
    assert {re.sub("_(bucket|sum|count)$", "", each) for each in asked - LISTED} - {"up"} <= LISTED


def _exprs() -> list[str]:
    rules = YAML(typ="safe").load(RULES)
    of_panels = [
        target["expr"] for file in DASHBOARDS for panel in read(file)["panels"] for target in panel.get("targets", ())
    ]
    return of_panels + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]

"""What queries of the dashboards answer, as promtool computes it, where that is not plain to see."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from monitoring.panels_of import DASHBOARDS, asked, read, variables
from monitoring.promtool import promtool
from monitoring.rule_cases import BILLING

GROUPS: Final = "Groups"
STATUS: Final = "kafka_consumergroup_status"
VELOCITY: Final = "kafka_consumergroup_lag_velocity"


def query_of(metric: str) -> str:
    """The one about this metric, in the table of groups."""
    (dashboard,) = (read(file) for file in DASHBOARDS if file.stem == "consumer-lag")
    chosen = {each.name: each.everything for each in variables(dashboard)}
    (found,) = (each.expr for each in asked(dashboard, chosen) if each.panel == GROUPS and metric in each.expr)
    return found


@pytest.mark.parametrize(
    ("metric", "series", "expected"),
    [
        (STATUS, {'topic="a"': 6, 'topic="b"': 5}, 5),
        (STATUS, {'topic="a"': 6, 'topic="b"': 2}, 6),
        (STATUS, {'topic="a"': 1, 'topic="b"': 2}, 2),
        (VELOCITY, {'topic="a",instance="x"': 3, 'topic="a",instance="y"': 3, 'topic="b",instance="x"': 1}, 4),
    ],
    ids=["a topic that went back hides none that stalls", "one went back", "none is stuck", "two lag exporters"],
)
def test_a_group_is_as_its_worst_topic_and_two_exporters_count_once(
    metric: str, series: Mapping[str, int], expected: int, tmp_path: Path
) -> None:
    inputs = [{"series": f"{metric}{{{BILLING},{labels}}}", "values": f"{value}"} for labels, value in series.items()]
    samples = [{"labels": f"{{{BILLING}}}", "value": expected}]
    query = {"expr": query_of(metric), "eval_time": "0m", "exp_samples": samples}
    file = tmp_path / "query_test.yaml"
    file.write_text(json.dumps({"tests": [{"input_series": inputs, "promql_expr_test": [query]}]}), encoding="utf-8")
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr

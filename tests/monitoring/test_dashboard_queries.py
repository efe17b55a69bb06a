"""Results of the dashboards' less obvious queries, as promtool computes them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from monitoring.panels_of import DASHBOARDS, asked, read, variables
from monitoring.promtool import promtool
from monitoring.rule_cases import BILLING, BILLS, NIGHTLY_RUN

GROUPS: Final = "Groups"
NAMED: Final = 'resource_namespace="kafka",cluster="main",name="bills",consumergroup="billing"'
STATUS: Final = "kafka_consumergroup_status"
VELOCITY: Final = "kafka_consumergroup_lag_velocity"


def query_of(metric: str, name: str = "consumer-lag", panel: str = GROUPS) -> str:
    """Return the query with this metric in that panel of that dashboard."""
    (dashboard,) = (read(file) for file in DASHBOARDS if file.stem == name)
    chosen = {each.name: each.everything for each in variables(dashboard)}
    (found,) = (each.expr for each in asked(dashboard, chosen) if each.panel == panel and metric in each.expr)
    return found


def check(folder: Path, query: str, series: Mapping[str, int], samples: list[dict[str, object]]) -> None:
    """Check with promtool that the query gives these samples."""
    inputs = [{"series": name, "values": f"{value}"} for name, value in series.items()]
    asked_for = {"expr": query, "eval_time": "0m", "exp_samples": samples}
    file = folder / "query_test.yaml"
    file.write_text(
        json.dumps({"tests": [{"input_series": inputs, "promql_expr_test": [asked_for]}]}), encoding="utf-8"
    )
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


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
def test_a_group_has_the_state_of_its_worst_topic_and_two_exporters_count_once(
    metric: str, series: Mapping[str, int], expected: int, tmp_path: Path
) -> None:
    inputs = {f"{metric}{{{BILLING},{labels}}}": value for labels, value in series.items()}
    check(tmp_path, query_of(metric), inputs, [{"labels": f"{{{BILLING}}}", "value": expected}])


@pytest.mark.parametrize(("lag", "share"), [(0, 0), (3, 300)])
def test_the_share_of_a_lag_objective_of_0_is_100_percent_per_record(lag: int, share: int, tmp_path: Path) -> None:
    prefix = "barnabas_consumer_group_"
    query = query_of(f"{prefix}objective_records", "objectives", "Lag as share of what is allowed")
    series = {f"{prefix}lag{{{BILLS}}}": lag, f"{prefix}objective_records{{{BILLS}}}": 0}
    check(tmp_path, query, series, [{"labels": f"{{{NAMED}}}", "value": share}])


def test_a_run_without_records_shows_no_progress(tmp_path: Path) -> None:
    prefix = "barnabas_maintenance_run_records"
    query = query_of(f"{prefix}_expected", "maintenance", "Progress")
    check(tmp_path, query, {f"{prefix}{{{NIGHTLY_RUN}}}": 0, f"{prefix}_expected{{{NIGHTLY_RUN}}}": 0}, [])

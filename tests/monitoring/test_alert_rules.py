"""Each alert fires in its own case and in no other, as promtool plays it; its annotations use existing labels."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from monitoring import certificate_rule_cases, rule_cases, transaction_rule_cases
from monitoring.promtool import RULES, TABLES, promtool
from monitoring.quiet_series import HEALTHY, MINUTES_OF_A_WEEK, ROLL
from monitoring.rule_cases import Case

ALERTS: Final = [rule for group in YAML(typ="safe").load(RULES)["groups"] for rule in group["rules"] if "alert" in rule]
CASES: Final = (*rule_cases.CASES, *transaction_rule_cases.CASES, *certificate_rule_cases.CASES)
FIRING: Final = 'ALERTS{alertstate="firing"}'


def firing(alert: str, labels: str, severity: str) -> dict[str, Any]:
    return {"labels": f'ALERTS{{alertname="{alert}",alertstate="firing",severity="{severity}",{labels}}}', "value": 1}


def play(folder: Path, series: Mapping[str, str], moments: Mapping[str, list[dict[str, Any]]]) -> str:
    """Play the series with promtool; return its objections if other alerts than these fire at a moment."""
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    asked = [{"expr": FIRING, "eval_time": at, "exp_samples": fires} for at, fires in moments.items()]
    group = {"interval": "1m", "input_series": inputs, "promql_expr_test": asked}
    file = folder / "rules_test.yaml"
    test = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [group]}
    file.write_text(json.dumps(test), encoding="utf-8")
    done = promtool("test", "rules", str(file))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}-{case.severity}")
def test_an_alert_fires_alone_after_its_waiting_time(case: Case, tmp_path: Path) -> None:
    fires = [firing(case.alert, case.labels, case.severity), *(firing(*other) for other in case.others)]
    assert not play(tmp_path, case.series, {f"{case.silent}m": [], f"{case.fires}m": fires})


def test_no_alert_fires_on_a_healthy_cluster(tmp_path: Path) -> None:
    moments: dict[str, list[dict[str, Any]]] = {f"{minute}m": [] for minute in range(0, MINUTES_OF_A_WEEK, 7)}
    assert not play(tmp_path, HEALTHY, moments)


def test_no_alert_fires_while_brokers_restart_one_by_one(tmp_path: Path) -> None:
    assert not play(tmp_path, ROLL, {f"{minute}m": [] for minute in range(30)})


def test_every_alert_has_a_case() -> None:
    severities = {(each["alert"], each["labels"]["severity"]) for each in ALERTS}
    assert severities == {(case.alert, case.severity) for case in CASES}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: f"{alert['alert']}-{alert['labels']['severity']}")
def test_an_alert_has_all_annotations_and_uses_only_labels_that_exist(
    alert: dict[str, Any],
) -> None:
    said = alert["annotations"]
    assert set(said) == {"summary", "description", "action"}
    (labels, *_) = (case.labels for case in CASES if case.alert == alert["alert"])
    known = set(re.findall(r'(\w+)="', labels))
    assert set(re.findall(r"\$labels\.(\w+)", " ".join(said.values()))) <= known


def test_the_reference_lists_every_alert_with_its_severities() -> None:
    page = TABLES.read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", page, re.MULTILINE))
    severities: dict[str, list[str]] = {}
    for each in ALERTS:
        severities.setdefault(each["alert"], []).append(each["labels"]["severity"])
    assert listed == {name: ", ".join(found) for name, found in severities.items()}

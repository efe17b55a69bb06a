"""Every panel of every dashboard shows data of real brokers, operator and lag exporter from a real Prometheus.

There is no Grafana here: the test itself puts the chosen values of variables into the queries.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from ruamel.yaml import YAML

from harness.deadline import PATIENCE_S, wait_for
from local_kubernetes.control_plane import ControlPlane
from monitoring.panels_of import DASHBOARDS, Asked, Variable, asked, filled, metrics_of, read, variables
from monitoring.prometheus_server import Prometheus
from monitoring.promtool import RULES
from monitoring.whole_stack import Stack, whole_stack

pytestmark = pytest.mark.slow
WINDOW_S: Final = 20.0
GRAFANA_7589: Final = (
    "sum(kafka_topic_partition_current_offset - kafka_topic_partition_oldest_offset) by (topic)",
    'sum(rate(kafka_topic_partition_current_offset{topic!~"__consumer_offsets"}[10s])) by (topic)',
    "sum(kafka_consumergroup_lag) by (consumergroup, topic)",
    "sum(delta(kafka_consumergroup_current_offset[10s])/5) by (consumergroup, topic)",
    "sum by(topic) (kafka_topic_partitions)",
)
STRIMZI: Final = (
    "sum(kafka_server_replicamanager_leadercount)",
    'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{topic!=""}[10s])) by (topic)',
    "sum(kafka_server_replicamanager_underminisrpartitioncount)",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "sum(kafka_controller_kafkacontroller_offlinepartitionscount)",
    "sum by (consumergroup) (kafka_consumergroup_lag)",
    "kafka_log_log_size",
)
"""Queries of public dashboards, which must work unchanged."""


@pytest.fixture(scope="module")
def stack(defined_api_server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with whole_stack(defined_api_server, tmp_path_factory.mktemp("dashboards")) as found:
        yield found


def lack(found: Prometheus, query: Asked) -> str:
    """Return what a panel would lack, or "" if it shows all."""
    now_s = time.time()
    series = found.now(query.expr) if query.is_instant else found.over_time(query.expr, now_s - WINDOW_S, now_s)
    shown = [each for each in series if each.values]
    if not shown:
        return f"{query.panel} is empty: {query.expr}"
    absent = [label for label in query.labels if not any(label in each.labels for each in shown)]
    return f"{query.panel} has no label {absent}: {query.expr}" if absent else ""


def lacks(found: Prometheus, queries: Sequence[Asked]) -> list[str]:
    return list(filter(None, (lack(found, each) for each in queries)))


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_panel_shows_data_for_all_values_and_for_chosen_ones(file: Path, stack: Stack) -> None:
    dashboard = read(file)
    for values in ({each.name: each.everything for each in variables(dashboard)}, stack.chosen):
        queries = list(asked(dashboard, values))
        wait_for(partial(lacks, stack.prometheus, queries), lambda found: not found, PATIENCE_S, pause_s=1.0)


def offered(stack: Stack, variable: Variable) -> set[str]:
    """Return the chosen values that the variable offers."""
    values = stack.prometheus.label_values(variable.label, filled(variable.series, stack.chosen))
    return set(values) & set(stack.chosen[variable.name].split("|"))


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_dashboard_variable_offers_existing_values(file: Path, stack: Stack) -> None:
    for each in variables(read(file)):
        wait_for(partial(offered, stack, each))


def test_every_metric_in_an_alert_or_a_panel_exists(stack: Stack) -> None:
    exprs = [rule["expr"] for group in YAML(typ="safe").load(RULES)["groups"] for rule in group["rules"]]
    exprs += [each.expr for file in DASHBOARDS for each in asked(read(file), stack.chosen)]

    def unknown() -> set[str]:
        pages = stack.prometheus.metrics()
        return set().union(*map(metrics_of, exprs)) - pages - {f"{name}_bucket" for name in pages} - {"up"}

    wait_for(unknown, lambda found: not found, PATIENCE_S)


@pytest.mark.parametrize("expr", GRAFANA_7589 + STRIMZI)
def test_queries_of_public_dashboards_give_data(expr: str, stack: Stack) -> None:
    wait_for(lambda: [each for each in stack.prometheus.now(expr) if each.values])


def test_every_recording_rule_records_a_series(stack: Stack) -> None:
    rules = [rule for group in YAML(typ="safe").load(RULES)["groups"] for rule in group["rules"] if "record" in rule]
    for rule in rules:
        wait_for(partial(stack.prometheus.now, rule["record"]))


def test_no_alert_without_a_waiting_time_fires_on_a_healthy_stack(stack: Stack) -> None:
    """Alerts with a waiting time are tested with promtool, and caused in `tests/monitoring`."""
    wait_for(stack.prometheus.alerts, lambda alerts: alerts == [])

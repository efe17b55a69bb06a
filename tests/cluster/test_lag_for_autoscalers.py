"""The queries in `examples/` for KEDA and prometheus-adapter count lag once if brokers and lag exporter report it."""

from collections.abc import Iterator
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition
from ruamel.yaml import YAML

from barnabas_core.topic_partition import TopicPartition as Where
from barnabas_kafka.connection import connected_client
from barnabas_operator.kafka.group_admin import GroupAdmin
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for
from monitoring.prometheus_server import Prometheus, prometheus
from monitoring.scraped import CLUSTER, NAMESPACE, brokers_job, exporter_job, lag_exporter

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "kubernetes" / "scaling"
LAG: Final = 7
SHARE: Final = "workers"


def read(name: str) -> Any:
    return YAML(typ="safe").load((EXAMPLES / name).read_text(encoding="utf-8"))


def of_keda() -> str:
    query = read("keda-prometheus.yaml")["spec"]["triggers"][0]["metadata"]["query"]
    return str(query).replace('cluster="flights"', f'cluster="{CLUSTER}"')


def of_adapter() -> str:
    """Return the query that prometheus-adapter makes for the HorizontalPodAutoscaler of a namespace."""
    (metric,) = read("hpa.yaml")["spec"]["metrics"]
    chosen = {**metric["external"]["metric"]["selector"]["matchLabels"], "namespace": NAMESPACE, "cluster": CLUSTER}
    matchers = ",".join(f'{name}="{value}"' for name, value in chosen.items())
    (rule,) = read("prometheus-adapter.yaml")["rules"]["external"]
    query = rule["metricsQuery"].replace("<<.Series>>", metric["external"]["metric"]["name"])
    return str(query.replace("<<.LabelMatchers>>", matchers))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=1) as running:
        running.create_topic("flights", 2)
        yield running


def values(running: Prometheus, query: str) -> list[list[float]]:
    return [each.values for each in running.now(query)]


def begin_share_group(bootstrap: str) -> None:
    """Make a share group that has finished no record."""
    with closing(connected_client(bootstrap, PATIENCE_S, "the-test")) as client:
        starts = {Where("flights", number): 0 for number in range(2)}
        wait_for(lambda: GroupAdmin(client, nullcontext).alter_start_offsets(SHARE, starts) is None)


@pytest.mark.slow
def test_lag_reported_by_brokers_and_the_lag_exporter_counts_once(cluster: BarnabasCluster, tmp_path: Path) -> None:
    client = cluster.client()
    client.write("flights", [b"x"] * LAG)
    client.commit("billing", *(TopicPartition("flights", each, 0) for each in range(2)))
    begin_share_group(cluster.bootstrap)
    with (
        lag_exporter(tmp_path, cluster.bootstrap) as exporter,
        prometheus(tmp_path, [brokers_job(cluster), exporter_job(exporter)]) as running,
    ):
        sums = 'kafka_consumergroup_lag_sum{consumergroup="billing"}'
        wait_for(lambda: values(running, sums), lambda told: told == [[LAG], [LAG]], pause_s=0.2)
        for query in (of_keda(), of_adapter()):  # A scrape that is late on a busy machine leaves a gap.
            for group in ("billing", SHARE):
                of_group = query.replace("billing", group)
                wait_for(partial(values, running, of_group), lambda told: told == [[LAG]], pause_s=0.2)

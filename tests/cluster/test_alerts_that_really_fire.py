"""Brokers are killed and groups stop: a real Prometheus tells the alerts that are about it, and none before.

Alerts fire at once here. How long each waits is played by promtool.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from ruamel.yaml import YAML

from harness.cluster import BarnabasCluster
from harness.deadline import wait_for
from harness.stock_client import StockClient
from monitoring.cluster_under_load import PARTITIONS, TOPIC, three_brokers
from monitoring.prometheus_server import Prometheus, prometheus
from monitoring.promtool import RULES
from monitoring.scraped import CLUSTER, brokers_job

pytestmark = pytest.mark.soak(only=True)
SECONDS_MAX: Final = 60.0
STEADY_SCRAPES: Final = 5
MANY: Final = 1_001
"""Records: one more than a group may be behind."""


class Watched(NamedTuple):
    """What is killed, and who tells."""

    cluster: BarnabasCluster
    prometheus: Prometheus


def at_once(folder: Path) -> Path:
    """The rules without `for`."""
    rules: Any = YAML(typ="safe").load(RULES)
    for each in (rule for group in rules["groups"] for rule in group["rules"]):
        each.pop("for", None)
    YAML(typ="safe").dump(rules, folder / "rules.yaml")
    return folder / "rules.yaml"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with three_brokers(tmp_path, broker_session_timeout_ms="2000") as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        cluster.create_topic("alone", assignment=[[1]])
        with prometheus(tmp_path, [brokers_job(cluster)], at_once(tmp_path)) as running:
            yield Watched(cluster, running)


def firing(found: Prometheus) -> set[str]:
    """Names; the words of each alert are whole."""
    alerts = found.alerts()
    for each in alerts:
        words = " ".join(each["annotations"].values())
        assert "<no value>" not in words, words
        assert "error" not in words.lower() or "error" in each["annotations"]["action"].lower(), words
        assert each["labels"]["cluster"] == CLUSTER
    return {each["labels"]["alertname"] for each in alerts}


def scrapes(found: Prometheus) -> float:
    """The fewest that there were of a broker's page."""
    return min((each.values[0] for each in found.now('count_over_time(up{broker!=""}[1h])') if each.values), default=0)


def await_alerts(found: Prometheus, *names: str) -> None:
    wait_for(lambda: firing(found), lambda told: told == set(names), SECONDS_MAX, pause_s=0.5)


def test_brokers_that_are_killed_and_come_back(watched: Watched) -> None:
    cluster, told = watched
    wait_for(lambda: scrapes(told) >= STEADY_SCRAPES, seconds_max=SECONDS_MAX)
    await_alerts(told)
    cluster.kill(2)
    await_alerts(told, "BrokerDown", "ScrapeProblem", "UnderReplicatedPartitions")
    cluster.kill(1)
    await_alerts(
        told,
        "BrokerDown",
        "ScrapeProblem",
        "UnderReplicatedPartitions",
        "UnderMinIsrPartitionCount",
        "OfflinePartitions",
    )
    cluster.kill(0)
    await_alerts(told, "NoBrokerAnswers", "ScrapeProblem")
    cluster.start()
    cluster.wait_until_full()
    await_alerts(told)


def test_a_group_that_stops_reading_and_goes_on(watched: Watched) -> None:
    cluster, told = watched
    client = cluster.client()
    read_on(client.consumer("billing"), client, records=1)
    wait_for(lambda: lags(told), lambda found: found == {"billing": 0}, SECONDS_MAX)
    await_alerts(told)
    client.write(TOPIC, [b"record"] * MANY)
    await_alerts(told, "ConsumerGroupLag")
    read_on(client.consumer("billing"), client, records=0)
    await_alerts(told)


def lags(told: Prometheus) -> dict[str, float]:
    """By group."""
    found = told.now("consumergroup:kafka_consumergroup_lag:sum")
    return {each.labels["consumergroup"]: each.values[0] for each in found}


def read_on(consumer: Consumer, client: StockClient, records: int) -> None:
    """Writes so many, and commits the end of the partition."""
    client.write(TOPIC, [b"record"] * records)
    _, end = client.ends(TOPIC)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, end)], asynchronous=False)
    consumer.close()

"""A `__transaction_state` without compaction is reported."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.command_here import barnabas_here
from harness.deadline import PATIENCE_S

TOPIC = "__transaction_state"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=1) as running:
        yield running


def begin_to_produce(cluster: BarnabasCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "pay"}
    Producer(settings).init_transactions(PATIENCE_S)


def test_a_transaction_state_topic_without_compaction_is_kept_and_reported(cluster: BarnabasCluster) -> None:
    begin_to_produce(cluster)
    change = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.incremental_alter_configs([wanted])[wanted].result(PATIENCE_S)
    assert "the brokers refuse transactions" in barnabas_here("status", "--bootstrap", cluster.bootstrap).stdout
    cluster.restart(0)
    assert "__transaction_state does not have cleanup.policy=compact" in cluster.logs_text()
    assert len(cluster.describe(TOPIC)) == 50

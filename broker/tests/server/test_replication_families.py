"""The metrics of replication, as a scrape shows them."""

import asyncio
from types import SimpleNamespace

from barnabas_broker.replication.fetchers import FetchStatus
from barnabas_broker.server.metrics.exposition import render
from barnabas_broker.server.metrics.replication_families import replication_families
from barnabas_core.topic_partition import TopicPartition


def test_lags_failures_traffic_and_changes_of_in_sync_replicas_are_told() -> None:
    statuses = [
        FetchStatus(TopicPartition("planes", 0), 2, 7, False),
        FetchStatus(TopicPartition("planes", 1), 3, 0, True),
    ]
    partitions = [
        SimpleNamespace(replication_bytes_in=1, replication_bytes_out=20, isr_shrinks=1, isr_expands=0),
        SimpleNamespace(replication_bytes_in=2, replication_bytes_out=30, isr_shrinks=1, isr_expands=1),
    ]
    services = SimpleNamespace(
        fetchers=SimpleNamespace(status=lambda: iter(statuses), throttle=SimpleNamespace(bytes_total=5)),
        followers=SimpleNamespace(throttle=SimpleNamespace(bytes_total=6)),
        replicas=SimpleNamespace(partitions=lambda: iter(partitions)),
        isr_changes=SimpleNamespace(failed_total=4),
    )
    families = replication_families(services)  # type: ignore[arg-type]
    shown = {line for line in asyncio.run(render(families)).decode().splitlines() if not line.startswith("#")}
    assert shown == {
        'kafka_server_fetcherlagmetrics_consumerlag{leader="2",topic="planes",partition="0"} 7',
        'kafka_server_fetcherlagmetrics_consumerlag{leader="3",topic="planes",partition="1"} 0',
        "kafka_server_replicafetchermanager_maxlag 7",
        "kafka_server_replicafetchermanager_failedpartitionscount 1",
        "kafka_server_brokertopicmetrics_replicationbytesin_total 3",
        "kafka_server_brokertopicmetrics_replicationbytesout_total 50",
        "kafka_server_leaderreplication_throttled_bytes_total 6",
        "kafka_server_followerreplication_throttled_bytes_total 5",
        "kafka_server_replicamanager_isrshrinks_total 2",
        "kafka_server_replicamanager_isrexpands_total 1",
        "kafka_server_replicamanager_failedisrupdates_total 4",
    }

"""The metrics of replication and of partitions, as a scrape shows them, also where there are ten thousand."""

import asyncio
import gc
import time
from dataclasses import dataclass, field
from types import SimpleNamespace

from scrape import scrape, shown

from barnabas_broker.replication.fetchers import FetchStatus
from barnabas_broker.server.metrics.broker_families import broker_families
from barnabas_broker.server.metrics.exposition import render
from barnabas_broker.server.metrics.hosted import Hosted, look_at_all
from barnabas_broker.server.metrics.partition_families import partition_families
from barnabas_broker.server.metrics.replication_families import replication_families
from barnabas_core.topic_partition import TopicPartition

TURN_S_MAX = 0.05


@dataclass
class Replica:
    """What is told of one; the counters are those of a replica in a cluster of three."""

    topic_partition: TopicPartition
    is_leader: bool = True
    isr_size: int = 3
    isr_size_min: int = 2
    leader_id: int = 1
    failure: object = None
    high_watermark: int = 5
    log_start_offset: int = 1
    messages_in: int = 4
    bytes_in: int = 40
    bytes_out: int = 80
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    state: object = field(default_factory=lambda: SimpleNamespace(replicas=(1, 2, 3)))
    log: object = field(default_factory=lambda: SimpleNamespace(size_bytes=7, segments=(1,), log_end_offset=5))


def _hosted(*replicas: Replica) -> Hosted:
    return asyncio.run(look_at_all(replicas))  # type: ignore[arg-type]


def test_lags_failures_traffic_and_changes_of_in_sync_replicas_are_told() -> None:
    statuses = [
        FetchStatus(TopicPartition("planes", 0), 2, 7, False),
        FetchStatus(TopicPartition("planes", 1), 3, 0, True),
    ]
    planes = [TopicPartition("planes", number) for number in (0, 1)]
    hosted = _hosted(
        Replica(planes[0], replication_bytes_in=1, replication_bytes_out=20, isr_shrinks=1),
        Replica(planes[1], replication_bytes_in=2, replication_bytes_out=30, isr_shrinks=1, isr_expands=1),
    )
    services = SimpleNamespace(
        fetchers=SimpleNamespace(status=lambda: iter(statuses), throttle=SimpleNamespace(bytes_total=5)),
        followers=SimpleNamespace(throttle=SimpleNamespace(bytes_total=6)),
        isr_changes=SimpleNamespace(failed_total=4),
    )
    families = replication_families(services, hosted)  # type: ignore[arg-type]
    assert {line for line in scrape(families).splitlines() if not line.startswith("#")} == {
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


SERVICES = SimpleNamespace(trust=SimpleNamespace(untrue={}), logs=SimpleNamespace(log_dirs=[], producer_count=0))


def test_what_is_counted_over_all_partitions_is_told_by_who_leads_them() -> None:
    planes = [TopicPartition("planes", number) for number in range(4)]
    hosted = _hosted(
        Replica(planes[0]),
        Replica(planes[1], isr_size=2),
        Replica(planes[2], isr_size=1),
        Replica(planes[3], is_leader=False, isr_size=1, failure=OSError()),
    )
    families = [*broker_families(SERVICES, hosted), *partition_families(hosted)]  # type: ignore[arg-type]
    values = shown(families)
    manager = "kafka_server_replicamanager_"
    counts = ("partition", "leader", "underminisrpartition", "offlinereplica", "atminisrpartition")
    assert [values[f"{manager}{name}count"] for name in counts] == ["4", "3", "1", "1", "1"]
    assert values[f"{manager}underreplicatedpartitions"] == "2"
    assert values['kafka_server_brokertopicmetrics_bytesin_total{topic="planes"}'] == "160"
    assert values["kafka_server_brokertopicmetrics_bytesin_total"] == "160"
    assert values['kafka_cluster_partition_underminisr{topic="planes",partition="2"}'] == "1"
    assert 'kafka_cluster_partition_underminisr{topic="planes",partition="3"}' not in values
    assert values['kafka_log_log_size{topic="planes",partition="3"}'] == "7"


def test_ten_thousand_partitions_hold_up_nobody() -> None:
    replicas = [Replica(TopicPartition(f"planes-{number % 100}", number // 100)) for number in range(10_000)]

    async def longest_turn_s() -> float:
        async def scraped() -> None:
            hosted = await look_at_all(replicas)  # type: ignore[arg-type]
            families = [*broker_families(SERVICES, hosted), *partition_families(hosted)]  # type: ignore[arg-type]
            async for _ in render(families):
                pass

        scraping = asyncio.ensure_future(scraped())
        longest_s = 0.0
        while not scraping.done():
            begun_s = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - begun_s)
        await scraping
        return longest_s

    gc.collect()
    gc.freeze()  # As a broker does when it has started.
    try:
        assert asyncio.run(longest_turn_s()) < TURN_S_MAX
    finally:
        gc.unfreeze()

"""The metrics of replication and of partitions, as a scrape shows them, also where there are ten thousand."""

import asyncio
import gc
import random
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID

from one_replica import HERE, NOW_MS, Broker, led
from scrape import scrape, shown

from barnabas_broker.handlers.batch_trust import BatchTrust
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.commit_queue import CommitQueue
from barnabas_broker.replication.fetchers import FetchStatus
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.partition_environment import PartitionEnvironment
from barnabas_broker.replication.purgatory import Purgatory
from barnabas_broker.server.metrics.broker_families import broker_families
from barnabas_broker.server.metrics.exposition import render
from barnabas_broker.server.metrics.hosted import Hosted, look_at_all
from barnabas_broker.server.metrics.partition_families import partition_families
from barnabas_broker.server.metrics.replication_families import replication_families
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition

TURN_S_MAX = 0.05


def replicas_of(folder: Path, *states: PartitionState) -> tuple[Broker, list[Partition]]:
    """Broker 1 with these partitions of a topic, of which two replicas have to be in sync."""
    broker = Broker(folder, *states[:1])
    broker.show(*states)
    while broker.timers.turn():
        pass
    replicas = sorted(broker.replicas.lookup.partitions(), key=lambda each: each.topic_partition)
    for each in replicas:
        each.configure(LogConfig(min_insync_replicas=2))
    return broker, replicas


def _hosted(replicas: Sequence[Partition]) -> Hosted:
    return asyncio.run(look_at_all(replicas))


def environment_of(broker: Broker) -> HandlerEnvironment:
    return cast(HandlerEnvironment, SimpleNamespace(trust=BatchTrust(random.Random(0)), logs=broker.logs))


def test_lags_failures_traffic_and_changes_of_in_sync_replicas_are_told(tmp_path: Path) -> None:
    statuses = [
        FetchStatus(TopicPartition("planes", 0), 2, 7, False),
        FetchStatus(TopicPartition("planes", 1), 3, 0, True),
    ]
    _, replicas = replicas_of(tmp_path, led(1, 1, 1, 2, 3), led(1, 1, 1, 2, 3))
    replicas[0].apply(led(1, 1, 1, 2, partition_epoch=2))
    replicas[1].apply(led(1, 1, 1, 2, partition_epoch=2))
    replicas[1].apply(led(1, 1, 1, 2, 3, partition_epoch=3))
    for number, replica in enumerate(replicas):
        replica.replication_bytes_in, replica.replication_bytes_out = 1 + number, 20 + 10 * number
    hosted = _hosted(replicas)
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


def test_what_is_counted_over_all_partitions_is_told_by_who_leads_them(tmp_path: Path) -> None:
    states = led(1, 1, 1, 2, 3), led(1, 1, 1, 2), led(1, 1, 1), led(2, 1, 2)
    broker, replicas = replicas_of(tmp_path, *states)
    batch = encode_batch([Record(number, NOW_MS, None, b"value") for number in range(4)])
    for each in replicas[:3]:
        each.append_as_leader(memoryview(batch), parse_header(batch, 0), NOW_MS)
    replicas[3].go_offline(LogDirFailed(str(tmp_path), "the disk failed"))
    hosted = _hosted(replicas)
    values = shown([*broker_families(environment_of(broker), hosted), *partition_families(hosted)])
    manager, topics = "kafka_server_replicamanager_", "kafka_server_brokertopicmetrics_"
    counts = ("partition", "leader", "underminisrpartition", "offlinereplica", "atminisrpartition")
    assert [values[f"{manager}{name}count"] for name in counts] == ["4", "3", "1", "1", "1"]
    assert values[f"{manager}underreplicatedpartitions"] == "2"
    for name, expected in (("bytesin", 3 * len(batch)), ("messagesin", 12)):
        assert values[f'{topics}{name}_total{{topic="flights"}}'] == values[f"{topics}{name}_total"] == str(expected)
    assert values['kafka_cluster_partition_underminisr{topic="flights",partition="2"}'] == "1"
    assert 'kafka_cluster_partition_underminisr{topic="flights",partition="3"}' not in values
    assert values['kafka_log_log_size{topic="flights",partition="2"}'] == str(len(batch))
    assert values['kafka_log_log_size{topic="flights",partition="3"}'] == "0"


def many_over_one_log(broker: Broker) -> list[Partition]:
    """Ten thousand that are led here: ten thousand logs would take the disk minutes."""
    shared, waiters = broker.partition.log, Purgatory(broker.timers).wait_list()
    context = PartitionEnvironment(
        HERE, broker.clock, lambda *_: True, lambda: 30_000, lambda _: None, lambda: 1, lambda: None
    )
    replicas = []
    for number in range(10_000):
        which = TopicPartition(f"planes-{number % 100}", number // 100)
        replicas.append(Partition(which, UUID(int=number), shared, 0, context, waiters, CommitQueue(broker.timers)))
        replicas[-1].apply(led(1, 1, 1, 2, 3))
    return replicas


def test_ten_thousand_partitions_hold_up_nobody(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(1, 1, 1, 2, 3))
    replicas, environment = many_over_one_log(broker), environment_of(broker)

    async def longest_turn_s() -> float:
        async def scraped() -> None:
            hosted = await look_at_all(replicas)
            families = [*broker_families(environment, hosted), *partition_families(hosted)]
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

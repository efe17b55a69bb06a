"""The metrics of replication and of partitions, as a scrape shows them, also with ten thousand partitions."""

import asyncio
import gc
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from fetch_world import LATENCY_S, World
from msgspec import structs
from msgspec.structs import replace
from one_replica import HERE, NOW_MS, Broker, at_once, led
from scrape import shown

from barnabas_broker.handlers.batch_trust import BatchTrust
from barnabas_broker.metadata.controller.decisions.fencing import IsrChange
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.leader_replica import JOINS_TOGETHER_S, IsrChanges, PartitionEnvironment, Purgatory
from barnabas_broker.replication.partition import CommitQueue, Partition
from barnabas_broker.server.metrics.broker_families import broker_families
from barnabas_broker.server.metrics.exposition import Hosted, hosted_of, render
from barnabas_broker.server.metrics.partition_families import partition_families, replication_families
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import LogConfig, ThrottledReplicas
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.soak import took

TURN_S_MAX = 0.05
OUT_OF_SYNC_S = 60


def replicas_of(folder: Path, *states: PartitionState) -> tuple[Broker, list[Partition]]:
    """Return broker 1 with these partitions of a topic, whose minimum ISR is two."""
    broker = Broker(folder, *states[:1])
    broker.show(*states)
    while broker.timers.turn():
        pass
    replicas = sorted(broker.replicas.lookup.partitions(), key=lambda each: each.topic_partition)
    for each in replicas:
        each.configure(LogConfig(min_insync_replicas=2))
    return broker, replicas


def _hosted(replicas: Sequence[Partition]) -> Hosted:
    return asyncio.run(hosted_of(replicas))


def out_of_sync(tmp_path: Path) -> World:
    """Broker 1 follows flights-0 of broker 2, and leads flights-1, which broker 2 follows.

    Both followers lack 8 batches and are throttled, and a response has little more than one batch.
    """
    rate = 100_000
    world = World(
        tmp_path,
        replica_fetch_max_bytes=100,
        leader_replication_throttled_rate=rate,
        follower_replication_throttled_rate=rate,
    )
    followers = [followed(world, index, leader, follower) for index, leader, follower in ((0, 2, 1), (1, 1, 2))]
    world.timers.pass_time(OUT_OF_SYNC_S)
    for fetchers, partition in followers:
        for _ in range(7):
            world.append(partition.topic_partition.partition)
        fetchers.follow(partition)
    return world


def followed(world: World, index: int, leader: int, follower: int) -> tuple[Fetchers, Partition]:
    """A partition with one batch, whose follower is out of the ISR and does not fetch yet."""
    world.lead(index, leader, replicas=(leader, follower))
    show_isr(world, index, leader)
    behind = world.brokers[follower].partitions[index]
    fetchers = world.brokers[follower].fetchers
    fetchers.unfollow(behind)
    every = ThrottledReplicas(all=True)
    for each in world.brokers[leader].partitions[index], behind:
        each.configure(replace(each.log.config, leader_throttled_replicas=every, follower_throttled_replicas=every))
    world.append(index)
    return fetchers, behind


def show_isr(world: World, index: int, *isr: int) -> None:
    state = world.states[index]
    world.states[index] = structs.replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)
    world.show(index, state.replicas)


def refusing(world: World) -> IsrChanges:
    async def refused(changes: Sequence[IsrChange]) -> Mapping[TopicPartition, PartitionState | ApiError]:
        return {each.topic_partition: ApiError(ErrorCode.INVALID_REQUEST, "not now") for each in changes}

    async def no_pause(seconds: float) -> None:
        raise AssertionError(seconds)

    return IsrChanges(refused, world.timers, no_pause, at_once)


def shown_of(world: World, isr_changes: IsrChanges) -> dict[str, str]:
    """Return the metrics of broker 1."""
    here = world.brokers[1]
    hosted = _hosted(list(here.partitions.values()))
    return shown(replication_families(here.fetchers, here.sessions, isr_changes, hosted))


def test_lags_failures_and_traffic_of_the_brokers_own_followers_and_leaders_are_shown(tmp_path: Path) -> None:
    world = out_of_sync(tmp_path)
    world.lead(2, 3, replicas=(3, 1))
    del world.brokers[3].partitions[2]  # Broker 3 answers with an error from now on.
    world.timers.pass_time(3 * LATENCY_S)
    values = shown_of(world, refusing(world))
    assert values['kafka_server_fetcherlagmetrics_consumerlag{leader="2",topic="flights",partition="0"}'] == "7"
    assert values['kafka_server_fetcherlagmetrics_consumerlag{leader="3",topic="flights",partition="2"}'] == "0"
    assert values["kafka_server_replicafetchermanager_maxlag"] == "7"
    assert values["kafka_server_replicafetchermanager_failedpartitionscount"] == "1"
    assert values["kafka_server_brokertopicmetrics_replicationbytesin_total"] == str(len(world.bytes_of(1, 0)))
    for name in ("brokertopicmetrics_replicationbytesout", "leaderreplication_throttled_bytes"):
        assert values[f"kafka_server_{name}_total"] == "200"
    assert values["kafka_server_followerreplication_throttled_bytes_total"] == "100"


def test_isr_shrinks_expansions_and_refused_changes_are_counted(tmp_path: Path) -> None:
    world = out_of_sync(tmp_path)
    isr_changes = refusing(world)
    led_here = world.brokers[1].partitions[1]
    while led_here not in world.proposals:
        world.timers.pass_time(LATENCY_S)
    isr_changes.propose(led_here)
    world.timers.pass_time(JOINS_TOGETHER_S)
    show_isr(world, 1, 1, 2)
    show_isr(world, 1, 1)
    prefix = "kafka_server_replicamanager_"
    values = {name.removeprefix(prefix): value for name, value in shown_of(world, isr_changes).items()}
    assert [values[f"{name}_total"] for name in ("isrshrinks", "isrexpands", "failedisrupdates")] == ["2", "1", "1"]


def test_partition_counts_and_topic_traffic_are_shown_by_the_leader(tmp_path: Path) -> None:
    states = led(1, 1, 1, 2, 3), led(1, 1, 1, 2), led(1, 1, 1), led(2, 1, 2)
    broker, replicas = replicas_of(tmp_path, *states)
    batch = encode_batch([Record(number, NOW_MS, None, b"value") for number in range(4)])
    for each in replicas[:3]:
        each.append_as_leader(memoryview(batch), parse_header(batch, 0), NOW_MS)
    replicas[3].go_offline(LogDirFailed(str(tmp_path), "the disk failed"))
    hosted = _hosted(replicas)
    values = shown([*broker_families(BatchTrust(), broker.logs, hosted), *partition_families(hosted)])
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
    """Return ten thousand led partitions over one log: ten thousand logs would take the disk minutes."""
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


def test_a_scrape_of_ten_thousand_partitions_does_not_block_the_loop(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(1, 1, 1, 2, 3))
    replicas = many_over_one_log(broker)
    turns, is_rendering = {False: 0, True: 0}, False

    async def longest_turn_s() -> float:
        nonlocal is_rendering

        async def scraped() -> None:
            nonlocal is_rendering
            hosted = await hosted_of(replicas)
            is_rendering = True
            families = [
                *broker_families(BatchTrust(), broker.logs, hosted),
                *partition_families(hosted),
            ]
            async for _ in render(families):
                pass

        scraping = asyncio.ensure_future(scraped())
        longest_s = 0.0
        while not scraping.done():
            begun_s = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - begun_s)
            turns[is_rendering] += 1
        await scraping
        return longest_s

    gc.collect()
    gc.freeze()  # A started broker does the same.
    try:
        took("the longest turn", asyncio.run(longest_turn_s()), TURN_S_MAX)
        assert min(turns.values()) >= 10, f"others have few turns while it looks and while it renders: {turns}"
    finally:
        gc.unfreeze()

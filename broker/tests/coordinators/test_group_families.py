"""The lag of very many offsets is exported without blocking clients."""

import asyncio
import gc
import time
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from coordinator_world import Client, World, stable

from barnabas_broker.coordinators.groups.messages import CommittedOffset, GroupRecord, OffsetKey
from barnabas_broker.replication.other_brokers import EARLIEST, LATEST
from barnabas_broker.server.metrics.exposition import render
from barnabas_broker.server.metrics.group_families import group_families
from barnabas_core.topic_partition import TopicPartition
from harness.soak import size, took

TURN_S_MAX = 0.05
PARTITIONS = size(1_000, 10_000)
GROUPS = 10


class EndOffsets:
    """End offsets of partitions that other brokers lead: all logs start at 20 and end at 100."""

    async def ask(self, partitions: Iterable[TopicPartition], end: int = LATEST) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 20 if end == EARLIEST else 100)


def _services(world: World, **partitions: int) -> SimpleNamespace:
    """Return services with topics of so many `partitions`."""
    topics = {topic: SimpleNamespace(partitions=range(count)) for topic, count in partitions.items()}
    return SimpleNamespace(
        groups=world.coordinator,
        end_offsets=EndOffsets(),
        image=SimpleNamespace(topics=topics),
        replicas=SimpleNamespace(lookup=SimpleNamespace(topics={})),
    )


async def _page(world: World, **partitions: int) -> list[bytes]:
    return [data async for data in render(await group_families(_services(world, **partitions)))]  # type: ignore[arg-type]


async def test_the_metrics_contain_offsets_lags_and_members() -> None:
    world = World()
    client = Client(world, "a")
    stable(world, client)
    client.commit(("flights", 0, 60), ("flights", 1, 120), ("weather", 0, 99))
    world.timers.pass_time()
    lines = b"".join(await _page(world, flights=3, weather=1, unread=5)).decode().splitlines()
    prefix, readers = "kafka_consumergroup_", 'consumergroup="readers"'
    assert {line for line in lines if line.startswith(prefix)} == {
        f'{prefix}current_offset{{{readers},topic="flights",partition="0"}} 60',
        f'{prefix}current_offset{{{readers},topic="flights",partition="1"}} 120',
        f'{prefix}current_offset{{{readers},topic="weather",partition="0"}} 99',
        f'{prefix}lag{{{readers},topic="flights",partition="0"}} 40',
        f'{prefix}lag{{{readers},topic="flights",partition="1"}} 0',
        f'{prefix}lag{{{readers},topic="flights",partition="2"}} 80',
        f'{prefix}lag{{{readers},topic="weather",partition="0"}} 1',
        f'{prefix}current_offset_sum{{{readers},topic="flights"}} 180',
        f'{prefix}current_offset_sum{{{readers},topic="weather"}} 99',
        f'{prefix}lag_sum{{{readers},topic="flights"}} 120',
        f'{prefix}lag_sum{{{readers},topic="weather"}} 1',
        f"{prefix}members{{{readers}}} 1",
    }
    assert "kafka_coordinator_group_offset_commits_total 3" in lines


def _loaded() -> World:
    world = World()
    for group in range(GROUPS):
        keys = [OffsetKey(f"group-{group}", f"t-{number % 100}", number // 100) for number in range(PARTITIONS)]
        world.log.write(0, [GroupRecord(key, CommittedOffset(7)).encode() for key in keys])
    world.log.commit()
    world.leader_epoch += 1
    world.coordinator.runtime.elect(0, world.leader_epoch)
    world.timers.pass_time()
    return world


@pytest.mark.soak
def test_a_scrape_of_many_groups_does_not_block_the_loop_during_commits() -> None:
    world = _loaded()

    async def longest_turn_s() -> float:
        scraping = asyncio.ensure_future(_page(world, **{f"t-{number}": PARTITIONS // 100 for number in range(100)}))
        longest_s, turns = 0.0, 0
        while not scraping.done():
            begun_s = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - begun_s)
            Client(world, "stranger", group_id=f"group-{turns % 20}").commit(("new", turns, 1))
            world.timers.pass_time()
            turns += 1
        page = b"".join(await scraping)
        assert page.count(b"\nkafka_consumergroup_lag{") >= GROUPS * PARTITIONS
        return longest_s

    gc.collect()
    gc.freeze()
    try:
        took("the longest turn", asyncio.run(longest_turn_s()), TURN_S_MAX)
    finally:
        gc.unfreeze()

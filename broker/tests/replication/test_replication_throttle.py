"""F13: bytes a second for replicas that are out of sync, on the leader's and on the follower's side (KIP-73)."""

from pathlib import Path
from typing import Any

import pytest
from fetch_world import World
from msgspec.structs import replace

from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.fetch_session import Throttle
from barnabas_core.config.log_config import LONG_MAX, ThrottledReplicas
from harness.manual_clock import ManualClock

RATE = 100_000
BATCH = b"x" * 9_900


def test_a_throttle_allows_a_burst_of_one_second_and_then_its_rate() -> None:
    clock, rate = ManualClock(), 1000
    throttle = Throttle(clock, lambda: rate)
    taken = 0
    for _ in range(1000):
        clock.pass_time(0.01)
        if not throttle.pause_s():
            throttle.take(150)
            taken += 150
    assert 10_000 + 1000 - 150 <= taken <= 10_000 + 1000 + 150
    assert throttle.bytes_total == taken


def test_an_exceeded_throttle_pauses_as_long_as_needed_but_at_most_a_second() -> None:
    clock, rates = ManualClock(), [1000]
    throttle = Throttle(clock, lambda: rates[0])
    throttle.take(1500)
    assert throttle.pause_s() == pytest.approx(0.5)
    throttle.take(100_000)
    assert throttle.pause_s() == 1.0
    rates[0] = 0
    assert throttle.pause_s() == 1.0
    rates[0] = LONG_MAX
    assert throttle.pause_s() == 0.0


def throttle(world: World, side: str, replicas: ThrottledReplicas) -> None:
    setattr(world.config, f"{side}_replication_throttled_rate", RATE)
    for broker in world.brokers.values():
        for partition in broker.partitions.values():
            settings: dict[str, Any] = {f"{side}_throttled_replicas": replicas}
            partition.configure(replace(partition.log.config, **settings))


def behind(tmp_path: Path) -> World:
    """Return a world whose broker 2 is out of sync, and lacks a megabyte of each of two partitions."""
    world = World(tmp_path, replica_fetch_max_bytes=10_000)
    for index in (0, 1):
        world.lead(index, 1, to=(1, 2))
        alone = PartitionState(replicas=(1, 2), leader=1, leader_epoch=0, isr=(1,), partition_epoch=9)
        for broker in (1, 2):
            world.brokers[broker].apply(index, alone)
        world.brokers[2].fetchers.unfollow(world.brokers[2].partitions[index])
    world.append(0, BATCH)
    world.append(1, BATCH)
    world.timers.pass_time(60)
    for _ in range(99):
        world.append(0, BATCH)
        world.append(1, BATCH)
    return world


def catch_up(world: World) -> None:
    for partition in world.brokers[2].partitions.values():
        world.brokers[2].fetchers.follow(partition)


@pytest.mark.parametrize(
    ("side", "replicas"),
    [("leader", ThrottledReplicas(replicas=frozenset({(0, 1)}))), ("follower", ThrottledReplicas(all=True))],
)
def test_an_out_of_sync_replica_fetches_at_the_throttled_rate(
    tmp_path: Path, side: str, replicas: ThrottledReplicas
) -> None:
    world = behind(tmp_path)
    throttle(world, side, replicas)
    catch_up(world)
    world.timers.pass_time(5)
    sizes = {index: len(world.bytes_of(2, index)) for index in (0, 1)}
    throttled = sizes[0] if side == "leader" else sum(sizes.values())
    assert 6 * RATE - 20_000 <= throttled <= 6 * RATE + 20_000
    assert side == "follower" or world.is_equal(1)
    setattr(world.config, f"{side}_replication_throttled_rate", LONG_MAX)
    world.timers.pass_time(1.5)
    assert world.is_equal(0)
    assert world.is_equal(1)


def test_replicas_and_leaders_that_are_not_listed_are_not_throttled(tmp_path: Path) -> None:
    world = behind(tmp_path)
    throttle(world, "leader", ThrottledReplicas(replicas=frozenset({(0, 2), (1, 3)})))
    throttle(world, "follower", ThrottledReplicas(replicas=frozenset({(0, 1), (1, 1)})))
    catch_up(world)
    world.timers.pass_time(1)
    assert world.is_equal(0)
    assert world.is_equal(1)


def test_an_in_sync_replica_is_never_throttled(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lead(0, 1)
    world.timers.pass_time(1)
    for side in ("leader", "follower"):
        throttle(world, side, ThrottledReplicas(all=True))
        setattr(world.config, f"{side}_replication_throttled_rate", 1)
    for _ in range(20):
        world.append(0, BATCH)
        world.timers.pass_time(0.01)
    assert world.is_equal(0)


def test_a_throttled_partition_does_not_delay_other_partitions(tmp_path: Path) -> None:
    world = behind(tmp_path)
    throttle(world, "follower", ThrottledReplicas(replicas=frozenset({(0, 2)})))
    catch_up(world)
    world.timers.pass_time(1)
    for _ in range(10):
        world.append(1)
        world.timers.pass_time(0.01)
        assert world.is_equal(1)
    assert not world.is_equal(0)
    assert len(world.requests) < 1000

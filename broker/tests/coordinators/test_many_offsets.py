"""No operation on very many offsets blocks the event loop."""

import gc
import time
from collections.abc import Iterator
from uuid import UUID

import pytest
from coordinator_world import Client, World

from barnabas_broker.coordinators.groups.messages import CommittedOffset, GroupRecord, OffsetKey
from barnabas_core.errors import ErrorCode
from harness.soak import size, took

TOPICS = [(f"topic-{number}", UUID(int=number)) for number in range(50)]
SMALL_GROUPS = size(250, 2_500)
OFFSETS = 40 * SMALL_GROUPS
TURN_S_MAX = 0.05
WEEK_MS = 7 * 24 * 3_600_000
pytestmark = pytest.mark.soak


def _records() -> Iterator[GroupRecord]:
    for number in range(OFFSETS // 2):
        yield GroupRecord(OffsetKey("large", f"topic-{number % 50}", number // 50), CommittedOffset(number))
        group_id = f"small-{number % SMALL_GROUPS}"
        yield GroupRecord(OffsetKey(group_id, f"topic-{number // SMALL_GROUPS}", 0), CommittedOffset(number))


@pytest.fixture
def world() -> World:
    """Return a world where one group has half of the offsets, and many groups share the others, not loaded yet."""
    world = World()
    records = [record._replace(value=_at(world, record)).encode() for record in _records()]
    for start in range(0, OFFSETS, 1_000):
        world.log.write(0, records[start : start + 1_000])
    world.log.commit()
    world.leader_epoch += 1
    world.coordinator.runtime.elect(0, world.leader_epoch)
    return world


def _at(world: World, record: GroupRecord) -> CommittedOffset:
    assert isinstance(record.key, OffsetKey)
    assert isinstance(record.value, CommittedOffset)
    topic_id = UUID(int=int(record.key.topic.partition("-")[2]))
    return record.value._replace(commit_timestamp_ms=world.clock.now_ms(), topic_id=topic_id)


def longest_turn_s(world: World) -> float:
    """Return the processor time of the longest turn until all work is done, without garbage collections."""
    gc.collect()
    gc.disable()
    try:
        longest_s, goes_on = 0.0, True
        while goes_on:
            begun_s = time.thread_time()
            goes_on = world.timers.turn()
            longest_s = max(longest_s, time.thread_time() - begun_s)
        return longest_s
    finally:
        gc.enable()


def left(world: World) -> int:
    return sum(1 for _ in world.coordinator.group_offsets())


def test_loading_many_offsets_does_not_block_the_loop(world: World) -> None:
    took("the longest turn", longest_turn_s(world), TURN_S_MAX)
    assert left(world) == OFFSETS


def test_expiring_many_offsets_does_not_block_the_loop(world: World) -> None:
    world.timers.pass_time()
    world.coordinator.start()
    world.clock.passed_ms += world.config.offsets_retention_check_interval_ms
    took("the longest turn", longest_turn_s(world), TURN_S_MAX)
    assert left(world) == OFFSETS
    world.clock.passed_ms += WEEK_MS
    took("the longest turn", longest_turn_s(world), TURN_S_MAX)
    assert left(world) == 0
    assert world.coordinator.list_groups() == []


def test_removing_many_offsets_of_deleted_topics_does_not_block_the_loop(world: World) -> None:
    world.timers.pass_time()
    world.delete(*TOPICS)
    took("the longest turn", longest_turn_s(world), TURN_S_MAX)
    assert left(world) == 0


def test_loading_many_offsets_of_deleted_topics_does_not_block_the_loop(world: World) -> None:
    world.bury(*TOPICS)
    took("the longest turn", longest_turn_s(world), TURN_S_MAX)
    assert left(world) == 0


@pytest.mark.parametrize("failing", [None, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_deleting_a_group_with_many_offsets_does_not_block_the_loop(world: World, failing: ErrorCode | None) -> None:
    world.timers.pass_time()
    world.log.failing = failing
    answers: list[ErrorCode] = []
    world.coordinator.delete_group("large", answers.append)
    took("the longest turn", longest_turn_s(world), TURN_S_MAX)
    assert len(answers) == 1
    assert left(world) == (OFFSETS if failing else OFFSETS // 2)
    assert bool(answers[0]) == bool(failing)


def test_an_offset_committed_while_offsets_of_deleted_topics_are_removed_stays(world: World) -> None:
    world.timers.pass_time()
    client = Client(world, "stranger", group_id="large")
    last = list(client.committed())[-1]
    topic, number = last.rsplit("-", 1)
    world.delete(*TOPICS)
    while left(world) == OFFSETS:
        assert world.timers.turn()
    answers = client.commit((topic, int(number), 77))
    longest_turn_s(world)
    assert answers == [[ErrorCode.NONE]]
    assert client.committed() == {last: 77}


def test_an_offset_committed_while_expired_offsets_are_removed_stays(world: World) -> None:
    world.timers.pass_time()
    client = Client(world, "stranger", group_id="large")
    first = next(iter(client.committed()))
    topic, number = first.rsplit("-", 1)
    world.coordinator.start()
    world.clock.passed_ms += WEEK_MS
    assert world.timers.turn()
    assert world.timers.turn()
    answers = client.commit((topic, int(number), 77))
    longest_turn_s(world)
    assert answers == [[ErrorCode.NONE]]
    assert client.committed() == {first: 77}

"""The mark that a reset stores in the metadata of the offsets that it commits, and how long it stays."""

import pytest
from coordinator_world import Client, World, stable

from barnabas_core.errors import ErrorCode
from barnabas_core.group_lag import MARK_LENGTH_MAX, RESET_MARK, reset_ids, reset_mark
from barnabas_core.topic_partition import TopicPartition

MARK = reset_mark("2026-11-a", ())


@pytest.fixture
def world() -> World:
    return World()


def metadata(world: World) -> dict[str, str]:
    return {str(each): found.metadata for each, found in world.coordinator.committed("readers").items()}


def test_a_commit_without_metadata_keeps_the_mark_of_a_reset(world: World) -> None:
    Client(world, "operator").commit(("flights", 0, 10), metadata=MARK)
    world.timers.pass_time()
    consumer = Client(world, "a")
    stable(world, consumer)
    for offset, nothing in ((11, ""), (12, "\0"), (13, consumer.member_id)):
        consumer.commit(("flights", 0, offset), ("flights", 1, offset), metadata=nothing)
        world.timers.pass_time()
    assert consumer.committed() == {"flights-0": 13, "flights-1": 13}
    assert metadata(world) == {"flights-0": MARK, "flights-1": consumer.member_id}


def test_a_mark_survives_a_crash_of_the_coordinator(world: World) -> None:
    Client(world, "operator").commit(("flights", 0, 10), metadata=MARK)
    world.timers.pass_time()
    Client(world, "a").commit(("flights", 0, 11))
    world.timers.pass_time()
    world.crash()
    Client(world, "a").commit(("flights", 0, 12))
    world.timers.pass_time()
    assert metadata(world) == {"flights-0": MARK}


def test_metadata_of_a_consumer_replaces_the_mark_and_is_itself_replaced(world: World) -> None:
    client = Client(world, "a")
    for said, kept in ((MARK, MARK), ("at gate 4", "at gate 4"), ("", ""), (MARK, MARK)):
        client.commit(("flights", 0, 10), metadata=said)
        world.timers.pass_time()
        assert metadata(world) == {"flights-0": kept}


def test_a_mark_is_removed_with_its_offset(world: World) -> None:
    client = Client(world, "a")
    client.commit(("flights", 0, 10), metadata=MARK)
    world.timers.pass_time()
    partitions = [TopicPartition("flights", 0)]
    world.coordinator.delete_offsets("readers", partitions, lambda *_: None)
    world.timers.pass_time()
    client.commit(("flights", 0, 11))
    world.timers.pass_time()
    assert metadata(world) == {"flights-0": ""}


def test_the_offsets_of_one_request_stay_in_one_batch_despite_other_commits(world: World) -> None:
    world.log.holding = True
    others = Client(world, "b", group_id="readers")
    others.commit(*(("planes", number, 1) for number in range(100)), metadata="x" * 4000)
    reset = Client(world, "operator")
    answers = reset.commit(*(("flights", number, 1) for number in range(100)), metadata="y" * 4000)
    world.timers.pass_time()
    assert world.log.batches == 2
    world.log.commit(1)
    assert answers == []
    assert not [each for each in reset.committed() if each.startswith("flights")]
    world.log.commit(1)
    assert answers == [[ErrorCode.NONE] * 100]


def test_a_mark_names_as_many_previous_resets_as_fit() -> None:
    mark = ""
    ids = [f"{number}-{'x' * 60}"[:63] for number in range(6)]
    for each in ids:
        mark = reset_mark(each, reset_ids(mark))
        assert len(mark) <= MARK_LENGTH_MAX
    assert reset_ids(mark) == (ids[5], ids[4], ids[3])
    assert reset_ids(reset_mark("a", ("b", "a", "c"))) == ("a", "b", "c")
    assert reset_ids("at gate 4") == ()
    assert reset_mark("a", ()) == f"{RESET_MARK}a\0"

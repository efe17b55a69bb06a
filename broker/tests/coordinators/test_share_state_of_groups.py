"""The share state of share groups: altered and deleted by hand, and deleted with its group or topic."""

import pytest
from coordinator_world import World
from share_world import GROUP, Worker, alter, delete_group, delete_offsets, group_of

from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition


@pytest.fixture
def world() -> World:
    world = World()
    world.topics.make("jobs", 2)
    return world


@pytest.fixture
def idle(world: World) -> World:
    """A group that has share state, and no members."""
    worker = Worker(world, "a")
    worker.join()
    worker.beat()
    worker.leave()
    return world


def test_offsets_are_altered_in_a_new_state_epoch(idle: World) -> None:
    before = group_of(idle).epoch
    assert alter(idle, {TopicPartition("jobs", 1): 7}) == (ErrorCode.NONE, {})
    assert idle.persister.starts(GROUP) == {0: -1, 1: 7}
    topic_id = idle.topics.known["jobs"].topic_id
    assert [epoch for (_, each), (epoch, _) in idle.persister.stored.items() if each.partition == 1] == [before + 1]
    assert not group_of(idle).topics.initializing
    assert group_of(idle).topics.initialized[topic_id].partitions == {0, 1}


def test_altering_offsets_makes_the_group(world: World) -> None:
    assert alter(world, {TopicPartition("jobs", 0): 7}) == (ErrorCode.NONE, {})
    world.crash()
    worker = Worker(world, "a")
    worker.join()
    worker.beat()
    assert (worker.numbers, world.persister.starts(GROUP)) == ([0, 1], {0: 7, 1: 0})


def test_a_member_that_joins_before_altered_offsets_are_stored_begins_at_them(world: World) -> None:
    world.persister.is_holding = True
    answers: list[ErrorCode] = []
    offsets = {TopicPartition("jobs", 0): 5, TopicPartition("jobs", 1): 7}
    world.coordinator.share.alter_offsets(GROUP, offsets, lambda error, _: answers.append(error))
    worker = Worker(world, "a")
    worker.join()
    world.persister.answer()
    world.timers.pass_time()
    worker.beat()
    assert (answers, worker.numbers, world.persister.starts(GROUP)) == ([ErrorCode.NONE], [0, 1], {0: 5, 1: 7})


def test_partitions_that_cannot_be_altered_are_named(idle: World) -> None:
    idle.persister.failing = {1: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    gone, later, below = TopicPartition("gone", 0), TopicPartition("jobs", 2), TopicPartition("jobs", -1)
    wrong, jobs_0, jobs_1 = TopicPartition("jobs", 0), TopicPartition("jobs", 0), TopicPartition("jobs", 1)
    assert alter(idle, {gone: 1, later: 1, below: 1, jobs_0: 1, jobs_1: 1}) == (
        ErrorCode.NONE,
        {
            **dict.fromkeys((gone, later, below), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            jobs_1: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        },
    )
    assert alter(idle, {wrong: -5}) == (ErrorCode.NONE, {wrong: ErrorCode.INVALID_REQUEST})


def test_a_group_with_members_keeps_its_share_state(world: World) -> None:
    worker = Worker(world, "a")
    worker.join()
    assert alter(world, {TopicPartition("jobs", 0): 7}) == (ErrorCode.NON_EMPTY_GROUP, {})
    assert delete_offsets(world, "jobs") == (ErrorCode.NON_EMPTY_GROUP, {})
    assert delete_group(world) is ErrorCode.NON_EMPTY_GROUP
    assert len(world.persister.stored) == 2


def test_offsets_of_a_topic_are_deleted_at_the_share_coordinators_and_then_forgotten(idle: World) -> None:
    assert delete_offsets(idle, "jobs", "gone") == (
        ErrorCode.NONE,
        {"jobs": ErrorCode.NONE, "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    )
    assert (idle.persister.stored, group_of(idle).topics) == ({}, ({}, {}, {}))
    assert delete_offsets(idle, "jobs")[1] == {"jobs": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    worker = Worker(idle, "b")
    worker.join()
    worker.beat()
    assert (worker.numbers, idle.persister.starts(GROUP)) == ([0, 1], {0: -1, 1: -1})


def test_offsets_that_could_not_be_deleted_are_deleted_by_the_next_request(idle: World) -> None:
    idle.persister.failing = {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert delete_offsets(idle, "jobs")[1] == {"jobs": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert list(group_of(idle).topics.deleting.values()) == ["jobs"]
    idle.persister.failing = {}
    idle.crash()
    assert delete_offsets(idle, "jobs")[1] == {"jobs": ErrorCode.NONE}
    assert (idle.persister.stored, group_of(idle).topics) == ({}, ({}, {}, {}))


def test_offsets_of_an_unknown_group_cannot_be_deleted(world: World) -> None:
    assert delete_offsets(world, "jobs") == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert delete_group(world) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_deleted_after_its_share_state(idle: World) -> None:
    idle.persister.is_holding = True
    answers: list[ErrorCode] = []
    idle.coordinator.delete_group(GROUP, answers.append)
    idle.timers.pass_time()
    assert not answers
    reply = Worker(idle, "b").join()
    assert reply.error is ErrorCode.COORDINATOR_NOT_AVAILABLE, "a member would get partitions without state"
    idle.persister.answer()
    idle.timers.pass_time()
    assert (answers, idle.persister.stored) == ([ErrorCode.NONE], {})
    idle.crash()
    with pytest.raises(ApiError, match="not found"):
        group_of(idle)


def test_a_group_whose_share_state_cannot_be_deleted_stays_and_is_deleted_by_the_next_request(idle: World) -> None:
    idle.persister.failing = {1: ErrorCode.NOT_COORDINATOR}
    assert delete_group(idle) is ErrorCode.NOT_COORDINATOR
    idle.persister.failing = {}
    idle.crash()
    assert delete_group(idle) is ErrorCode.NONE
    assert not idle.persister.stored


def test_share_state_is_not_deleted_while_some_is_being_initialized(world: World) -> None:
    world.persister.is_holding = True
    worker = Worker(world, "a")
    worker.join()
    worker.leave()
    assert delete_group(world) is ErrorCode.COORDINATOR_NOT_AVAILABLE, "the state might come after its deletion"
    world.persister.answer()
    world.persister.is_holding = False
    assert delete_group(world) is ErrorCode.NONE
    assert not world.persister.stored


def test_deleted_topics_are_forgotten(idle: World) -> None:
    topic_id = idle.topics.known["jobs"].topic_id
    idle.topics.delete("jobs")
    idle.delete(("jobs", topic_id))
    idle.timers.pass_time()
    assert group_of(idle).topics == ({}, {}, {})


def test_topics_that_were_deleted_while_nobody_coordinated_the_group_are_forgotten(idle: World) -> None:
    topic_id = idle.topics.known["jobs"].topic_id
    idle.topics.delete("jobs")
    idle.bury(("jobs", topic_id))
    idle.crash()
    assert group_of(idle).topics == ({}, {}, {})

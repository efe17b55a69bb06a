"""Share groups by ShareGroupHeartbeat (KIP-932): members join, share partitions, go on, are fenced and leave."""

from typing import Any

import pytest
from coordinator_world import Client, World
from msgspec.structs import replace
from share_world import GROUP, Worker, group_of

from barnabas_broker.coordinators.modern.group import ModernState
from barnabas_core.errors import ApiError, ErrorCode

SESSION_S = 45


@pytest.fixture
def world() -> World:
    world = World()
    world.topics.make("jobs", 3)
    return world


def test_the_first_member_gets_partitions_once_their_share_state_is_initialized(world: World) -> None:
    worker = Worker(world, "a")
    first = worker.join()
    assert (first.error, first.epoch, first.heartbeat_interval_ms, first.assignment) == (ErrorCode.NONE, 2, 5000, {})
    assert world.persister.starts(GROUP) == {0: -1, 1: -1, 2: -1}
    second = worker.beat()
    assert (second.epoch, worker.numbers) == (3, [0, 1, 2])
    assert worker.beat().assignment is None, "an assignment is sent once"


def test_members_share_the_partitions_of_a_topic(world: World) -> None:
    workers = [Worker(world, name) for name in "abcdef"]
    for worker in workers:
        worker.join()
    for worker in workers:
        worker.beat()
    assert sorted(number for worker in workers for number in worker.numbers) == [0, 0, 1, 1, 2, 2]
    assert group_of(world).state is ModernState.STABLE
    workers[0].leave()
    for worker in workers[1:]:
        worker.beat()
    assert {number for worker in workers[1:] for number in worker.numbers} == {0, 1, 2}


def test_a_member_has_its_new_epoch_at_its_next_heartbeat_without_a_revocation(world: World) -> None:
    a, b = Worker(world, "a"), Worker(world, "b")
    a.join()
    a.beat()
    b.join()
    before = a.epoch
    reply = a.beat()
    assert (reply.epoch, len(a.numbers), len(b.numbers)) == (before + 1, 2, 1)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"epoch": 3}, ErrorCode.NONE),
        ({"epoch": 2}, ErrorCode.NONE),  # The last answer was lost.
        ({"epoch": 1}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"epoch": 4}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"epoch": 0, "topic_names": ["jobs"]}, ErrorCode.NONE),
        ({"epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "topic_names": []}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -1}, ErrorCode.NONE),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x" * 37}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "b"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "b", "epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": "other"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"topic_names": ["t" * 250] * 2200}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_heartbeat_of_a_member_with_epoch_3(world: World, changes: dict[str, Any], error: ErrorCode) -> None:
    worker = Worker(world, "a")
    worker.join()
    worker.beat()
    assert worker.epoch == 3
    reply = worker.send(**changes)
    assert reply is not None
    assert reply.error is error, reply


def test_a_full_group_takes_known_members_only(world: World) -> None:
    world.share_settings = replace(world.share_settings, max_size=1)
    a, b = Worker(world, "a"), Worker(world, "b")
    a.join()
    assert b.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.join().error is ErrorCode.NONE


def test_a_member_without_heartbeats_is_fenced_and_its_partitions_go_to_others(world: World) -> None:
    a, b = Worker(world, "a"), Worker(world, "b")
    for worker in (a, b, a, b):
        worker.beat() if worker.epoch else worker.join()
    world.timers.pass_time(SESSION_S - 1)
    b.beat()
    world.timers.pass_time(2)
    assert a.send() is not None
    assert a.replies[-1].error is ErrorCode.UNKNOWN_MEMBER_ID
    b.beat()
    assert b.numbers == [0, 1, 2]


def test_a_group_without_members_stays_with_equal_epochs(world: World) -> None:
    worker = Worker(world, "a")
    worker.join()
    worker.leave()
    group = group_of(world)
    assert (group.state, group.epoch, group.assignment_epoch) == (ModernState.EMPTY, 3, 3)
    world.timers.pass_time(8 * 24 * 3600)
    assert group_of(world) is group, "as in Kafka it never expires"
    assert Worker(world, "b").join().epoch == 4


def test_another_coordinator_loads_the_group_and_its_share_state(world: World) -> None:
    worker = Worker(world, "a")
    worker.join()
    worker.beat()
    world.crash()
    assert worker.beat().error is ErrorCode.NONE
    assert worker.beat(topic_names=worker.topics).assignment is not None
    assert (worker.epoch, worker.numbers) == (3, [0, 1, 2])
    assert group_of(world).topics.initialized[world.topics.known["jobs"].topic_id].partitions == {0, 1, 2}


def test_a_topic_that_comes_or_goes_or_grows_changes_the_assignment(world: World) -> None:
    worker = Worker(world, "a", ("jobs", "later"))
    worker.join()
    worker.beat()
    world.topics.make("later", 1)
    worker.beat()
    worker.beat()
    assert worker.numbers == [0, 0, 1, 2]
    world.topics.make("jobs", 4)
    worker.beat()
    worker.beat()
    assert worker.numbers == [0, 0, 1, 2, 3]
    world.topics.delete("jobs")
    worker.beat()
    assert worker.numbers == [0]


def test_new_partitions_of_a_known_topic_begin_at_offset_0(world: World) -> None:
    worker = Worker(world, "a")
    worker.join()
    world.topics.make("jobs", 5)
    worker.beat()
    assert world.persister.starts(GROUP) == {0: -1, 1: -1, 2: -1, 3: 0, 4: 0}


def test_partitions_that_come_while_a_topic_is_first_initialized_begin_at_offset_0(world: World) -> None:
    world.persister.is_holding = True
    worker = Worker(world, "a")
    worker.join()
    world.topics.make("jobs", 4)
    world.crash()
    worker.join()
    world.persister.answer()
    assert world.persister.starts(GROUP) == {0: -1, 1: -1, 2: -1, 3: 0}


def test_a_topic_whose_state_cannot_be_initialized_is_initialized_at_the_next_heartbeat(world: World) -> None:
    world.persister.failing = {1: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    worker = Worker(world, "a")
    worker.join()
    worker.beat()
    assert worker.numbers == [], "the topic is initialized as a whole"
    world.persister.failing = {}
    worker.beat()
    worker.beat()
    assert (worker.numbers, world.persister.starts(GROUP)) == ([0, 1, 2], {0: -1, 1: -1, 2: -1})


def test_a_partition_is_not_initialized_in_a_later_epoch_before_its_share_coordinator_answers(world: World) -> None:
    world.persister.is_holding = True
    worker, other = Worker(world, "a"), Worker(world, "b")
    worker.join()
    first = group_of(world).epoch
    world.timers.pass_time(40)
    other.join()
    worker.beat()
    assert group_of(world).epoch > first
    world.persister.answer()
    worker.beat()
    other.beat()
    assert sorted(worker.numbers + other.numbers) == [0, 1, 2]
    assert (world.persister.held, {epoch for epoch, _ in world.persister.stored.values()}) == ([], {first}), (
        "an initialization that comes later deletes what members have acknowledged"
    )


def test_partitions_whose_record_could_not_be_written_are_initialized_at_the_next_heartbeat(world: World) -> None:
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    worker = Worker(world, "a")
    assert worker.join().error is not ErrorCode.NONE
    world.log.failing = None
    worker.join()
    worker.beat()
    assert (worker.numbers, world.persister.starts(GROUP)) == ([0, 1, 2], {0: -1, 1: -1, 2: -1})


def test_an_answer_to_a_coordinator_that_has_lost_the_group_is_ignored(world: World) -> None:
    world.persister.is_holding = True
    Worker(world, "a").join()
    world.crash()
    world.persister.answer()
    assert not group_of(world).topics.initialized


def test_one_id_has_one_group_of_one_type(world: World) -> None:
    Worker(world, "a").join()
    client = Client(world, "c", group_id=GROUP).join()
    assert client.joined[-1].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    with pytest.raises(ApiError, match="is not a consumer group"):
        world.coordinator.committed(GROUP)
    with pytest.raises(ApiError):
        world.coordinator.describe(GROUP)
    Client(world, "c", group_id="classic").join()
    reply = Worker(world, "b").join(group_id="classic")
    assert (reply.error, reply.message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group classic is not a share group.")
    assert [(each.group_id, each.group_type) for each in world.coordinator.list_groups()] == [
        ("classic", "classic"),
        (GROUP, "share"),
    ]


def test_a_heartbeat_is_answered_once_its_records_are_committed(world: World) -> None:
    world.log.holding = True
    worker = Worker(world, "a")
    assert worker.send(topic_names=worker.topics) is None
    assert not world.persister.stored, "share state is initialized after the record that says so"
    world.log.commit()
    assert worker.replies[-1].error is ErrorCode.NONE
    assert world.persister.stored

"""Offsets of consumer groups of KIP-848: whose commits count, what is removed, and what other APIs say about groups."""

from typing import Any
from uuid import UUID

import pytest
from consumer_world import GROUP, Consumer, group_of, settle
from coordinator_world import World
from msgspec.structs import replace

from barnabas_broker.coordinators.groups.messages import CommitRequest, CommittedOffset
from barnabas_broker.metadata.model import TombstoneDocument
from barnabas_broker.wire.key_values import Marker, ProducerEpoch
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

DAY_S = 24 * 3600


@pytest.fixture
def world() -> World:
    world = World()
    world.topics.make("flights", 6)
    return world


def commit(
    world: World,
    member_id: str = "a",
    epoch: int = 2,
    *numbers: int,
    version: int = 9,
    producer: ProducerEpoch | None = None,
    topic: str = "flights",
) -> set[ErrorCode]:
    """Commit offset 5 of partitions; return the errors."""
    topic_id = UUID(bytes=topic.encode().ljust(16, b"-"))
    offsets = [(TopicPartition(topic, number), CommittedOffset(5, topic_id=topic_id)) for number in numbers or (0,)]
    answers: list[Any] = []
    request = CommitRequest(GROUP, member_id, None, epoch, version, offsets, producer)
    world.coordinator.commit(request, answers.append)
    world.timers.pass_time()
    return set(answers[0])


def committed(world: World) -> set[str]:
    return {f"{topic}-{number}" for topic, number in world.coordinator.committed(GROUP)}


def test_member_commits_with_its_epoch(world: World) -> None:
    Consumer(world, "a").join()
    assert commit(world) == {ErrorCode.NONE}
    assert commit(world, epoch=3) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(world, "stranger") == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit(world, "", -1) == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_earlier_epoch_counts_for_partitions_that_the_member_has_had_since(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    settle(first, second)
    assert (first.epoch, first.numbers) == (3, [0, 1, 2])
    assert commit(world, "a", 2, 0, 1) == {ErrorCode.NONE}
    # One partition that it has lost makes the whole request stale.
    assert commit(world, "a", 2, 0, 4) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(world, "b", 2, 3) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(world, "b", 3, 3) == {ErrorCode.NONE}


def test_partitions_that_are_being_revoked_may_still_be_committed(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    first.beat()
    assert group_of(world).members["a"].current.revoking
    assert commit(world, "a", 2, 0, 5) == {ErrorCode.NONE}


def test_fenced_member_commits_nothing(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    member.leave()
    assert commit(world) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert committed(world) == set()


def test_clients_outside_the_group_commit_only_while_it_is_empty(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    member.leave()
    assert commit(world, "", -1) == {ErrorCode.NONE}
    member.join()
    assert commit(world, "", -1) == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_versions_without_member_epochs_are_refused(world: World) -> None:
    Consumer(world, "a").join()
    assert commit(world, version=8) == {ErrorCode.UNSUPPORTED_VERSION}


def test_transactional_commit_is_checked_if_it_names_a_member(world: World) -> None:
    Consumer(world, "a").join()
    producer = ProducerEpoch(7, 0)
    assert commit(world, "", -1, version=5, producer=producer) == {ErrorCode.NONE}
    assert commit(world, "a", 2, version=5, producer=producer) == {ErrorCode.NONE}
    assert commit(world, "a", 1, version=5, producer=producer) == {ErrorCode.ILLEGAL_GENERATION}
    assert commit(world, "a", 1, version=6, producer=producer) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert commit(world, "b", 1, version=6, producer=producer) == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_offsets_of_a_transaction_count_with_its_commit(world: World) -> None:
    Consumer(world, "a").join()
    producer = ProducerEpoch(7, 0)
    commit(world, "a", 2, version=6, producer=producer)
    assert committed(world) == set()
    world.coordinator.end_transaction(0, Marker(7, 0, 0, is_commit=True), 2, lambda _: None)
    world.timers.pass_time()
    assert committed(world) == {"flights-0"}


def test_commit_to_an_unknown_group_names_an_error_that_the_version_knows(world: World) -> None:
    producer = ProducerEpoch(7, 0)
    assert commit(world, "a", 2) == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert commit(world, "a", 2, version=8) == {ErrorCode.ILLEGAL_GENERATION}
    assert commit(world, "a", 2, version=5, producer=producer) == {ErrorCode.ILLEGAL_GENERATION}
    assert commit(world, "a", 2, version=6, producer=producer) == {ErrorCode.GROUP_ID_NOT_FOUND}


def test_offsets_are_read_with_the_current_epoch_or_without_a_member(world: World) -> None:
    Consumer(world, "a").join()
    commit(world)
    assert len(world.coordinator.committed(GROUP)) == 1
    assert len(world.coordinator.committed(GROUP, "a", 2)) == 1
    for member_id, epoch, error in (
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(ApiError) as raised:
            world.coordinator.committed(GROUP, member_id, epoch)
        assert raised.value.code is error


def test_offsets_outlive_their_coordinator(world: World) -> None:
    Consumer(world, "a").join()
    commit(world)
    world.crash()
    assert committed(world) == {"flights-0"}
    assert [group.group_type for group in world.coordinator.list_groups()] == ["consumer"]


def test_offsets_of_subscribed_topics_are_not_deleted(world: World) -> None:
    Consumer(world, "a").join()
    commit(world, topic="flights")
    commit(world, topic="planes")
    answers: list[Any] = []
    partitions = [TopicPartition("flights", 0), TopicPartition("planes", 0)]
    world.coordinator.delete_offsets(GROUP, partitions, lambda *each: answers.append(each))
    world.timers.pass_time()
    assert answers == [(ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE])]


def test_group_with_members_is_not_deleted(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    commit(world)
    answers: list[ErrorCode] = []
    world.coordinator.delete_group(GROUP, answers.append)
    member.leave()
    world.coordinator.delete_group(GROUP, answers.append)
    world.timers.pass_time()
    assert answers == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE]
    world.crash()
    assert (world.coordinator.list_groups(), committed(world)) == ([], set())


def test_offsets_of_topics_without_subscribers_expire_while_the_group_lives(world: World) -> None:
    world.consumer_settings = replace(world.consumer_settings, session_timeout_ms=30 * DAY_S * 1000)
    world.coordinator.start()
    Consumer(world, "a").join()
    commit(world, topic="flights")
    commit(world, topic="planes")
    world.timers.pass_time(8 * DAY_S)
    assert committed(world) == {"flights-0"}


def test_group_without_members_goes_with_its_last_offset(world: World) -> None:
    world.coordinator.start()
    member = Consumer(world, "a")
    member.join()
    commit(world)
    member.leave()
    world.timers.pass_time(6 * DAY_S)
    assert [group.state.value for group in world.coordinator.list_groups()] == ["Empty"]
    world.timers.pass_time(2 * DAY_S)
    assert world.coordinator.list_groups() == []
    world.crash()
    assert (world.coordinator.list_groups(), committed(world)) == ([], set())


def test_offsets_of_deleted_topics_are_removed(world: World) -> None:
    Consumer(world, "a").join()
    commit(world)
    topic_id = world.topics.known["flights"].topic_id
    world.coordinator.on_topics_deleted({topic_id: TombstoneDocument("flights", topic_id, 0)})
    world.timers.pass_time()
    assert committed(world) == set()


def test_groups_are_counted_by_type_and_state(world: World) -> None:
    Consumer(world, "a").join()
    assert list(world.coordinator.group_counts()) == [("consumer", "Stable")]
    assert list(world.coordinator.member_counts()) == [(GROUP, 1)]

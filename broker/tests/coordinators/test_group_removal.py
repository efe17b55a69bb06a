"""Groups and offsets are removed: by clients, when they expire, or with their topics."""

import logging
from typing import Any
from uuid import UUID

import pytest
from coordinator_world import Client, World, stable

from barnabas_broker.coordinators.groups.messages import decode_key
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

DAY_S = 24 * 3_600
FLIGHTS_0 = TopicPartition("flights", 0)
OLD_WEATHER, NEW_WEATHER = UUID(int=1), UUID(int=2)


@pytest.fixture
def world() -> World:
    return World()


# Removal


def test_a_group_is_deleted_with_its_offsets_only_if_it_has_no_members(world: World) -> None:
    client = Client(world, "a")
    answers: list[Any] = []
    stable(world, client)
    client.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.coordinator.delete_group("readers", answers.append)
    client.leave()
    world.coordinator.delete_group("readers", answers.append)
    world.timers.pass_time()
    world.coordinator.delete_group("readers", answers.append)
    assert answers == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert world.coordinator.list_groups() == []
    world.crash()
    assert world.coordinator.list_groups() == []
    assert client.committed() == {}


def test_a_group_that_is_being_deleted_accepts_no_members_and_no_commits(world: World) -> None:
    client = Client(world, "a")
    answers: list[Any] = []
    world.log.holding = True
    before = client.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.log.commit()
    during = client.commit(("flights", 1, 1))
    world.timers.pass_time()
    world.coordinator.delete_group("readers", answers.append)
    assert client.commit(("flights", 2, 1)) == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]]
    assert client.join().joined[-1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.commit()
    world.timers.pass_time()
    world.log.commit()
    assert (before, during, answers) == ([[ErrorCode.NONE]], [[ErrorCode.NONE]], [ErrorCode.NONE])
    world.crash()
    assert client.committed() == {}


def test_a_group_deletion_that_cannot_be_stored_is_reverted(world: World) -> None:
    client = Client(world, "a")
    answers: list[Any] = []
    client.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    world.coordinator.delete_group("readers", answers.append)
    world.timers.pass_time()
    world.log.failing = None
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert client.committed() == {"flights-0": 1}
    assert client.join().joined[-1].error is ErrorCode.NONE


def delete_offsets(world: World, *partitions: TopicPartition) -> tuple[ErrorCode, list[ErrorCode]]:
    answers: list[tuple[ErrorCode, list[ErrorCode]]] = []
    world.coordinator.delete_offsets("readers", partitions, lambda error, each: answers.append((error, each)))
    world.timers.pass_time()
    return answers[0]


def test_offsets_of_a_topic_that_the_group_subscribes_to_cannot_be_deleted(world: World) -> None:
    client = Client(world, "a")
    assert delete_offsets(world, FLIGHTS_0) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    stable(world, client)
    client.commit(("flights", 0, 1), ("weather", 0, 1))
    world.timers.pass_time()
    weather = TopicPartition("weather", 0)
    outcome = delete_offsets(world, FLIGHTS_0, weather, TopicPartition("weather", 9))
    assert outcome == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE])
    assert client.committed() == {"flights-0": 1}
    client.leave()
    assert delete_offsets(world, FLIGHTS_0) == (ErrorCode.NONE, [ErrorCode.NONE])
    world.crash()
    assert client.committed() == {}


def test_offsets_of_a_group_with_unknown_subscriptions_cannot_be_deleted(world: World) -> None:
    Client(world, "a").join(protocol_type="connect")
    assert delete_offsets(world, FLIGHTS_0) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_a_deletion_of_offsets_also_removes_those_being_committed(world: World) -> None:
    client = Client(world, "a")
    answers: list[Any] = []
    client.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.log.holding = True
    client.commit(("flights", 1, 1))
    world.timers.pass_time()
    partitions = [TopicPartition("flights", 1)]
    world.coordinator.delete_offsets("readers", partitions, lambda error, each: answers.append(each))
    world.timers.pass_time()
    world.log.commit()
    assert answers == [[ErrorCode.NONE]]
    assert client.committed() == {"flights-0": 1}


def test_offsets_of_a_deleted_topic_are_removed_from_all_groups(world: World) -> None:
    client, other = Client(world, "a"), Client(world, "b", group_id="others")
    client.commit(("flights", 0, 1))
    client.commit(("weather", 0, 1), topic_id=OLD_WEATHER)
    other.commit(("weather", 1, 1))
    world.timers.pass_time()
    world.delete(("weather", OLD_WEATHER))
    world.timers.pass_time()
    assert (client.committed(), other.committed()) == ({"flights-0": 1}, {})
    world.crash()
    assert (client.committed(), other.committed()) == ({"flights-0": 1}, {})


def test_a_pending_commit_for_a_recreated_topic_survives_the_removal_of_old_offsets(world: World) -> None:
    client = Client(world, "a")
    client.commit(("weather", 0, 1), ("weather", 1, 1), topic_id=OLD_WEATHER)
    world.timers.pass_time()
    world.log.holding = True
    world.bury(("weather", OLD_WEATHER))
    world.timers.pass_time(1)
    client.commit(("weather", 0, 7), topic_id=NEW_WEATHER)
    answers = client.commit(("weather", 2, 8), expire_timestamp_ms=2**62, topic_id=None)
    world.timers.pass_time()
    world.coordinator.on_topics_deleted(dict(world.tombstones))
    world.timers.pass_time()
    world.log.commit()
    world.timers.pass_time()
    world.log.commit()
    assert answers == [[ErrorCode.NONE]]
    assert client.committed() == {"weather-0": 7, "weather-2": 8}


# Expiry (KIP-211)


def test_offsets_of_a_group_without_members_expire_a_week_after_the_commit(world: World) -> None:
    world.coordinator.start()
    client = Client(world, "a")
    client.commit(("flights", 0, 1))
    world.timers.pass_time(7 * DAY_S - 0.001)
    assert client.committed() == {"flights-0": 1}
    world.timers.pass_time(600)
    assert client.committed() == {}
    assert world.coordinator.list_groups() == []
    assert world.coordinator.counters.offset_expirations == 1
    assert world.coordinator.counters.offset_deletions == 0, "expired offsets are not counted as deleted ones"
    keys = [decode_key(key) for key, value in world.log.committed(0) if value is None]
    assert len(keys) == 2


def test_offsets_of_an_empty_group_expire_a_week_after_it_became_empty(world: World) -> None:
    world.coordinator.start()
    client = Client(world, "a")
    stable(world, client)
    client.commit(("flights", 0, 1))
    world.timers.pass_time(5)
    client.leave()
    world.timers.pass_time(7 * DAY_S - 600)
    assert client.committed() == {"flights-0": 1}
    world.timers.pass_time(2 * 600)
    assert client.committed() == {}


def test_offsets_of_topics_without_a_subscription_expire_while_the_group_is_active(world: World) -> None:
    world.coordinator.start()
    client = Client(world, "a").join(session_timeout_ms=1_800_000)
    client.sync(**{client.member_id: "a"}).commit(("flights", 0, 1), ("weather", 0, 1))
    for _ in range(8 * 48):
        world.timers.pass_time(DAY_S / 48 - 1)
        client.heartbeat()
    world.timers.pass_time(600)
    assert client.committed() == {"flights-0": 1}


def test_an_expiry_that_the_client_requested_overrides_the_retention(world: World) -> None:
    client = Client(world, "a")
    client.commit(("flights", 0, 1), expire_timestamp_ms=world.clock.now_ms() + 60_000)
    client.commit(("flights", 1, 1))
    world.timers.pass_time(60)
    world.crash()
    world.coordinator.start()
    world.timers.pass_time(600)
    assert client.committed() == {"flights-1": 1}


def test_a_pending_commit_is_not_removed_when_the_old_offset_expires(world: World) -> None:
    client = Client(world, "a")
    client.commit(("flights", 0, 1))
    world.timers.pass_time(8 * DAY_S)
    world.coordinator.start()
    world.timers.pass_time(599)
    world.log.holding = True
    client.commit(("flights", 0, 2))
    world.timers.pass_time(1)
    world.log.commit()
    assert client.committed() == {"flights-0": 2}


def test_a_warning_is_logged_once_a_day_before_offsets_expire(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.coordinator.start()
    Client(world, "a").commit(("flights", 0, 1))
    with caplog.at_level(logging.WARNING):
        world.timers.pass_time(6 * DAY_S - 600)
        assert caplog.messages == []
        world.timers.pass_time(DAY_S / 2)
    expected = (
        "group readers: 1 committed offsets will expire, the first in 1440 minutes, unless a member commits or joins"
    )
    assert caplog.messages == [expected]

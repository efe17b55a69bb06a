"""The state of a new coordinator, and its responses until it has loaded that state."""

import logging
from typing import Any
from uuid import UUID

import pytest
from coordinator_world import Client, World, stable

from barnabas_core.errors import ApiError, ErrorCode


@pytest.fixture
def world() -> World:
    return World()


# Changes of leadership


def test_an_uncommitted_offset_is_returned_only_if_it_survives_an_election(world: World) -> None:
    client = Client(world, "a")
    world.log.holding = True
    first = client.commit(("flights", 0, 1))
    world.timers.pass_time()
    second = client.commit(("flights", 0, 2))
    world.timers.pass_time()
    assert client.committed() == {}
    world.resign(survivors=1)
    assert (first, second) == ([[ErrorCode.NOT_COORDINATOR]], [[ErrorCode.NOT_COORDINATOR]])
    world.log.holding = False
    world.elect()
    assert client.committed() == {"flights-0": 1}


def test_groups_are_loading_until_the_whole_log_is_committed(world: World) -> None:
    client = Client(world, "a")
    world.log.holding = True
    client.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.crash(survivors=1)
    world.timers.pass_time(60)
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        client.committed()
    world.log.commit()
    world.timers.pass_time()
    assert client.committed() == {"flights-0": 1}


def test_sessions_begin_when_loading_ends(world: World) -> None:
    client, stranger = Client(world, "a"), Client(world, "s", group_id="others")
    stable(world, client)
    world.log.holding = True
    stranger.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.crash(survivors=1)
    world.timers.pass_time(60)
    world.log.commit()
    world.timers.pass_time(9.999)
    assert client.heartbeat() is ErrorCode.NONE
    world.timers.pass_time(10)
    assert client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_log_is_loaded_again_only_by_an_election_with_a_later_epoch(world: World) -> None:
    leader, newcomer = Client(world, "a"), Client(world, "b")
    stable(world, leader)
    newcomer.join()
    world.coordinator.runtime.elect(0, world.leader_epoch)
    assert newcomer.joined == []
    world.elect()
    assert newcomer.joined[-1].error is ErrorCode.NOT_COORDINATOR
    assert leader.heartbeat() is ErrorCode.NONE


def test_the_log_is_loaded_again_after_a_write_with_an_unknown_outcome(world: World) -> None:
    client = Client(world, "a")
    world.log.holding = True
    answers = client.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.log.fail(ErrorCode.KAFKA_STORAGE_ERROR, survivors=1)
    assert answers == [[ErrorCode.NOT_COORDINATOR]]
    world.log.holding = False
    world.timers.pass_time()
    assert client.committed() == {"flights-0": 1}


def test_a_group_accepts_no_members_until_its_delayed_deletion_is_decided(world: World) -> None:
    client = Client(world, "a")
    answers: list[Any] = []
    client.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.log.holding = True
    world.coordinator.delete_group("readers", answers.append)
    world.timers.pass_time(5)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert client.join().joined[-1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.holding = False
    world.log.commit()
    assert client.join().joined[-1].error is ErrorCode.NONE
    assert client.committed() == {}


def test_a_group_deletion_times_out_while_earlier_commits_are_stuck(world: World) -> None:
    client = Client(world, "a")
    answers: list[Any] = []
    client.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.log.holding = True
    client.commit(("flights", 1, 1))
    world.timers.pass_time()
    world.coordinator.delete_group("readers", answers.append)
    world.timers.pass_time(5)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.log.commit()
    assert (client.committed(), world.coordinator.list_groups()) == ({}, [])


def test_offsets_of_a_topic_deleted_during_a_failover_are_removed(world: World) -> None:
    client = Client(world, "a")
    client.commit(("flights", 0, 1), ("weather", 0, 1))
    world.timers.pass_time()
    world.bury(("weather", UUID(int=1)))
    world.crash()
    assert client.committed() == {"flights-0": 1}


def test_offsets_of_a_topic_stay_when_they_are_loaded_although_an_earlier_topic_of_its_name_was_deleted(
    world: World,
) -> None:
    """The topic itself may be missing in the metadata: `restore-metadata` brings it back."""
    client = Client(world, "a")
    world.bury(("weather", UUID(int=1)))
    world.timers.pass_time(1)
    client.commit(("weather", 0, 1))
    world.timers.pass_time()
    world.crash()
    assert client.committed() == {"weather-0": 1}


def test_a_group_backs_off_while_its_assignments_cannot_be_stored(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The client behaves like librdkafka: it joins again immediately after a failed sync."""
    caplog.set_level(logging.INFO)
    client = Client(world, "a").join()
    world.timers.pass_time(5)
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    started_ms, appends_before = world.clock.passed_ms, world.log.batches
    caplog.clear()
    while world.clock.passed_ms < started_ms + 60_000:
        joins = len(client.joined)
        client.sync(**{client.member_id: "part"})
        assert client.synced[-1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        client.join()
        assert world.log.batches - appends_before <= 20
        while len(client.joined) == joins:
            world.timers.pass_time(0.01)
    assert world.log.batches - appends_before >= 10
    assert len([line for line in caplog.records if line.name.startswith("barnabas")]) == 1
    world.log.failing = None
    client.sync(**{client.member_id: "part"})
    assert client.synced[-1].assignment == b"part"
    assert "is stable, after" in caplog.records[-1].message


def test_a_broker_that_may_have_a_successor_responds_with_not_coordinator(world: World) -> None:
    client = Client(world, "a")
    client.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.is_awake = False
    assert client.heartbeat() is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        client.committed()

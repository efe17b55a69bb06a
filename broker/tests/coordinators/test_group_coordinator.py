"""F40, F41, F46-F49: the coordinator over a simulated log and clock."""

import pytest
from coordinator_world import Client, World, stable
from group_script import AT_ONCE, subscription
from msgspec.structs import replace

from barnabas_broker.coordinators.groups import rebalance
from barnabas_broker.coordinators.groups.group import GroupState
from barnabas_broker.coordinators.groups.messages import CommittedOffset
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition


@pytest.fixture
def world() -> World:
    return World()


# Commits


def test_commits_of_one_turn_share_a_batch_and_wait_for_its_commit(world: World) -> None:
    world.log.holding = True
    clients = [Client(world, name, group_id=name) for name in ("a", "b", "c")]
    answers = [client.commit(("flights", 0, 10), ("flights", 1, 20)) for client in clients]
    world.timers.pass_time()
    assert world.log.batches == 1
    assert answers == [[], [], []]
    assert clients[0].committed() == {}
    world.log.commit()
    assert answers == [[[ErrorCode.NONE, ErrorCode.NONE]]] * 3
    assert clients[0].committed() == {"flights-0": 10, "flights-1": 20}


def test_a_commit_that_times_out_fails_but_takes_effect_once_it_is_committed(world: World) -> None:
    world.log.holding = True
    client = Client(world, "a")
    answers = client.commit(("flights", 0, 10))
    world.timers.pass_time(4.999)
    assert answers == []
    world.timers.pass_time(0.001)
    assert answers == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]]
    world.log.commit()
    assert answers == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]]
    assert client.committed() == {"flights-0": 10}


@pytest.mark.parametrize(
    ("of_the_log", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_of_the_log_becomes_an_error_of_the_coordinator(
    world: World, of_the_log: ErrorCode, answer: ErrorCode
) -> None:
    world.log.failing = of_the_log
    client = Client(world, "a")
    answers = client.commit(("flights", 0, 10))
    world.timers.pass_time()
    assert answers == [[answer]]
    assert client.committed() == {}


def test_metadata_that_is_too_long_is_refused_for_its_partition_only(world: World) -> None:
    client = Client(world, "a")
    lengths = ((0, 4097), (1, 4096))
    answers = client.commit_all(
        [(TopicPartition("flights", number), CommittedOffset(10, metadata="x" * length)) for number, length in lengths]
    )
    world.timers.pass_time()
    assert answers == [[ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]]
    assert client.committed() == {"flights-1": 10}


def test_a_commit_too_large_for_a_batch_is_split_and_gets_one_response(world: World) -> None:
    client = Client(world, "a")
    answers = client.commit(*(("flights", partition, partition) for partition in range(500)), metadata="x" * 4000)
    world.timers.pass_time()
    assert world.log.batches == 4
    assert answers == [[ErrorCode.NONE] * 500]
    assert len(client.committed()) == 500


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_does_not_exist_cannot_commit(world: World, version: int, error: ErrorCode) -> None:
    client = Client(world, "a")
    client.member_id, client.generation = "a-1", 5
    assert client.commit(("flights", 0, 1), api_version=version) == [[error]]


# Crashes, resignations and loading


def test_members_and_offsets_survive_a_crash(world: World) -> None:
    first, second = Client(world, "a"), Client(world, "b")
    stable(world, first, second)
    first.commit(("flights", 0, 42))
    world.timers.pass_time()
    world.crash()
    assert first.committed() == {"flights-0": 42}
    assert [first.heartbeat(), second.heartbeat()] == [ErrorCode.NONE, ErrorCode.NONE]
    assert second.sync().synced[-1].assignment == b"b"
    assert world.coordinator.describe("readers").state is GroupState.STABLE


def test_waiting_requests_fail_with_not_coordinator_when_the_broker_resigns(world: World) -> None:
    leader, follower, newcomer = Client(world, "a"), Client(world, "b"), Client(world, "c")
    stable(world, leader, follower)
    newcomer.join()
    world.log.holding = True
    committing = leader.commit(("flights", 0, 1))
    world.coordinator.runtime.resign(0)
    assert newcomer.joined[-1].error is ErrorCode.NOT_COORDINATOR
    assert committing == [[ErrorCode.NOT_COORDINATOR]]
    assert leader.heartbeat() is ErrorCode.NOT_COORDINATOR
    world.timers.pass_time(100)
    assert world.timers.waiting == []


def test_requests_during_loading_get_responses_that_make_clients_wait(world: World) -> None:
    client = Client(world, "a")
    stable(world, client)
    client.commit(("flights", 0, 1))
    world.timers.pass_time()
    world.coordinator.runtime.resign(0)
    world.coordinator.runtime.elect(0, 0)
    assert client.heartbeat() is ErrorCode.NONE
    assert client.commit(("flights", 0, 2)) == [[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]]
    for ask in (client.committed, client.leave, world.coordinator.list_groups):
        with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            ask()


def test_a_join_or_sync_during_loading_fails_with_a_retriable_error(world: World) -> None:
    client = Client(world, "a")
    stable(world, client)
    world.coordinator.runtime.resign(0)
    world.coordinator.runtime.elect(0, 0)
    client.sync()
    assert client.synced[-1].error is ErrorCode.REBALANCE_IN_PROGRESS
    world.coordinator.runtime.resign(0)
    world.coordinator.runtime.elect(0, 0)
    client.join()
    assert client.joined[-1].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_group_that_is_too_large_after_a_restart_rebalances(world: World) -> None:
    first, second = Client(world, "a"), Client(world, "b")
    stable(world, first, second)
    world.config = replace(AT_ONCE, group_max_size=1)
    world.crash()
    assert first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    second.join()
    assert first.joined[-1].error is ErrorCode.NONE
    assert second.joined[-1].error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_takes_no_member_whose_metadata_does_not_fit_but_lets_others_join_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Client(world, "a"), Client(world, "b")
    stable(world, first)
    size = len(subscription(["flights"]))
    monkeypatch.setattr(rebalance, "METADATA_BYTES_MAX", 2 * size - 1)
    second.join()
    first.join()
    assert first.joined[-1].error is ErrorCode.NONE
    monkeypatch.setattr(rebalance, "METADATA_BYTES_MAX", 2 * size)
    second.join()
    first.join()
    assert [each.error for each in second.joined] == [ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.NONE]


# Unknown groups and refused requests


def test_the_hash_of_a_group_id_selects_its_partition() -> None:
    world = World(partitions=50)
    client = Client(world, "a", group_id="flights-readers")
    client.commit(("flights", 0, 1))
    world.timers.pass_time()
    written = [partition for partition, records in enumerate(map(world.log.committed, range(50))) if records]
    assert written == [42]  # abs("flights-readers".hashCode()) % 50, by Java.
    world.coordinator.runtime.resign(42)
    assert client.heartbeat() is ErrorCode.NOT_COORDINATOR


def test_an_unknown_group_has_no_members(world: World) -> None:
    client = Client(world, "a")
    client.member_id, client.generation = "a-1", 1
    client.join()
    client.sync()
    assert client.joined[-1].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.synced[-1].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.committed() == {}
    with pytest.raises(ApiError, match="Group readers not found"):
        world.coordinator.describe("readers")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "x" * 40_000}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"client_id": "ä" * 20_000}, ErrorCode.INVALID_REQUEST),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_an_invalid_join_is_refused_and_creates_no_group(
    world: World, changes: dict[str, object], error: ErrorCode
) -> None:
    client = Client(world, "a").join(**changes)  # type: ignore[arg-type]
    assert client.joined[-1].error is error
    assert world.coordinator.list_groups() == []


def test_a_group_is_removed_if_its_only_member_id_is_never_used(world: World) -> None:
    client = Client(world, "a").join(requires_known_member_id=True)
    assert client.joined[-1].error is ErrorCode.MEMBER_ID_REQUIRED
    assert [group.group_id for group in world.coordinator.list_groups()] == ["readers"]
    world.timers.pass_time(10)
    assert world.coordinator.list_groups() == []


# Views


def test_group_offsets_include_those_of_groups_without_members(world: World) -> None:
    client, stranger = Client(world, "a"), Client(world, "s", group_id="others")
    stable(world, client)
    client.commit(("flights", 0, 5))
    stranger.commit(("weather", 1, 6))
    world.timers.pass_time()
    rows = {
        (row.group_id, str(row.topic_partition), row.committed.offset, row.state, row.member_count)
        for row in world.coordinator.group_offsets()
    }
    assert rows == {
        ("readers", "flights-0", 5, GroupState.STABLE, 1),
        ("others", "weather-1", 6, GroupState.EMPTY, 0),
    }
    assert world.coordinator.counters.offset_commits == 2
    assert world.coordinator.counters.completed_rebalances == 1

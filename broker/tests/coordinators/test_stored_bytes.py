"""A bad record of `__consumer_offsets`, or a failure, affects only its own entry, group or partition."""

import logging
import struct
from typing import Any

import pytest
from coordinator_world import Client, World, stable

from barnabas_broker.coordinators.groups import membership
from barnabas_broker.coordinators.groups.group import GroupState
from barnabas_broker.coordinators.groups.messages import (
    CommittedOffset,
    GroupMetadata,
    OffsetKey,
    StoredMember,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from barnabas_broker.coordinators.runtime.turns import Turns
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.wire.framing import encode_unsigned_varint
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import coordinator_partition
from harness.manual_timers import ManualTimers

MEMBER = StoredMember("a-1", None, "a", "/127.0.0.1", 60_000, 10_000, b"", b"")
GROUP = GroupMetadata("consumer", 3, "range", "a-1", 0, (MEMBER,))
KEY = encode_offset_key(OffsetKey("broken", "flights", 0))
FLEXIBLE_HEAD = struct.pack(">hqi", 4, 7, -1)
TIME = struct.pack(">q", 0)


def group(**changes: Any) -> tuple[bytes, bytes]:
    return encode_group_key("broken"), encode_group(GROUP._replace(**changes))


def static(member_id: str) -> StoredMember:
    return MEMBER._replace(member_id=member_id, instance_id="gate")


BROKEN = {
    "a topic id of 3 bytes": (KEY, FLEXIBLE_HEAD + b"\1" + TIME + b"\1\0\3abc"),
    "metadata longer than old clients can be told": (
        KEY,
        FLEXIBLE_HEAD + encode_unsigned_varint(40_001) + b"x" * 40_000 + TIME + b"\0",
    ),
    "a partition below 0": (
        encode_offset_key(OffsetKey("broken", "flights", -1)),
        encode_offset(CommittedOffset(7)),
    ),
    "half a group": (encode_group_key("broken"), b"\0\3\0"),
    "two members of one instance": group(members=(static("a-1"), static("a-2"))),
    "one member twice": group(members=(MEMBER, MEMBER)),
    "a member without an id": group(members=(MEMBER._replace(member_id=""),)),
    "members without a protocol": group(protocol=None),
    "members without a type": group(protocol_type=""),
    "a generation below 0": group(generation=-5),
}


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("what", BROKEN)
def test_an_unusable_record_is_ignored_and_reported_once(
    world: World, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    client = Client(world, "a")
    client.commit(("flights", 0, 7))
    world.timers.pass_time()
    world.log.write(0, [BROKEN[what], (KEY[:-1] + b"\5", encode_offset(CommittedOffset(5)))])
    world.crash(survivors=1)
    assert client.committed() == {"flights-0": 7}
    broken = Client(world, "b", group_id="broken")
    assert broken.committed() == {"flights-5": 5}
    stable(world, broken)
    world.timers.pass_time(60)
    assert broken.join().joined[-1].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [line for line in caplog.messages if "ignores 1 records" in line] == [
        line for line in caplog.messages if "ignores" in line or "bug" in line
    ]
    assert world.coordinator.runtime.left_out_count() == 1


def test_a_group_without_decodable_records_is_not_listed(world: World) -> None:
    world.log.write(0, [BROKEN["a topic id of 3 bytes"]])
    world.crash(survivors=1)
    assert world.coordinator.list_groups() == []


def test_the_highest_generation_is_followed_by_0(world: World) -> None:
    world.log.write(0, [(encode_group_key("readers"), encode_group(GROUP._replace(generation=2**31 - 1)))])
    world.crash(survivors=1)
    world.timers.pass_time(10)
    client = Client(world, "b")
    stable(world, client)
    assert client.generation == 1  # Generation 0 had no members.


def test_a_step_that_raises_removes_only_the_members_of_its_own_group(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = Client(world, "a"), Client(world, "b", group_id="others")
    stable(world, client)
    client.commit(("flights", 0, 7))
    late = Client(world, "c").join()
    stable(world, other)
    on_time = membership.on_time

    def buggy(group: Any, step: Any) -> None:
        if group.group_id == "readers":
            raise KeyError("gate")
        on_time(group, step)

    with monkeypatch.context() as patched:
        patched.setattr(membership, "on_time", buggy)
        world.timers.pass_time(9.9)
        assert other.heartbeat() is ErrorCode.NONE
        world.timers.pass_time(9.9)
    assert [line for line in caplog.messages if "bug" in line] == [
        "bug: a state change of the group readers failed; its members have to join again"
    ]
    assert late.joined[-1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (client.heartbeat(), other.heartbeat()) == (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE)
    assert client.committed() == {"flights-0": 7}
    generation, client.member_id = client.generation, ""
    stable(world, client)
    assert client.generation > generation


def test_a_leave_that_raises_gets_an_error_response(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(world, "a")
    stable(world, client)
    monkeypatch.setattr(membership, "leave", lambda *_: 1 // 0)
    assert client.leave() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("failure", ["a bug", "damage"])
def test_a_partition_that_cannot_be_loaded_affects_only_its_groups_and_is_retried(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    world = World(partitions=2)
    names = {coordinator_partition(name, 2): name for name in ("a", "b")}
    bad, good = Client(world, "x", group_id=names[0]), Client(world, "y", group_id=names[1])
    for client in (bad, good):
        client.commit(("flights", 0, 7))
    world.timers.pass_time()
    read = world.log.read

    def buggy(partition: int, on_ready: Any) -> Any:
        if partition == 0:
            raise (ValueError("what is this?") if failure == "a bug" else StorageError("/disk", "is damaged"))
        return read(partition, on_ready)

    with monkeypatch.context() as patched:
        patched.setattr(world.log, "read", buggy)
        world.crash()
        world.timers.pass_time(300)
    assert (good.committed(), bad.commit(("flights", 0, 8))) == (
        {"flights-0": 7},
        [[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]],
    )
    assert [each.group_id for each in world.coordinator.list_groups()] == [names[1]]
    assert world.coordinator.runtime.partition_counts() == {"loading": 0, "active": 1, "failed": 1}
    complaints = [record for record in caplog.records if "will try again" in record.message]
    assert [record.levelno for record in complaints] == [logging.ERROR if failure == "a bug" else logging.WARNING]
    world.timers.pass_time(30)
    assert bad.committed() == {"flights-0": 7}
    assert world.coordinator.runtime.partition_counts() == {"loading": 0, "active": 2, "failed": 0}


def test_a_background_job_that_raises_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    timers = ManualTimers()
    turns = Turns(timers, timers.clock)
    rest = iter(range(3))
    turns.run(1 // (1 - number) for number in range(3))
    turns.run(rest)
    timers.pass_time()
    assert (list(rest), caplog.text.count("bug: a background job of a coordinator failed")) == ([], 1)


def test_an_absent_static_member_without_a_rebalance_timeout_does_not_spin(world: World) -> None:
    away = static("a-1")._replace(session_timeout_ms=30_000, rebalance_timeout_ms=0)
    gone = MEMBER._replace(member_id="b-1", rebalance_timeout_ms=0)
    world.log.write(0, [group(members=(away, gone))])
    world.crash(survivors=1)
    turns = 0
    while turns < 1000 and world.coordinator.describe("broken").state is not GroupState.EMPTY:
        world.clock.passed_ms = max(world.clock.passed_ms, world.timers.waiting[0].due_ms)
        world.timers.turn()
        turns += 1
    assert turns < 50

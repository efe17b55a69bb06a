"""Handlers that answer at once look at few elements of a large request in each step."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas_broker.coordinators.groups.messages import LeaveResult, MemberIdentity
from barnabas_broker.coordinators.modern.consumer_heartbeat import BeatReply
from barnabas_broker.handlers import classic_groups, modern_groups, replicas
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.wire.messages import ConsumerGroupHeartbeatRequest, LeaveGroupRequest
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import LEAVING_MEMBERS, STEP_ELEMENTS

ELEMENTS = 100
CONTEXT = RequestContext(0, 3, Client("PLAINTEXT", "127.0.0.1:5", "a test"))


class Topic:
    """A topic of a request, which counts how often the name or id of any topic is read."""

    reads = 0

    def __init__(self, number: int) -> None:
        self._number = number
        self.partitions = [0]

    @property
    def name(self) -> str:
        Topic.reads += 1
        return f"topic-{self._number}"

    @property
    def topic_id(self) -> UUID:
        Topic.reads += 1
        return UUID(int=self._number)


def most_reads(handle: Any, environment: Any, request: Any) -> int:
    """Take the steps of a handler, and return how many names or ids one of them has read at most."""
    most = before = 0
    Topic.reads = 0
    for _ in handle.__wrapped__(environment, CONTEXT, request):
        most, before = max(most, Topic.reads - before), Topic.reads
    assert Topic.reads >= ELEMENTS
    return max(most, Topic.reads - before)


def test_no_step_of_alter_replica_log_dirs_reads_all_topics() -> None:
    environment = SimpleNamespace(mover=SimpleNamespace(move=lambda *_: None))
    request = SimpleNamespace(dirs=[SimpleNamespace(path="/", topics=[Topic(number) for number in range(ELEMENTS)])])
    assert most_reads(replicas.alter_replica_log_dirs, environment, request) <= 2 * STEP_ELEMENTS


def test_no_step_of_a_heartbeat_reads_all_topics_of_the_member() -> None:
    groups = SimpleNamespace(has_consumer_groups=True, beat=lambda _, __, answer: answer(BeatReply(ErrorCode.NONE)))
    environment = SimpleNamespace(authorizer=None, groups=groups)
    owned = [Topic(number) for number in range(ELEMENTS)]
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", topic_partitions=owned)  # type: ignore[arg-type]
    assert most_reads(modern_groups.consumer_group_heartbeat, environment, request) <= 2 * STEP_ELEMENTS


class Groups:
    """A coordinator that counts the members of each call; `moves` after so many calls."""

    def __init__(self, moves: int = 100) -> None:
        self.left: list[int] = []
        self._moves = moves

    def leave(self, group_id: str, identities: list[MemberIdentity]) -> list[LeaveResult]:
        if len(self.left) == self._moves:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        self.left.append(len(identities))
        return [LeaveResult(each, ErrorCode.NONE) for each in identities]


def leave(groups: Groups, count: int) -> Any:
    members = [LeaveGroupRequest.MemberIdentity(member_id=f"member-{number}") for number in range(count)]
    environment: Any = SimpleNamespace(groups=groups)
    return classic_groups.leave_group(environment, CONTEXT, LeaveGroupRequest(group_id="g", members=members))


def test_very_many_members_leave_a_group_in_portions() -> None:
    groups = Groups()
    answer = leave(groups, 2 * LEAVING_MEMBERS + 1)
    assert groups.left == [LEAVING_MEMBERS, LEAVING_MEMBERS, 1]
    assert [each.member_id for each in answer.members] == [f"member-{n}" for n in range(2 * LEAVING_MEMBERS + 1)]


@pytest.mark.parametrize(("moves", "count"), [(1, LEAVING_MEMBERS + 1), (0, 0)])
def test_a_coordinator_that_moves_between_portions_is_the_error_of_the_response(moves: int, count: int) -> None:
    answer = leave(Groups(moves), count)
    assert (answer.error_code, answer.members) == (ErrorCode.NOT_COORDINATOR, [])

"""Consumers that change between the classic protocol and that of KIP-848 while their group runs."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas_broker.wire.messages import message_class
from simulation.clients import OFFSET_COMMIT
from simulation.epoch_members import JOIN_AGAIN, TRY_AGAIN, EpochHistory, EpochMember
from simulation.group_history import Membership
from simulation.group_members import (
    ILLEGAL_GENERATION,
    JOIN_GROUP,
    MEMBER_ID_REQUIRED,
    NOBODY_ANY_MORE,
    REBALANCE_IN_PROGRESS,
    REBALANCE_MS,
    SESSION_MS,
    SYNC_GROUP,
    JoinAgain,
    Member,
)

COOPERATIVE: Final = "cooperative-sticky"
_FIRST_EPOCHS: Final = 2
"""The highest epoch or generation of the first member of a group."""


class MixedHistory(EpochHistory):
    """The history of a group that changes its protocol. One without members begins again with the first epochs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._known: dict[str, int] = {}
        """The last epoch of each member."""

    def assigned(self, member: Membership, partitions: list[int]) -> None:
        """Note what a member has in an epoch."""
        known = self._known.get(member.member_id)
        self._known[member.member_id] = member.generation
        has_joined = known is None or member.generation < known
        if has_joined and member.generation <= _FIRST_EPOCHS and member.generation < self.generation:
            self.generation = -1
            self._owners.clear()
            self._last.clear()
        super().assigned(member, partitions)


class CooperativeMember(EpochMember):
    """One incarnation of a consumer with the classic protocol, which keeps its partitions through rebalances."""

    join_again = JOIN_AGAIN | {ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS}
    try_again = TRY_AGAIN
    commit_api = OFFSET_COMMIT

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._member_id = ""

    leave = Member.leave
    _heartbeat = Member._heartbeat

    def _check(self, code: int, api: tuple[int, int]) -> None:
        if code in NOBODY_ANY_MORE | {ILLEGAL_GENERATION}:
            self._readers, self._owned = {}, []
        super()._check(code, api)

    async def _join(self) -> None:
        """Join the next generation; give up what is not assigned any more, and then join again."""
        before = self._member
        joined = await self._ask(JOIN_GROUP, self._join_request())
        self._member = Membership(joined.generation_id, joined.member_id, self._instance_id)
        self._member_id = joined.member_id
        if joined.error_code == MEMBER_ID_REQUIRED:
            raise JoinAgain
        if self._member != before:
            self._earlier = before
        assignments: Mapping[str, Sequence[int]] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            owned = {each.member_id: _owned(bytes(each.metadata), self._topic) for each in joined.members}
            assignments = shared(owned, self._partitions)
        answer = await self._ask(SYNC_GROUP, self._sync_request(assignments))
        partitions = _numbers(bytes(answer.assignment), 2, self._topic)
        is_giving_up = not set(self._owned) <= set(partitions)
        await self._change(before, partitions)
        self._group.assigned(self._member, self._owned)
        if is_giving_up:
            raise JoinAgain

    def _join_request(self) -> Any:
        request = message_class("JoinGroupRequest")
        topics = struct.pack(">hih", 1, 1, len(self._topic)) + self._topic.encode()
        metadata = topics + struct.pack(">i", -1) + _places(self._topic, self._owned)
        return request(
            group_id=self._group.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member.member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[request.JoinGroupRequestProtocol(name=COOPERATIVE, metadata=metadata)],
            reason=None,
        )

    def _sync_request(self, assignments: Mapping[str, Sequence[int]]) -> Any:
        request = message_class("SyncGroupRequest")
        return request(
            group_id=self._group.group_id,
            generation_id=self._member.generation,
            member_id=self._member.member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name=COOPERATIVE,
            assignments=[
                request.SyncGroupRequestAssignment(
                    member_id=member_id, assignment=b"\0\1" + _places(self._topic, numbers) + struct.pack(">i", -1)
                )
                for member_id, numbers in assignments.items()
            ],
        )


def shared(owned: Mapping[str, Iterable[int]], partitions: int) -> dict[str, list[int]]:
    """Return the assignment of a leader: nobody gets a partition that another member still owns."""
    claims = [number for numbers in owned.values() for number in numbers]
    quota = -(-partitions // len(owned))
    given = {each: [n for n in numbers if claims.count(n) == 1][:quota] for each, numbers in owned.items()}
    for number in range(partitions):
        if number not in claims:
            min(given.values(), key=len).append(number)
    return given


def _places(topic: str, numbers: Sequence[int]) -> bytes:
    """Return partitions of one topic, as subscriptions and assignments have them."""
    if not numbers:
        return struct.pack(">i", 0)
    return (
        struct.pack(">ih", 1, len(topic)) + topic.encode() + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    )


def _numbers(data: bytes, begin: int, topic: str) -> list[int]:
    """Return the partitions that `_places` wrote at this position."""
    if not data or not int.from_bytes(data[begin : begin + 4]):
        return []
    begin += 4 + 2 + len(topic)
    (count,) = struct.unpack_from(">i", data, begin)
    return list(struct.unpack_from(f">{count}i", data, begin + 4))


def _owned(metadata: bytes, topic: str) -> list[int]:
    """Return the partitions that a member says it owns in its subscription to one topic."""
    return _numbers(metadata, 2 + 4 + 2 + len(topic) + 4, topic)

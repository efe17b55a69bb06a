"""Consumers of a group at the protocol level: they join, get partitions, read, commit, stall, leave."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from barnabas_broker.wire.messages import message_class
from simulation.clients import FIND_COORDINATOR, NONE, OFFSET_COMMIT, OFFSET_FETCH, Client, Failed, Reader
from simulation.group_history import GroupHistory, Membership

JOIN_GROUP: Final = 11, 9
HEARTBEAT: Final = 12, 4
LEAVE_GROUP: Final = 13, 5
SYNC_GROUP: Final = 14, 5

SETTINGS: Final = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "300"}
SESSION_MS: Final = 2500
REBALANCE_MS: Final = 2000

COORDINATOR_ELSEWHERE: Final = {14, 15, 16}
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
MEMBER_ID_REQUIRED: Final = 79
FENCED_INSTANCE_ID: Final = 82
JOIN_AGAIN: Final = {ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID}
NOBODY_ANY_MORE: Final = {UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID}

STALL_SHARE: Final = 0.01
"""The share of turns in which a member stalls for longer than its session, and then continues as before."""


class JoinAgain(Exception):
    """The error that the generation is over for this member."""


class Member:
    """One incarnation of a consumer of `topic`, which has this many partitions."""

    join_again = JOIN_AGAIN
    """The errors after which a member joins again."""
    commit_api = OFFSET_COMMIT
    try_again = COORDINATOR_ELSEWHERE
    """The errors after which a member looks for the coordinator, and sends the request again."""

    def __init__(
        self, client: Client, group: GroupHistory, topic: str, partitions: int, instance_id: str | None
    ) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._instance_id = instance_id
        self._coordinator: str | None = None
        self._member = Membership(-1, "", instance_id)
        self._readers: dict[int, Reader] = {}
        self._committed: dict[int, int] = {}

    async def run(self) -> None:
        """Run until this is cancelled."""
        while True:
            with suppress(Failed, JoinAgain):
                previous = self._member
                await self._join()
                await self._commit_late(previous)
                await self._begin()
                while True:
                    await self._turn()
            await self._client.pause()

    async def leave(self) -> None:
        """Leave the group; a member that does not is removed when its session ends. Raises Failed."""
        request = message_class("LeaveGroupRequest")
        member = request.MemberIdentity(
            member_id=self._member.member_id, group_instance_id=self._instance_id, reason="enough"
        )
        with suppress(JoinAgain):
            await self._ask(LEAVE_GROUP, request(group_id=self._group.group_id, members=[member]))

    async def _ask(self, api: tuple[int, int], request: Any) -> Any:
        """Return the coordinator's response. Raises Failed, also if the coordinator has changed, and JoinAgain."""
        try:
            self._coordinator = self._coordinator or await self._find()
            response = await self._client.ask(self._coordinator, api, request)
        except Failed:
            self._coordinator = None
            raise
        self._check(_error_of(response, api), api)
        return response

    def _check(self, code: int, api: tuple[int, int]) -> None:
        if code in self.try_again:
            self._coordinator = None
            raise Failed(f"error {code}")
        if code in NOBODY_ANY_MORE:
            self._member = self._member._replace(member_id="")
        if code in self.join_again:
            raise JoinAgain
        if code not in (NONE, MEMBER_ID_REQUIRED):
            self._group.violation(f"API {api[0]} answers a member with error {code}")
            raise Failed(f"error {code}")

    async def _find(self) -> str:
        request = message_class("FindCoordinatorRequest")(key=self._group.group_id, key_type=0)
        response = await self._client.any(FIND_COORDINATOR, request)
        if response.error_code != NONE:
            raise Failed(f"error {response.error_code}")
        return f"b{response.node_id}"

    async def _join(self) -> None:
        """Join the next generation, and take its assignment."""
        joined = await self._ask(JOIN_GROUP, self._join_request())
        self._member = Membership(joined.generation_id, joined.member_id, self._instance_id)
        if joined.error_code == MEMBER_ID_REQUIRED:
            raise JoinAgain
        assignments: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            owners = sorted(joined.members, key=lambda each: each.group_instance_id or each.member_id)
            assignments = _assign([each.member_id for each in owners], self._partitions)
        await self._sync(assignments)

    def _join_request(self) -> Any:
        request = message_class("JoinGroupRequest")
        subscription = b"\0\0" + (1).to_bytes(4) + len(self._topic).to_bytes(2) + self._topic.encode() + bytes(4)
        return request(
            group_id=self._group.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member.member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[request.JoinGroupRequestProtocol(name="range", metadata=subscription)],
            reason=None,
        )

    async def _sync(self, assignments: dict[str, bytes]) -> None:
        request = message_class("SyncGroupRequest")
        member = self._member
        made = request(
            group_id=self._group.group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                request.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        partitions = list((await self._ask(SYNC_GROUP, made)).assignment)
        self._group.assigned(member, partitions)
        self._readers = {
            partition: Reader(self._client, self._topic, partition, self._group) for partition in partitions
        }

    async def _begin(self) -> None:
        """Start at the offsets that the former owners committed. Raises Failed."""
        found = await self.committed_offsets(list(self._readers))
        for partition, reader in self._readers.items():
            reader.offset = self._committed[partition] = max(found[partition], 0)

    async def committed_offsets(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the coordinator's offsets; check that no acknowledged commit is lost. Raises Failed."""
        if not partitions:
            return {}
        at_least = {partition: self._group.committed_offset(partition) for partition in partitions}
        request = message_class("OffsetFetchRequest")
        topic = request.OffsetFetchRequestTopic(name=self._topic, partition_indexes=list(partitions))
        made = request(group_id=self._group.group_id, topics=[topic], require_stable=False)
        response = await self._ask(OFFSET_FETCH, made)
        found = {each.partition_index: int(each.committed_offset) for each in response.topics[0].partitions}
        for partition, offset in found.items():
            self._group.fetched(partition, offset, at_least[partition])
        return found

    async def _turn(self) -> None:
        """Read a little, send a heartbeat, commit. Raises JoinAgain."""
        random = self._client.random
        stalls = random.random() < STALL_SHARE
        await asyncio.sleep(random.uniform(1, 6) if stalls else random.uniform(0.05, 0.3))
        for reader in self._readers.values():
            with suppress(Failed):
                await reader.poll()
        with suppress(Failed):
            if random.random() < 0.5 or stalls:
                await self._commit()
            await self._heartbeat()

    async def _heartbeat(self) -> None:
        member = self._member
        request = message_class("HeartbeatRequest")(
            group_id=self._group.group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        try:
            await self._ask(HEARTBEAT, request)
        except JoinAgain:
            if self._member.member_id:
                await self._commit()
            raise

    async def _commit(self) -> None:
        """Commit the positions. Raises Failed, JoinAgain."""
        news = {
            partition: reader.offset
            for partition, reader in self._readers.items()
            if reader.offset != self._committed[partition]
        }
        if news:
            await self._commit_as(self._member, news)
            self._committed |= news
            for partition, offset in news.items():
                self._group.committed(partition, offset)

    async def _commit_late(self, previous: Membership) -> None:
        """Send a commit of the previous generation, as a slow network would: it must be refused."""
        present = self._member
        if previous.generation in (-1, present.generation) or self._client.random.random() < 0.7:
            return
        with suppress(Failed, JoinAgain):
            await self._commit_as(previous, {self._client.random.randrange(self._partitions): 0})
        self._member = present

    async def _commit_as(self, member: Membership, offsets: dict[int, int]) -> None:
        was_stale = self._is_refused(member, offsets)
        try:
            await self._ask(self.commit_api, self._commit_request(member, offsets))
        except (Failed, asyncio.CancelledError):
            for partition, offset in offsets.items():
                self._group.in_doubt(partition, offset)
            raise
        self._group.commit_accepted(member, was_stale=was_stale)

    def _is_refused(self, member: Membership, offsets: dict[int, int]) -> bool:
        """Return True if a commit of the member must be refused."""
        return self._group.is_stale(member)

    def _commit_request(self, member: Membership, offsets: dict[int, int]) -> Any:
        request = message_class("OffsetCommitRequest")
        topic = request.OffsetCommitRequestTopic
        partitions = [
            topic.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
            for partition, offset in offsets.items()
        ]
        return request(
            group_id=self._group.group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=[topic(name=self._topic, partitions=partitions)],
        )


def _error_of(response: Any, api: tuple[int, int]) -> int:
    """Return the first error code."""
    if api[0] != OFFSET_COMMIT[0]:
        return int(response.error_code)
    codes = [int(each.error_code) for each in response.topics[0].partitions]
    return next((code for code in codes if code != NONE), NONE)


def _assign(member_ids: Sequence[str], partitions: int) -> dict[str, bytes]:
    """Give the partitions to the members in turn; an assignment is one byte per partition."""
    return {each: bytes(range(index, partitions, len(member_ids))) for index, each in enumerate(member_ids)}

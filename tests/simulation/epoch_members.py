"""Consumers of a group of KIP-848 at the protocol level, and checks of what their coordinator may answer."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from barnabas_broker.wire.messages import message_class
from simulation.clients import OFFSET_FETCH, Client, Failed, Reader
from simulation.group_history import GroupHistory, Membership
from simulation.group_members import JoinAgain, Member
from simulation.history import History

CONSUMER_GROUP_HEARTBEAT: Final = 68, 1
OFFSET_COMMIT_WITH_EPOCH: Final = 8, 9
OFFSET_FETCH_WITH_EPOCH: Final = 9, 9
EPOCH_SETTINGS: Final = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
REBALANCE_MS: Final = 2000
SLOW_SHARE: Final = 0.3
"""The share of revocations in which a member takes its time, as applications do that finish their work first."""
SLOW_S_MAX: Final = 1.5
UNSUPPORTED_VERSION: Final = 35
GROUP_ID_NOT_FOUND: Final = 69
FENCED_MEMBER_EPOCH: Final = 110
UNRELEASED_INSTANCE_ID: Final = 111
STALE_MEMBER_EPOCH: Final = 113
JOIN_AGAIN: Final = {25, 82, GROUP_ID_NOT_FOUND, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID}
TRY_AGAIN: Final = {14, 15, 16, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH}


class EpochHistory(GroupHistory):
    """The history of a group with member epochs: in one epoch, a partition has one owner."""

    def __init__(self, group_id: str, topic: str, history: History) -> None:
        super().__init__(group_id, topic, history)
        self._last: dict[int, tuple[int, str]] = {}
        """The last epoch in which each partition was given to a member, and that member."""

    def assigned(self, member: Membership, partitions: list[int]) -> None:
        """Note what a member has in an epoch."""
        super().assigned(member, partitions)
        for partition in partitions:
            if self._last.get(partition, (-1, ""))[0] <= member.generation:
                self._last[partition] = member.generation, member.owner

    def owners(self) -> dict[int, str]:
        """Return the last owner of each partition."""
        return {partition: owner for partition, (_, owner) in self._last.items()}

    def is_lost(self, member: Membership, partition: int) -> bool:
        """True if another member got the partition in a later epoch, so that commits of this one must be refused."""
        epoch, owner = self._last.get(partition, (-1, ""))
        return epoch > member.generation and owner != member.owner


class EpochMember(Member):
    """One incarnation of a consumer with the consumer protocol. Its generation is its member epoch."""

    join_again = JOIN_AGAIN
    try_again = TRY_AGAIN
    commit_api = OFFSET_COMMIT_WITH_EPOCH

    def __init__(
        self, client: Client, group: EpochHistory, topic: str, partitions: int, instance_id: str | None
    ) -> None:
        super().__init__(client, group, topic, partitions, instance_id)
        self._history = group
        self._member_id = f"{client.host.name}-{client.random.getrandbits(32)}"
        self._topic_id: Any = None
        self._owned: list[int] = []
        self._earlier = self._member
        """The membership in an earlier epoch."""
        self._lost_an_answer = False
        """True if the last heartbeat had no answer, so that the next one asks for the whole assignment."""

    async def leave(self) -> None:
        """Leave the group. Raises Failed."""
        with suppress(JoinAgain):
            await self._ask(CONSUMER_GROUP_HEARTBEAT, self._beat(-1))

    async def _join(self) -> None:
        self._readers, self._owned = {}, []
        request = self._beat(0)
        request.rebalance_timeout_ms, request.subscribed_topic_names = REBALANCE_MS, [self._topic]
        request.topic_partitions = []
        await self._take(await self._ask(CONSUMER_GROUP_HEARTBEAT, request))

    def _beat(self, epoch: int) -> Any:
        return message_class("ConsumerGroupHeartbeatRequest")(
            group_id=self._group.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
        )

    async def _heartbeat(self) -> None:
        request = self._beat(self._member.generation)
        kind = message_class("ConsumerGroupHeartbeatRequest").TopicPartitions
        request.topic_partitions = [kind(topic_id=self._topic_id, partitions=self._owned)] if self._owned else []
        if self._lost_an_answer:
            request.rebalance_timeout_ms, request.subscribed_topic_names = REBALANCE_MS, [self._topic]
        self._lost_an_answer = True
        response = await self._ask(CONSUMER_GROUP_HEARTBEAT, request)
        self._lost_an_answer = False
        await self._take(response)
        await self._commit_late(self._earlier)

    async def _take(self, response: Any) -> None:
        """Take the epoch and the assignment of a response: commit and give up what is gone, and begin what is new."""
        before = self._member
        self._member = Membership(response.member_epoch, self._member_id, self._instance_id)
        if self._member != before:
            self._earlier = before
        if response.assignment is not None:
            partitions: list[int] = []
            for each in response.assignment.topic_partitions:
                self._topic_id, partitions = each.topic_id, list(each.partitions)
            await self._change(before, partitions)
        self._group.assigned(self._member, self._owned)

    async def _change(self, before: Membership, partitions: list[int]) -> None:
        if any(partition not in partitions for partition in self._owned) and before.generation > 0:
            if self._client.random.random() < SLOW_SHARE:
                await asyncio.sleep(self._client.random.uniform(0, SLOW_S_MAX))
            with suppress(Failed):
                await self._commit()
        self._owned = partitions
        self._readers = {each: reader for each, reader in self._readers.items() if each in partitions}
        self._group.assigned(self._member, partitions)
        new = [each for each in partitions if each not in self._readers]
        found = await self._found(new)
        for partition in new:
            reader = self._readers[partition] = Reader(self._client, self._topic, partition, self._group)
            reader.offset = self._committed[partition] = max(found[partition], 0)

    async def _found(self, partitions: list[int]) -> dict[int, int]:
        """Return committed offsets; a member must not read on without them."""
        while True:
            try:
                return await self.committed_offsets(partitions)
            except Failed:
                await self._client.pause()

    async def _begin(self) -> None:
        """Do nothing: `_take` has begun at the committed offsets."""

    async def committed_offsets(self, partitions: Any) -> dict[int, int]:
        """Return the coordinator's offsets with the member's epoch. Raises Failed."""
        if not partitions or self._member.generation < 0:
            return await super().committed_offsets(partitions)
        at_least = {partition: self._group.committed_offset(partition) for partition in partitions}
        request = message_class("OffsetFetchRequest")
        group = request.OffsetFetchRequestGroup
        topic = group.OffsetFetchRequestTopics(name=self._topic, partition_indexes=list(partitions))
        of_member = group(
            group_id=self._group.group_id,
            member_id=self._member_id,
            member_epoch=self._member.generation,
            topics=[topic],
        )
        response = await self._ask(OFFSET_FETCH_WITH_EPOCH, request(groups=[of_member], require_stable=False))
        self._check(response.groups[0].error_code, OFFSET_FETCH)
        found = {each.partition_index: int(each.committed_offset) for each in response.groups[0].topics[0].partitions}
        for partition, offset in found.items():
            self._group.fetched(partition, offset, at_least[partition])
        return found

    async def _commit_late(self, previous: Membership) -> None:
        """Send a commit of an earlier epoch for a partition that another member has got since: it must be refused."""
        lost = [each for each in range(self._partitions) if self._history.is_lost(previous, each)]
        if previous.generation < 0 or not lost or self._client.random.random() < 0.5:
            return
        with suppress(Failed, JoinAgain):
            await self._commit_as(previous, {self._client.random.choice(lost): 0})

    def _is_refused(self, member: Membership, offsets: dict[int, int]) -> bool:
        return any(self._history.is_lost(member, partition) for partition in offsets)

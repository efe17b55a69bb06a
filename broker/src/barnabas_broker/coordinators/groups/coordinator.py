"""The group coordinator of a broker, which checks each request and passes it to the shard of the group.

Handlers pass typed requests and a callback for the answer. The coordinator's `runtime` knows the partitions of
`__consumer_offsets` that this broker leads. All calls come from the event-loop thread, and none of them blocks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.groups import consumer_groups, membership, rebalance, removal
from barnabas_broker.coordinators.groups.group import (
    Group,
    GroupState,
    check_commit,
    check_transactional_commit,
    check_unknown_group_commit,
    following,
)
from barnabas_broker.coordinators.groups.messages import (
    NO_GENERATION,
    CommitRequest,
    CommittedOffset,
    GroupRecord,
    JoinReply,
    JoinRequest,
    LeaveResult,
    MemberIdentity,
    OffsetKey,
    Step,
    SyncReply,
    SyncRequest,
)
from barnabas_broker.coordinators.groups.removal import expire
from barnabas_broker.coordinators.groups.shard import Counters, GroupEnvironment, GroupShard
from barnabas_broker.coordinators.modern.consumer_heartbeat import Beat, BeatReply
from barnabas_broker.coordinators.modern.consumer_heartbeat import check as check_beat
from barnabas_broker.coordinators.modern.group import ConsumerGroup, ModernState
from barnabas_broker.coordinators.modern.targets import chosen_assignor
from barnabas_broker.coordinators.runtime.shard import Runtime, RuntimeEnvironment
from barnabas_broker.coordinators.runtime.turns import Now, Turns
from barnabas_broker.coordinators.share.share_groups import PartitionErrors, ShareEnvironment
from barnabas_broker.coordinators.share.share_heartbeat import ShareBeat, ShareGroup, check
from barnabas_broker.coordinators.share_state.persister import OnOutcomes
from barnabas_broker.coordinators.share_state.share_state import ReadEntry
from barnabas_broker.metadata.model import TombstoneDocument
from barnabas_broker.wire.key_values import Marker
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import CONSUMER_OFFSETS, TopicPartition


class ShareRequests:
    """The requests about share groups (KIP-932) of one group coordinator."""

    def __init__(self, runtime: Runtime[GroupShard], environment: ShareEnvironment) -> None:
        self._runtime = runtime
        self._environment = environment

    @property
    def are_on(self) -> bool:
        """True if the cluster has share groups."""
        return self._environment.is_on()

    def is_read_committed(self, group_id: str) -> bool:
        """True if a share group gets only records of committed transactions."""
        return self._environment.settings(group_id).is_read_committed

    def beat(self, request: ShareBeat, answer: Callable[[BeatReply], object]) -> None:
        """Handle a ShareGroupHeartbeat."""
        try:
            check(request)
            self._shard(request.group_id).share.beat(request, answer)
        except ApiError as error:
            answer(BeatReply(error.code, error.message, request.member_id))

    def group(self, group_id: str) -> ShareGroup:
        """Return a share group. Raises ApiError, with GROUP_ID_NOT_FOUND if there is none."""
        return self._shard(group_id).share.find(group_id)

    def read_summary(self, group_id: str, entries: Sequence[ReadEntry], answer: OnOutcomes) -> None:
        """Read epochs, start offsets and delivery complete counts at the share coordinators."""
        self._environment.persister.read_summary(group_id, entries, answer)

    def delete_offsets(
        self, group_id: str, topics: Sequence[str], answer: Callable[[ErrorCode, Mapping[str, ErrorCode]], object]
    ) -> None:
        """Handle a DeleteShareGroupOffsets; answer with an error for the group, and one for each topic."""
        try:
            self._shard(group_id).share.delete_offsets(group_id, topics, answer)
        except ApiError as error:
            answer(error.code, {})

    def alter_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        answer: Callable[[ErrorCode, PartitionErrors], object],
    ) -> None:
        """Handle an AlterShareGroupOffsets; answer with an error for the group, and those of partitions."""
        try:
            self._shard(group_id).share.alter_offsets(group_id, offsets, answer)
        except ApiError as error:
            answer(error.code, {})

    def _shard(self, group_id: str) -> GroupShard:
        """Return the shard for a share group, which need not exist.

        Raises ApiError if the id is empty, or is that of a classic or consumer group.
        """
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
        shard = self._runtime.find(group_id)
        if shard.find(group_id) is not None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return shard


_TEXT_BYTES_MAX: Final = 32_000
"""The maximum length in bytes of an id or a name, because the records of groups store lengths in 16 bits."""


class GroupOffset(msgspec.Struct, frozen=True):
    """A committed offset of a group, with the state and the number of members of the group."""

    group_id: str
    topic_partition: TopicPartition
    committed: CommittedOffset
    state: GroupState | ModernState
    member_count: int


class GroupCoordinator:
    """The coordinator of the groups whose partition of __consumer_offsets this broker leads."""

    def __init__(self, environment: GroupEnvironment, partition_count: int) -> None:
        self.config = environment.config
        self.counters = Counters()
        self._environment = environment
        turns = Turns(environment.timers, environment.clock)
        of_runtime = RuntimeEnvironment(
            CONSUMER_OFFSETS,
            environment.log,
            environment.clock,
            environment.timers,
            turns,
            environment.is_awake,
            environment.config.offsets_commit_timeout_ms,
        )
        new_shard = partial(GroupShard, environment, self.counters, turns)
        self.runtime = Runtime(of_runtime, partition_count, new_shard, _serve)
        self.share = ShareRequests(self.runtime, environment.share)

    def start(self) -> None:
        """Schedule the expiry of offsets every `offsets.retention.check.interval.ms`."""
        self.runtime.sweep_every(self.config.offsets_retention_check_interval_ms / 1000, partial(expire, warned=set()))

    def on_topics_deleted(self, topics: Mapping[UUID, TombstoneDocument]) -> None:
        """Begin to remove the offsets of deleted topics; `topics` has their tombstones by topic id."""
        self.runtime.sweep(lambda shard: removal.forget_topics(shard, topics))

    def join(self, request: JoinRequest, answer: Callable[[JoinReply], object]) -> None:
        """Handle a JoinGroup, which creates the group if the request has no member id and the group does not exist."""
        try:
            _check_join(request, self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms)
            shard = self.runtime.find(request.group_id)
            modern = shard.modern.by_id.get(request.group_id)
            if request.group_id in shard.share.groups.by_id:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            new_member_id = f"{request.instance_id or request.client_id}-{self._environment.new_id()}"
            request = request._replace(new_member_id=new_member_id)
            if modern is not None and modern.members:
                consumer_groups.join(shard, modern, request, answer)
                return
        except ApiError as error:
            answer(JoinReply(error.code, member_id=request.member_id))
            return
        if request.member_id and request.group_id not in shard.tables.groups:
            answer(JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id))
            return
        consumer_groups.make_room(shard, request.group_id)
        group = shard.tables.group(request.group_id)
        shard.ask(group, partial(rebalance.join, group, request), answer, JoinReply)

    def beat(self, request: Beat, api_version: int, answer: Callable[[BeatReply], object]) -> None:
        """Handle a ConsumerGroupHeartbeat (KIP-848)."""
        try:
            check_beat(request, api_version, self._environment.modern.settings(request.group_id).assignors)
            _check_named(request.group_id)
            for what, text in (("member id", request.member_id), ("group instance id", request.instance_id or "")):
                _check_length(what, text)
            member_id = request.member_id or self._environment.new_id()
            consumer_groups.beat(self.runtime.find(request.group_id), request._replace(member_id=member_id), answer)
        except ApiError as error:
            answer(BeatReply(error.code, error.message))

    def sync(self, request: SyncRequest, answer: Callable[[SyncReply], object]) -> None:
        """Handle a SyncGroup. While the coordinator loads, answer REBALANCE_IN_PROGRESS, so that the member rejoins."""
        try:
            shard, group = self._group(request.group_id)
            if isinstance(group, ConsumerGroup):
                consumer_groups.sync(shard, group, request, answer)
                return
        except ApiError as error:
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer(SyncReply(ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code))
            return
        shard.ask(group, partial(membership.sync, group, request), answer, SyncReply)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Handle a Heartbeat. While the coordinator loads, answer NONE, so that the member does not rejoin."""
        try:
            shard, group = self._group(group_id)
        except ApiError as error:
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if loading else error.code
        if isinstance(group, ConsumerGroup):
            return consumer_groups.classic_heartbeat(shard, group, member_id, instance_id, generation)
        return membership.heartbeat(group, member_id, instance_id, generation, shard.now())

    def leave(self, group_id: str, identities: Sequence[MemberIdentity]) -> list[LeaveResult]:
        """Handle a LeaveGroup; return a result for each member.

        Raises ApiError if this broker does not coordinate the group, or is still loading it.
        """
        try:
            shard, group = self._group(group_id)
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            return [LeaveResult(identity, error.code) for identity in identities]
        if isinstance(group, ConsumerGroup):
            return consumer_groups.leave(shard, group, identities)
        results = [LeaveResult(identity, ErrorCode.COORDINATOR_NOT_AVAILABLE) for identity in identities]

        def decide(step: Step) -> None:
            results[:] = membership.leave(group, identities, step)

        shard.run(group, decide)
        return results

    def commit(self, request: CommitRequest, answer: Callable[[list[ErrorCode]], object]) -> None:
        """Handle an OffsetCommit or TxnOffsetCommit; answer with an error code for each offset once they are stored."""
        try:
            shard = self.runtime.find(request.group_id)
        except ApiError as error:
            answer([error.code] * len(request.offsets))
            return
        now, tables = shard.now(), shard.tables
        refusal = _check_commit(shard, request, now)
        if refusal is not ErrorCode.NONE:
            answer([refusal] * len(request.offsets))
            return
        checks = [self._check_metadata(offset) for _, offset in request.offsets]
        before = tables.offsets.get(request.group_id, {})
        records = [
            GroupRecord(
                OffsetKey(request.group_id, *partition),
                following(offset, before.get(partition), request.member_id, now.wall_ms),
            )
            for (partition, offset), check in zip(request.offsets, checks, strict=True)
            if check is ErrorCode.NONE
        ]
        self.counters.offset_commits += len(records)
        shard.store_offsets(
            request.group_id,
            records,
            lambda failure: answer([check or failure for check in checks]),
            request.producer,
        )

    def end_transaction(
        self, partition: int, marker: Marker, transaction_version: int, answer: Callable[[ErrorCode], object]
    ) -> None:
        """Append a marker to a partition of `__consumer_offsets`; it commits or aborts the offsets of a transaction."""
        try:
            shard = self.runtime.at(partition)
        except ApiError as error:
            answer(error.code)
            return
        shard.writer.end_transaction(marker, transaction_version, answer)

    def unstable(self, group_id: str) -> frozenset[TopicPartition]:
        """Return the partitions for which a group has offsets in open transactions.

        Raises ApiError if this broker does not coordinate the group, or is still loading it.
        """
        return self.runtime.find(group_id).unstable(group_id)

    def _check_metadata(self, offset: CommittedOffset) -> ErrorCode:
        fits = len(offset.metadata) <= self.config.offset_metadata_max_bytes
        return ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE

    def committed(
        self, group_id: str, member_id: str | None = None, member_epoch: int = NO_GENERATION
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group, empty for an unknown group.

        A member of a consumer group may name its epoch. Raises ApiError if the member or the epoch is wrong, or if this
        broker does not coordinate the group, or is still loading it.
        """
        shard = self.runtime.find(group_id)
        modern = shard.modern.by_id.get(group_id)
        if modern is not None:
            modern.check_fetch(member_id, member_epoch)
        if group_id in shard.share.groups.by_id:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return shard.tables.offsets.get(group_id, {})

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        answer: Callable[[ErrorCode, list[ErrorCode]], object],
    ) -> None:
        """Handle an OffsetDelete; answer with an error code for the request, and one for each partition, in order."""
        try:
            shard = self.runtime.find(group_id)
        except ApiError as error:
            answer(error.code, [])
            return
        removal.delete_offsets(shard, group_id, partitions, answer)

    def delete_group(self, group_id: str, answer: Callable[[ErrorCode], object]) -> None:
        """Delete a group and its offsets; answer with an error code once the deletion is committed or refused."""
        try:
            shard = self.runtime.find(group_id)
        except ApiError as error:
            answer(error.code)
            return
        removal.delete_group(shard, group_id, answer)

    @property
    def has_consumer_groups(self) -> bool:
        """True if the cluster has consumer groups of KIP-848."""
        return self._environment.modern.is_on()

    def describe_consumer_group(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group to describe. Raises ApiError, with GROUP_ID_NOT_FOUND if there is none."""
        shard = self.runtime.find(group_id)
        group = shard.modern.by_id.get(group_id)
        if group is None:
            why = "is not a consumer group" if group_id in shard.tables.groups else "not found"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")
        return group

    def assignor_of(self, group: ConsumerGroup) -> str:
        """Return the name of the assignor that a consumer group uses."""
        return chosen_assignor(group.assignors, self._environment.modern.settings(group.group_id).assignors)

    def describe(self, group_id: str) -> Group:
        """Return the group to describe. Raises ApiError, with GROUP_ID_NOT_FOUND if the group does not exist."""
        group = self.runtime.find(group_id).tables.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def list_groups(self) -> list[Group | ConsumerGroup | ShareGroup]:
        """Return all groups of this coordinator. Raises ApiError while a partition is loading.

        As in Kafka, the list lacks the groups of partitions that could not be loaded.
        """
        if self.runtime.partition_counts()["loading"]:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [group for group in self._groups() if group.state is not GroupState.DEAD]

    def _groups(self) -> Iterator[Group | ConsumerGroup | ShareGroup]:
        """Yield all loaded groups. Groups may change during the iteration."""
        for shard in self.runtime.loaded():
            yield from list(shard.tables.groups.values())
            yield from list(shard.modern.by_id.values())
            yield from list(shard.share.groups.by_id.values())

    def _group(self, group_id: str) -> tuple[GroupShard, Group | ConsumerGroup]:
        """Return a group and the shard of its partition of `__consumer_offsets`.

        Raises ApiError; the code is UNKNOWN_MEMBER_ID if the group does not exist.
        """
        _check_named(group_id)
        shard = self.runtime.find(group_id)
        group = shard.find(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return shard, group

    def group_offsets(self) -> Iterator[GroupOffset]:
        """Yield all committed offsets of loaded groups. Offsets may change during the iteration."""
        for shard in self.runtime.loaded():
            for group_id, committed_by_group in list(shard.tables.offsets.items()):
                group = shard.find(group_id)
                if group is None:
                    continue
                for topic_partition, committed in list(committed_by_group.items()):
                    yield GroupOffset(group_id, topic_partition, committed, group.state, len(group.members))

    def member_counts(self) -> Iterator[tuple[str, int]]:
        """Yield the id and the number of members of each loaded group. Groups may change during the iteration."""
        for group in self._groups():
            yield group.group_id, len(group.members)

    def group_counts(self) -> Iterator[tuple[str, str]]:
        """Yield the type and the state of each loaded group. Groups may change during the iteration."""
        for group in self._groups():
            yield group.group_type, group.state.value


def _serve(shard: GroupShard) -> Iterator[None]:
    """Start the session timeouts of the members of the loaded groups, then remove the offsets of deleted topics."""
    yield from shard.serve()
    yield from removal.forget_deleted_topics(shard)


def _check_commit(shard: GroupShard, request: CommitRequest, now: Now) -> ErrorCode:
    modern = shard.modern.by_id.get(request.group_id)
    if modern is not None:
        return consumer_groups.check_commit(modern, request)
    if request.group_id in shard.share.groups.by_id:
        return ErrorCode.GROUP_ID_NOT_FOUND
    group = shard.tables.groups.get(request.group_id)
    if group is not None and request.producer is not None:
        return check_transactional_commit(group, request.member_id, request.instance_id, request.generation)
    if group is None:
        return check_unknown_group_commit(request)
    return check_commit(group, request.member_id, request.instance_id, request.generation, now)


def _check_named(group_id: str) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
    _check_length("group id", group_id, ErrorCode.INVALID_GROUP_ID)


def _check_length(what: str, text: str, error: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
    if len(text) > _TEXT_BYTES_MAX // 4 and len(text.encode()) > _TEXT_BYTES_MAX:
        raise ApiError(
            error,
            f"the {what} has {len(text)} characters, but its UTF-8 text must have at most {_TEXT_BYTES_MAX} bytes",
        )


def _check_join(request: JoinRequest, session_min_ms: int, session_max_ms: int) -> None:
    """Check the fields of a JoinGroup that do not depend on the group. Raises ApiError if a field is invalid."""
    _check_named(request.group_id)
    if not session_min_ms <= request.session_timeout_ms <= session_max_ms:
        allowed = f"{session_min_ms} to {session_max_ms}"
        raise ApiError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"the session timeout is {request.session_timeout_ms} ms, but must be {allowed} ms",
        )
    _check_length("client id", request.client_id)
    _check_length("group instance id", request.instance_id or "")
    _check_length("protocol type", request.protocol_type)
    for protocol in request.protocols:
        _check_length("protocol name", protocol.name)

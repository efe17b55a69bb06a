"""The `StateMachine` of one partition of `__consumer_offsets`: its groups, and the effects of their state changes.

The modules `rebalance` and `membership` change a group, and return a record and replies in a `Step`, without IO
and clock. The shard then submits the record to the writer, sends the replies to the waiting requests, and sets one
timer for each group (`Group.wake_ms`). The module `removal` removes groups and offsets.

Only records change the durable state of `GroupTables`: `apply` is called for each record that is committed, and for the
records that are loaded from the log. State that is not stored, such as the deadlines of a group, is in `groups`.

While a partition is loaded, `RecordDecoder` decodes offset commits in their most frequent format; the module `messages`
decodes all other records. A name or topic id that occurs in many records is decoded only once, and is one object in
memory.
"""

import logging
import struct
from collections import ChainMap
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.groups import classic_members, membership, rebalance
from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.messages import (
    TOPIC_ID_FOLLOWS,
    Append,
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    GroupRecord,
    JoinReply,
    OffsetKey,
    Step,
    SyncReply,
    Token,
    check_partition,
    decode,
    decode_key,
    decode_offset,
    encode_offset_key,
)
from barnabas_broker.coordinators.groups.rebalance import restore_group
from barnabas_broker.coordinators.modern.consumer_heartbeat import plan
from barnabas_broker.coordinators.modern.group import ConsumerGroup, tombstones
from barnabas_broker.coordinators.modern.records import ModernRecord
from barnabas_broker.coordinators.modern.records import decode as decode_modern
from barnabas_broker.coordinators.modern.shard import GroupRules, ModernEnvironment, ModernGroups
from barnabas_broker.coordinators.runtime.shard import LeftOut
from barnabas_broker.coordinators.runtime.turns import Alarms, Now, Turns, portions
from barnabas_broker.coordinators.runtime.writer import CoordinatorLog, PartitionWriter
from barnabas_broker.coordinators.share.share_groups import ShareEnvironment, ShareGroups
from barnabas_broker.metadata.model import TombstoneDocument
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

_WITHOUT_TAGS: Final = struct.Struct(">hqibqb")
"""The value of an offset commit with empty metadata and without a topic id.

The fields are the version, offset, leader epoch, length of the metadata plus 1, timestamp and number of tagged fields.
"""
_WITH_TOPIC_ID: Final = struct.Struct(">hqibq3s16s")
_USUAL_VERSION: Final = 4
_NO_METADATA: Final = 1
_NO_TAGS: Final = 0

_new = tuple.__new__
"""The constructor of `tuple`, which creates a NamedTuple in half the time of the NamedTuple's own constructor."""


class RecordDecoder:
    """The decoder for one load of a partition; the decoder caches names and topic ids that many records share."""

    def __init__(self) -> None:
        self._topics: dict[bytes, tuple[str, str]] = {}
        """The group id and topic of decoded record keys, by the encoded record key without its partition number."""
        self._topic_ids: dict[bytes, UUID] = {}

    def decode(self, key: bytes, value: bytes) -> GroupRecord | ModernRecord | None:
        """Return the decoded record, or None if the record is of an unknown kind. Raises MalformedRecord."""
        names = self._topics.get(key[:-4]) or self._new_topic(key)
        if names is None:
            return decode(key, value) or decode_modern(key, value)
        partition = int.from_bytes(key[-4:], "big", signed=True)
        if partition < 0:
            check_partition(partition)
        return _new(GroupRecord, (_new(OffsetKey, (*names, partition)), self._offset(value)))

    def _new_topic(self, key: bytes) -> tuple[str, str] | None:
        """Return the group id and the topic if the key is that of a committed offset, or None for any other key."""
        decoded = decode_key(key)
        if not isinstance(decoded, OffsetKey) or len(key) != len(encode_offset_key(decoded)):
            return None
        names = self._topics[key[:-4]] = (decoded.group_id, decoded.topic)
        return names

    def _offset(self, value: bytes) -> CommittedOffset:
        if len(value) == _WITH_TOPIC_ID.size:
            version, offset, epoch, metadata, timestamp_ms, tags, topic_id = _WITH_TOPIC_ID.unpack(value)
            if version == _USUAL_VERSION and metadata == _NO_METADATA and tags == TOPIC_ID_FOLLOWS:
                known = self._topic_ids.get(topic_id) or self._new_topic_id(topic_id)
                return _new(CommittedOffset, (offset, epoch, "", timestamp_ms, None, known))
        elif len(value) == _WITHOUT_TAGS.size:
            version, offset, epoch, metadata, timestamp_ms, tags = _WITHOUT_TAGS.unpack(value)
            if version == _USUAL_VERSION and metadata == _NO_METADATA and tags == _NO_TAGS:
                return _new(CommittedOffset, (offset, epoch, "", timestamp_ms, None, None))
        return decode_offset(value)

    def _new_topic_id(self, data: bytes) -> UUID:
        topic_id = self._topic_ids[data] = UUID(bytes=data)
        return topic_id


_RESTORED_AT_ONCE = 20
"""The number of groups that are restored before other tasks may run: about a millisecond of work."""


class GroupTables:
    """The groups, the committed offsets and the stored group metadata of one partition."""

    __slots__ = ("_modern", "groups", "offsets", "stored")

    def __init__(self, modern: Container[str] = ()) -> None:
        """Create empty tables; `modern` has the ids of modern groups, which have offsets here and nothing else."""
        self._modern = modern
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.stored: dict[str, GroupMetadata] = {}
        """The stored metadata by group id; a group that only commits offsets has no stored metadata."""

    def apply(self, record: GroupRecord) -> None:
        """Apply a record, which was just committed or read from the log, to the groups and offsets."""
        key, value = record
        if isinstance(key, GroupKey):
            assert not isinstance(value, CommittedOffset)
            self._apply_group(key.group_id, value)
            return
        group_id, topic, partition = key
        topic_partition = _new(TopicPartition, (topic, partition))
        if value is not None:
            assert not isinstance(value, GroupMetadata)
            offsets = self.offsets.get(group_id)
            if offsets is None:
                if group_id not in self._modern:
                    self.group(group_id)
                offsets = self.offsets[group_id] = {}
            offsets[topic_partition] = value
        elif group_id in self.offsets:
            self.offsets[group_id].pop(topic_partition, None)
            if not self.offsets[group_id]:
                del self.offsets[group_id]

    def _apply_group(self, group_id: str, value: GroupMetadata | None) -> None:
        if value is not None:
            self.stored[group_id] = value
            self.group(group_id)
            return
        self.stored.pop(group_id, None)
        self.groups.pop(group_id, None)
        if group_id in self.offsets and group_id not in self._modern:
            self.group(group_id)

    def group(self, group_id: str) -> Group:
        """Return the group with this id; create the group if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def restore_groups(self, now: Now, left_out: LeftOut) -> Iterator[None]:
        """Restore the members and sessions of all groups, in steps between which other tasks may run.

        A group that cannot be restored is counted in `left_out`, and keeps its offsets.
        """
        for group_id in [each for each in self.groups if each in self._modern]:
            del self.groups[group_id]
            self.stored.pop(group_id, None)
        stored = iter(list(self.stored))
        while some := list(islice(stored, _RESTORED_AT_ONCE)):
            for group_id in some:
                self._restore_group(group_id, now, left_out)
            yield

    def _restore_group(self, group_id: str, now: Now, left_out: LeftOut) -> None:
        try:
            self.groups[group_id] = restore_group(group_id, self.stored[group_id], now)
        except Exception as error:
            left_out.add(f"group {group_id}", error)
            self._apply_group(group_id, None)

    def is_vacant(self, group: Group) -> bool:
        """Return True if the group is Empty and has no pending member ids, stored state or offsets."""
        used = group.pending_joins or group.group_id in self.stored or group.group_id in self.offsets
        return group.state is GroupState.EMPTY and not used


_logger = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT", JoinReply, SyncReply)

_SERVED_AT_ONCE: Final = 100
"""The number of groups whose session timeouts are started before other tasks may run: about a millisecond of work."""


class GroupEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of the group coordinator."""

    config: BrokerConfig
    log: CoordinatorLog
    clock: Clock
    timers: Timers
    deleted_topics: Callable[[], Mapping[UUID, TombstoneDocument]]
    """Return the tombstones of deleted topics that the metadata keeps, by topic id."""
    is_awake: Callable[[], bool]
    """Return False if the process was suspended and has not read the latest metadata since."""
    new_id: Callable[[], str]
    """Return the unique suffix of a member id."""
    modern: ModernEnvironment
    share: ShareEnvironment


class Counters(msgspec.Struct):
    """The counters since the start of the broker, with the names of Kafka's group-coordinator-metrics."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    consumer_group_rebalances: int = 0


class _Waiting(msgspec.Struct, frozen=True):
    """A member's request that has not been answered yet."""

    group_id: str
    answer: Callable[[Any], object]
    """Send the JoinReply or SyncReply to the client."""
    refusal: Callable[[ErrorCode], JoinReply | SyncReply]

    def refuse(self, error: ErrorCode) -> None:
        """Answer the request with an error."""
        self.answer(self.refusal(error))


class GroupShard:
    """The groups of one partition of `__consumer_offsets`; each loading of the partition creates a new shard."""

    def __init__(
        self,
        environment: GroupEnvironment,
        counters: Counters,
        turns: Turns,
        writer: PartitionWriter[GroupRecord | ModernRecord],
    ) -> None:
        self.environment = environment
        self.counters = counters
        self.turns = turns
        self.writer = writer
        topics, clock, timers = environment.modern.topics, environment.clock, environment.timers
        rules = GroupRules(ConsumerGroup, environment.modern.settings, plan)
        self.modern = ModernGroups(rules, topics, clock, timers, turns, writer, self._changed)
        self.share = ShareGroups(environment.share, topics, clock, timers, turns, writer)
        self.tables = GroupTables(ChainMap[str, Any](self.modern.by_id, self.share.groups.by_id))
        self._last_token = 0
        self._waiting: dict[Token, _Waiting] = {}
        self._alarms = Alarms(environment.timers, environment.clock, self._wake)

    def decoder(self) -> Callable[[bytes, bytes], GroupRecord | ModernRecord | None]:
        """Return a new decoder of records, which is used for one load of the partition."""
        return RecordDecoder().decode

    def apply(self, record: GroupRecord | ModernRecord) -> None:
        """Apply a record, which was just committed or read from the log, to the groups and offsets."""
        if isinstance(record, GroupRecord):
            self.tables.apply(record)
        elif record.kind.is_of_share_group:
            self.share.groups.apply(record)
        else:
            self.modern.apply(record)

    def restore(self, left_out: LeftOut) -> Iterator[None]:
        """Restore the members and sessions of all groups in steps, and count the groups that cannot be restored."""
        yield from self.modern.restore(left_out)
        yield from self.share.groups.restore(left_out)
        yield from self.tables.restore_groups(self.now(), left_out)
        for some in portions(self.writer.transactions.names):
            for group_id in some:
                self._find_or_create(group_id)
            yield

    def contents(self) -> str:
        """Return the numbers of groups and offsets as text for a log line."""
        groups = len(self.tables.groups) + len(self.modern.by_id) + len(self.share.groups.by_id)
        return f"{groups} groups and {sum(map(len, self.tables.offsets.values()))} committed offsets"

    def serve(self) -> Iterator[None]:
        """Start the session timeouts of the members of the loaded groups.

        A rebalance begins in each group that is larger than `group.max.size`.
        """
        restored = iter(list(self.tables.groups.values()))
        while some := list(islice(restored, _SERVED_AT_ONCE)):
            for group in some:
                self._serve(group)
            yield
        yield from self.modern.serve()
        yield from self.share.groups.serve()

    def _serve(self, group: Group) -> None:
        if self.tables.groups.get(group.group_id) is not group:
            return
        if len(group.members) > self.environment.config.group_max_size:
            self.run(group, partial(rebalance.begin, group, reason="the group has more members than group.max.size"))
        self._alarms.set(group.group_id, group.wake_ms)

    def close(self) -> None:
        """Cancel all timers, and answer all waiting requests with NOT_COORDINATOR."""
        self._alarms.cancel_all()
        self.modern.close()
        self.share.groups.close()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.refuse(ErrorCode.NOT_COORDINATOR)

    def find(self, group_id: str) -> Group | ConsumerGroup | None:
        """Return the group with this id, None if there is none, or if it is a share group, which has no offsets.

        One id has at most one group, of one type.
        """
        return self.modern.by_id.get(group_id) or self.tables.groups.get(group_id)

    def _find_or_create(self, group_id: str) -> Group | ConsumerGroup:
        return self.find(group_id) or self.tables.group(group_id)

    def store_offsets(
        self,
        group_id: str,
        records: Sequence[GroupRecord],
        answer: Callable[[ErrorCode], object],
        producer: ProducerEpoch | None,
    ) -> None:
        """Write committed offsets; with a producer, they are a part of its transaction.

        As in Kafka, a group that has only offsets of an open transaction exists: it is listed, and can be deleted.
        """
        if producer is None or self.find(group_id) is not None:
            self.writer.submit(group_id, records, answer, producer)
            return
        group = self.tables.group(group_id)

        def written(error: ErrorCode) -> None:
            self._remove_if_vacant(group)
            answer(error)

        self.writer.submit(group_id, records, written, producer)

    def unstable(self, group_id: str) -> frozenset[TopicPartition]:
        """Return the partitions for which the group has offsets in open transactions.

        Offsets that are still being written to the log are included.
        """
        being_written = self.writer.pending(group_id, of_transactions_only=True)
        records = chain(self.writer.transactions.of(group_id), being_written)
        keys = (record.key for record in records if isinstance(record, GroupRecord))
        return frozenset(TopicPartition(key.topic, key.partition) for key in keys if isinstance(key, OffsetKey))

    def now(self) -> Now:
        """Return the current wall-clock time and monotonic time for a state change."""
        clock = self.environment.clock
        return Now(clock.now_ms(), int(clock.monotonic_s() * 1000))

    def ask(
        self,
        group: Group,
        decide: Callable[[Token, Step], object],
        answer: Callable[[ReplyT], object],
        refusal: Callable[[ErrorCode], ReplyT],
    ) -> None:
        """Change the state of a group as a request asks, and answer the request now or after a later state change.

        `answer` sends a reply to the client, and `refusal` creates the reply for an error code.
        """
        self._last_token += 1
        token = Token(self._last_token)
        self._waiting[token] = _Waiting(group.group_id, answer, refusal)
        self.run(group, partial(decide, token))

    def run(self, group: Group, decide: Callable[[Step], object]) -> None:
        """Change the state of a group, then write the record and send the replies that are in the Step.

        Remove the group if it has no members, offsets or records. An exception in a state change is a bug. The group
        may then be inconsistent, so its members have to join again.
        """
        step = Step(self.now(), self.environment.config)
        try:
            decide(step)
            self._carry_out(group, step)
        except Exception:
            _logger.exception(
                "bug: a state change of the group %s failed; its members have to join again", group.group_id
            )
            self._reset_group(group)

    def _reset_group(self, group: Group) -> None:
        """Replace a group by a group without members; answer waiting requests with COORDINATOR_NOT_AVAILABLE."""
        group_id, now = group.group_id, self.now()
        self.tables.groups[group_id] = Group(
            group_id,
            state_timestamp_ms=now.wall_ms,
            generation=group.generation,
            protocol_type=group.protocol_type,
        )
        self.refuse_waiting(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _carry_out(self, group: Group, step: Step) -> None:
        for note in step.notes:
            _logger.info("group %s: %s", group.group_id, note)
        if step.append is not None:
            record = GroupRecord(GroupKey(group.group_id), step.append.metadata)
            self.writer.submit(group.group_id, (record,), partial(self._append_finished, group, step.append))
        self._alarms.set(group.group_id, group.wake_ms)
        for token, reply in step.replies:
            self._waiting.pop(token).answer(reply)
        self._remove_if_vacant(group)

    def _remove_if_vacant(self, group: Group) -> None:
        """Remove a group without members, stored state and offsets, unless a record of the group is being written."""
        group_id, writer = group.group_id, self.writer
        is_used = writer.is_writing(group_id) or writer.transactions.count(group_id)
        if not is_used and self.tables.is_vacant(group):
            self.tables.groups.pop(group_id, None)

    def _append_finished(self, group: Group, append: Append, error: ErrorCode) -> None:
        """Change a group's state after the append of its record has succeeded or failed; count completed rebalances."""
        if self.writer.is_closed or self.tables.groups.get(group.group_id) is not group:
            return
        before = group.state
        if error is ErrorCode.NONE:
            self.run(group, lambda step: membership.appended(group, append, step))
        else:
            self.run(group, lambda step: membership.append_failed(group, append, error, step))
        if before is not GroupState.STABLE and group.state is GroupState.STABLE:
            self.counters.completed_rebalances += 1

    def refuse_waiting(self, group_id: str, error: ErrorCode) -> None:
        """Answer all waiting requests of a group with an error."""
        for token in [token for token, waiting in self._waiting.items() if waiting.group_id == group_id]:
            self._waiting.pop(token).refuse(error)

    def _changed(self, group: ConsumerGroup) -> None:
        """Count the epochs that have begun as rebalances, as Kafka does; change the group's protocol if need be."""
        self.counters.consumer_group_rebalances += group.epochs_begun
        group.epochs_begun = 0
        self._go_down_if_classic(group)

    def _go_down_if_classic(self, group: ConsumerGroup) -> None:
        """Change a consumer group whose members all use the classic protocol to a classic group, and rebalance it."""
        group_id, world = group.group_id, self.modern.world(group.group_id)
        if self.modern.by_id.get(group_id) is not group or not classic_members.may_go_down(group, world.settings):
            return
        metadata = classic_members.downgraded(group, world.topics, world.now.wall_ms)
        classic = restore_group(group_id, metadata, world.now)
        del self.modern.by_id[group_id]
        self.tables.stored[group_id], self.tables.groups[group_id] = metadata, classic
        records: list[GroupRecord | ModernRecord] = [*tombstones(group), GroupRecord(GroupKey(group_id), metadata)]
        self.writer.submit(group_id, records, lambda _: None, is_applied=True)
        _logger.info("group %s: the last member with the consumer protocol has gone", group_id)
        self.run(classic, partial(rebalance.begin, classic, reason="the group changed to the classic protocol"))

    def _wake(self, group_id: str) -> None:
        group = self.tables.groups.get(group_id)
        if group is None:
            return
        self.run(group, lambda step: membership.on_time(group, step))

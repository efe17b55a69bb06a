"""The records of modern groups in `__consumer_offsets`, in Kafka's format.

Consumer groups and share groups have the same kinds of records, with numbers and formats of their own. A key begins
with the kind as an int16; the group id follows, and in most kinds the member id or the regular expression. A value
begins with its version, which is 0. The decoder skips unknown kinds.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.modern.assignors import Assignment
from barnabas_broker.coordinators.runtime.turns import MalformedRecord, encode_string, read_string
from barnabas_broker.wire.decoder import decoder
from barnabas_broker.wire.encoder import Encoded, encoder
from barnabas_broker.wire.framing import NO_TAGS, MalformedRequest, encode_unsigned_varint, write_count

Owned = Mapping[UUID, Mapping[int, int]]
"""The partitions of a member, by topic id, each with the member epoch in which the member got the partition."""
NOTHING: Final[Mapping[Any, Any]] = {}
"""An empty assignment, or no partitions of a topic."""

ValueT = TypeVar("ValueT")

_VALUE_VERSION: Final = 0
_INT16: Final = struct.Struct(">h")
_TAG_OF_EPOCHS: Final = b"\1\0"
"""One tagged field, whose tag is 0."""
_INT32_BYTES: Final = 4


class Kind(IntEnum):
    """The kinds of records of consumer groups and share groups, with their numbers in keys."""

    GROUP = 3
    OLD_TOPICS = 4
    """The topics of a group, as Kafka 4.0 wrote them; only tombstones are written, and only they are read."""
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    SHARE_MEMBER = 10
    SHARE_GROUP = 11
    SHARE_TARGET_EPOCH = 12
    SHARE_TARGET = 13
    SHARE_CURRENT = 14
    SHARE_TOPICS = 15
    REGEX = 16

    @property
    def role(self) -> "Kind":
        """The kind with the same meaning in a consumer group."""
        return _ROLES.get(self, self)

    @property
    def of_share_group(self) -> "Kind":
        """The kind with the same meaning in a share group."""
        return SHARE_KINDS.get(self, self)

    @property
    def is_of_share_group(self) -> bool:
        """True if share groups have records of this kind."""
        return Kind.SHARE_MEMBER <= self <= Kind.SHARE_TOPICS


SHARE_KINDS: Final[Mapping[Kind, Kind]] = {
    Kind.GROUP: Kind.SHARE_GROUP,
    Kind.MEMBER: Kind.SHARE_MEMBER,
    Kind.TARGET_EPOCH: Kind.SHARE_TARGET_EPOCH,
    Kind.TARGET: Kind.SHARE_TARGET,
    Kind.CURRENT: Kind.SHARE_CURRENT,
    Kind.OLD_TOPICS: Kind.SHARE_TOPICS,
}
"""The kinds of a share group, by the kinds of a consumer group with the same meaning."""
_ROLES: Final[Mapping[Kind, Kind]] = {of_share: role for role, of_share in SHARE_KINDS.items()}


class MemberState(IntEnum):
    """The states of a member, with their numbers in records (`consumer_heartbeat` has their table)."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


class GroupEpoch(msgspec.Struct, frozen=True):
    """The epoch of a group, which rises with each change that needs another assignment, and the hash of its topics."""

    epoch: int
    metadata_hash: int = 0


class TargetEpoch(NamedTuple):
    """The group epoch of the target assignment, and the time at which the assignment was computed."""

    assignment_epoch: int
    assignment_timestamp: int = 0


class MemberProtocol(NamedTuple):
    """A protocol that a member of a classic group supports, such as `range`, with the member's metadata."""

    name: str
    metadata: bytes


class ClassicMetadata(msgspec.Struct, frozen=True):
    """The additional metadata of a member that uses the classic protocol."""

    session_timeout_ms: int
    supported_protocols: tuple[MemberProtocol, ...]


class MemberMetadata(msgspec.Struct, frozen=True):
    """The metadata that a member has sent: its static id, its client, and its subscription."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    """The names of the topics, sorted and distinct."""
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMetadata | None = None


class Current(NamedTuple):
    """The assignment that a member has, on its way to the target assignment."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING
    revoking: Owned = NOTHING
    """The partitions that the member must give up before it gets the next epoch."""

    def has_same_partitions(self, other: "Current") -> bool:
        """True if both have the same partitions; equal objects are not compared, for they may have many topics."""
        return self.assigned is other.assigned or self.assigned == other.assigned


class ResolvedRegex(msgspec.Struct, frozen=True):
    """The topics whose names match a regular expression, and the version and time of the metadata that had them."""

    topics: tuple[str, ...]
    version: int
    timestamp: int


class TopicShare(msgspec.Struct, frozen=True):
    """The partitions of a topic whose share state is about to be initialized, or is initialized."""

    name: str
    partitions: frozenset[int]


class ShareTopics(NamedTuple):
    """The topics of a share group, by topic id: where it has share state, and where that state is about to change."""

    initializing: Mapping[UUID, TopicShare] = NOTHING
    initialized: Mapping[UUID, TopicShare] = NOTHING
    deleting: Mapping[UUID, str] = NOTHING
    """The names of the topics whose share state is about to be deleted."""


Value = GroupEpoch | TargetEpoch | MemberMetadata | Assignment | Current | ResolvedRegex | ShareTopics


class ModernRecord(NamedTuple):
    """A decoded record of a modern group; a value of None is a tombstone."""

    kind: Kind
    group_id: str
    item: str
    """The member id or the regular expression; empty if a group has only one record of this kind."""
    value: Value | None

    @property
    def name(self) -> str:
        """The group id of the record."""
        return self.group_id

    def encode(self) -> tuple[bytes, bytes | None]:
        """Return the encoded key and value of the record for `__consumer_offsets`."""
        key = _INT16.pack(self.kind) + encode_string(self.group_id)
        if _FORMATS[self.kind].has_item:
            key += encode_string(self.item)
        return key, None if self.value is None else self._encoded_value(self.value)

    def _encoded_value(self, value: Value) -> bytes:
        format_ = _FORMATS[self.kind]
        out = bytearray(_INT16.pack(_VALUE_VERSION))
        encoder(format_.definition, _VALUE_VERSION)(out, format_.to_message(value))
        return bytes(out)


def _encoded(partitions: Mapping[UUID, ValueT], rest: Callable[[ValueT], bytes]) -> list[Encoded]:
    """Encode topics; `rest` encodes what follows the id of a topic.

    A member may have thousands of topics, which are encoded in one turn of the event loop, and most of them have the
    same partitions: the same object is encoded once. The codec gives the same bytes in many times the time.
    """
    found: dict[int, bytes] = {}
    topics = []
    for topic_id, each in partitions.items():
        after_id = found.get(id(each))
        if after_id is None:
            after_id = found[id(each)] = rest(each)
        topics.append(Encoded(topic_id.bytes + after_id))
    return topics


def _rest(partitions: Collection[int], epochs: Collection[int] = ()) -> bytes:
    """Encode the partitions of a topic, and the epochs in which the member got them, if there are any."""
    count, tags = write_count(len(partitions), flexible=True), NO_TAGS
    if epochs:
        tags = _TAG_OF_EPOCHS + encode_unsigned_varint(len(count) + len(epochs) * _INT32_BYTES) + count
    numbers = struct.pack(f">{len(partitions)}i", *partitions)
    return b"".join((count, numbers, tags, struct.pack(f">{len(epochs)}i", *epochs)))


class _TargetMessage(msgspec.Struct, frozen=True):
    topic_partitions: Collection[Encoded]


class _CurrentMessage(msgspec.Struct, frozen=True):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: Collection[Encoded]
    partitions_pending_revocation: Collection[Encoded]


def _same(value: Any) -> Any:
    return value


def _target_message(target: Assignment) -> _TargetMessage:
    return _TargetMessage(_encoded(target, lambda partitions: _rest(sorted(partitions))))


def _target(message: Any) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in message.topic_partitions if each.partitions}


def _current_message(current: Current) -> _CurrentMessage:
    return _CurrentMessage(
        current.epoch, current.previous_epoch, current.state, _topics(current.assigned), _topics(current.revoking)
    )


def _share_current_message(current: Current) -> _CurrentMessage:
    topics = _encoded(current.assigned, lambda numbers: _rest(numbers.keys()))
    return _CurrentMessage(current.epoch, current.previous_epoch, current.state, topics, ())


def _topics(owned: Owned) -> list[Encoded]:
    return _encoded(owned, lambda epochs: _rest(epochs.keys(), epochs.values()))


def _current(message: Any) -> Current:
    epoch = message.member_epoch
    return Current(
        epoch,
        message.previous_member_epoch,
        MemberState(message.state),
        _owned(message.assigned_partitions, epoch),
        _owned(message.partitions_pending_revocation, epoch),
    )


def _owned(topics: Iterable[Any], member_epoch: int) -> Owned:
    """Return the partitions with their epochs; records of Kafka before 4.3 have no epochs, so the member's counts."""
    owned = {}
    for each in topics:
        epochs = each.assignment_epochs or [member_epoch] * len(each.partitions)
        if each.partitions:
            owned[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return owned


def _member(message: Any) -> MemberMetadata:
    classic = message.classic_member_metadata
    return MemberMetadata(
        message.instance_id,
        message.rack_id,
        message.client_id,
        message.client_host,
        tuple(sorted(set(message.subscribed_topic_names))),
        message.subscribed_topic_regex,
        message.rebalance_timeout_ms,
        message.server_assignor,
        classic
        and ClassicMetadata(
            classic.session_timeout_ms,
            tuple(MemberProtocol(each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
    )


def _share_member(message: Any) -> MemberMetadata:
    names = tuple(sorted(set(message.subscribed_topic_names)))
    return MemberMetadata(None, message.rack_id, message.client_id, message.client_host, names)


def _share_current(message: Any) -> Current:
    """Return what a member has; its partitions have no epochs, because members share them."""
    assigned = {each.topic_id: dict.fromkeys(each.partitions, 0) for each in message.assigned_partitions}
    return Current(
        message.member_epoch,
        message.previous_member_epoch,
        MemberState(message.state),
        {topic_id: epochs for topic_id, epochs in assigned.items() if epochs},
    )


class _TopicInfo(msgspec.Struct, frozen=True):
    topic_id: UUID
    topic_name: str
    partitions: Collection[int] = ()


class _ShareTopicsMessage(msgspec.Struct, frozen=True):
    initializing_topics: Collection[_TopicInfo]
    initialized_topics: Collection[_TopicInfo]
    deleting_topics: Collection[_TopicInfo]


def _share_topics_message(topics: ShareTopics) -> _ShareTopicsMessage:
    return _ShareTopicsMessage(
        _infos(topics.initializing),
        _infos(topics.initialized),
        [_TopicInfo(topic_id, name) for topic_id, name in sorted(topics.deleting.items())],
    )


def _infos(topics: Mapping[UUID, TopicShare]) -> list[_TopicInfo]:
    return [_TopicInfo(topic_id, each.name, sorted(each.partitions)) for topic_id, each in sorted(topics.items())]


def _share_topics(message: Any) -> ShareTopics:
    return ShareTopics(
        _shares(message.initializing_topics),
        _shares(message.initialized_topics),
        {each.topic_id: each.topic_name for each in message.deleting_topics},
    )


def _shares(topics: Iterable[Any]) -> Mapping[UUID, TopicShare]:
    return {each.topic_id: TopicShare(each.topic_name, frozenset(each.partitions)) for each in topics}


class _Format(msgspec.Struct, frozen=True):
    """The format of a kind of records: the definition of the value, whether the key has an item, and conversions."""

    definition: str
    has_item: bool
    to_message: Callable[[Any], Any]
    from_message: Callable[[Any], Value]


def _group_epoch(message: Any) -> GroupEpoch:
    return GroupEpoch(message.epoch, message.metadata_hash)


def _target_epoch(message: Any) -> TargetEpoch:
    return TargetEpoch(message.assignment_epoch, message.assignment_timestamp)


_FORMATS: Final[Mapping[int, _Format]] = {
    Kind.GROUP: _Format("ConsumerGroupMetadataValue", False, _same, _group_epoch),
    Kind.OLD_TOPICS: _Format("", False, _same, _same),
    Kind.MEMBER: _Format("ConsumerGroupMemberMetadataValue", True, _same, _member),
    Kind.TARGET_EPOCH: _Format("ConsumerGroupTargetAssignmentMetadataValue", False, _same, _target_epoch),
    Kind.TARGET: _Format("ConsumerGroupTargetAssignmentMemberValue", True, _target_message, _target),
    Kind.CURRENT: _Format("ConsumerGroupCurrentMemberAssignmentValue", True, _current_message, _current),
    Kind.SHARE_MEMBER: _Format("ShareGroupMemberMetadataValue", True, _same, _share_member),
    Kind.SHARE_GROUP: _Format("ShareGroupMetadataValue", False, _same, _group_epoch),
    Kind.SHARE_TARGET_EPOCH: _Format("ShareGroupTargetAssignmentMetadataValue", False, _same, _target_epoch),
    Kind.SHARE_TARGET: _Format("ShareGroupTargetAssignmentMemberValue", True, _target_message, _target),
    Kind.SHARE_CURRENT: _Format("ShareGroupCurrentMemberAssignmentValue", True, _share_current_message, _share_current),
    Kind.SHARE_TOPICS: _Format("ShareGroupStatePartitionMetadataValue", False, _share_topics_message, _share_topics),
    Kind.REGEX: _Format(
        "ConsumerGroupRegularExpressionValue",
        True,
        _same,
        lambda it: ResolvedRegex(tuple(it.topics), it.version, it.timestamp),
    ),
}


def decode(key: bytes, value: bytes | None) -> ModernRecord | None:
    """Return the decoded record, or None if it is of another kind or has no use. Raises MalformedRecord."""
    try:
        (number,) = _INT16.unpack_from(key)
        format_ = _FORMATS.get(number)
        if format_ is None:
            return None
        group_id, position = read_string(key, _INT16.size)
        item = read_string(key, position)[0] if format_.has_item else ""
        if value is None:
            return ModernRecord(Kind(number), group_id, item, None)
        if not format_.definition:
            return None
        return ModernRecord(Kind(number), group_id, item, _decoded_value(format_, value))
    except (struct.error, UnicodeDecodeError, MalformedRequest, ValueError) as error:
        raise MalformedRecord(f"record of a modern group: {error}") from error


def _decoded_value(format_: _Format, value: bytes) -> Value:
    (version,) = _INT16.unpack_from(value)
    if version != _VALUE_VERSION:
        raise MalformedRecord(f"{format_.definition} has version {version}; only version {_VALUE_VERSION} is supported")
    return format_.from_message(decoder(format_.definition, version)(memoryview(value)[_INT16.size :]))

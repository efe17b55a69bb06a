"""The members of a classic group, the requests to it, the replies, and `Step`: the effects of one state change.

Requests and replies are immutable.

The records of `__consumer_offsets`, in Kafka's format. A key begins with its version: 0 and 1 are keys of committed
offsets, 2 is the key of a group. The decoder skips other keys, which belong to the group types of newer protocols.
A value begins with its own version, 0 to 4. The broker writes the same value versions as Kafka 4.4: version 4 for
offsets (version 1 if the client chose the expiry), 3 for groups.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NewType
from uuid import UUID

import msgspec
from msgspec.structs import astuple

from barnabas_broker.coordinators.modern.records import MemberProtocol
from barnabas_broker.coordinators.runtime.turns import MalformedRecord, Now, encode_string, read_string
from barnabas_broker.wire.decoder import decoder
from barnabas_broker.wire.encoder import encoder
from barnabas_broker.wire.framing import MalformedRequest, encode_unsigned_varint
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1

_OFFSET_KEY_VERSIONS: Final = (0, 1)
_GROUP_KEY_VERSION: Final = 2
_VALUE_VERSION_MAX: Final = 4
_OFFSET_VALUE_VERSION: Final = 4
_EXPIRING_OFFSET_VALUE_VERSION: Final = 1
_GROUP_VALUE_VERSION: Final = 3

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_VERSION_OFFSET: Final = struct.Struct(">hq")
_VERSION_OFFSET_EPOCH: Final = struct.Struct(">hqi")
_NO_TAGS: Final = b"\0"
TOPIC_ID_FOLLOWS: Final = b"\1\0\x10"
"""The bytes before a tagged topic id: the number of tagged fields (1), the tag (0) and the size (16)."""


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic: str
    partition: int


class GroupKey(msgspec.Struct, frozen=True):
    """The key of a group's metadata."""

    group_id: str


class CommittedOffset(NamedTuple):
    """The committed offset of a group for one partition: `offset` is the next offset that the group reads."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int | None = None
    topic_id: UUID | None = None


class StoredMember(NamedTuple):
    """A member in a group's record, with its metadata for the chosen protocol and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """The durable state of a group in one generation."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


def encode_offset_key(key: OffsetKey) -> bytes:
    """Return the encoded key of a committed offset, in version 1."""
    return _INT16.pack(1) + encode_string(key.group_id) + encode_string(key.topic) + _INT32.pack(key.partition)


def encode_group_key(group_id: str) -> bytes:
    """Return the encoded key of a group, in version 2."""
    return _INT16.pack(_GROUP_KEY_VERSION) + encode_string(group_id)


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Return the decoded key, None if the record belongs to no classic group. Raises MalformedRecord."""
    try:
        (version,) = _INT16.unpack_from(data)
        if version in _OFFSET_KEY_VERSIONS:
            group_id, position = read_string(data, 2)
            topic, position = read_string(data, position)
            (partition,) = _INT32.unpack_from(data, position)
            check_partition(partition)
            return OffsetKey(group_id, topic, partition)
        return GroupKey(read_string(data, 2)[0]) if version == _GROUP_KEY_VERSION else None
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRecord(f"key: {error}") from error


def check_partition(partition: int) -> None:
    """Raise MalformedRecord if the partition number is negative."""
    if partition < 0:
        raise MalformedRecord(f"the partition number is {partition}, but must be 0 or more")


def encode_offset(value: CommittedOffset) -> bytes:
    """Return the encoded offset, in version 1 if the offset has an expiry timestamp, otherwise in version 4."""
    timestamp = _INT64.pack(value.commit_timestamp_ms)
    if value.expire_timestamp_ms is not None:
        head = _VERSION_OFFSET.pack(_EXPIRING_OFFSET_VALUE_VERSION, value.offset)
        return head + encode_string(value.metadata) + timestamp + _INT64.pack(value.expire_timestamp_ms)
    head = _VERSION_OFFSET_EPOCH.pack(_OFFSET_VALUE_VERSION, value.offset, value.leader_epoch)
    metadata = value.metadata.encode()
    tags = _NO_TAGS if value.topic_id is None else TOPIC_ID_FOLLOWS + value.topic_id.bytes
    return head + encode_unsigned_varint(len(metadata) + 1) + metadata + timestamp + tags


def decode_offset(data: bytes) -> CommittedOffset:
    """Decode a committed offset; value versions 0 to 4 are supported. Raises MalformedRecord."""
    offset = CommittedOffset(*astuple(_decode("OffsetCommitValue", data)))
    return offset if offset.expire_timestamp_ms != NO_TIMESTAMP else offset._replace(expire_timestamp_ms=None)


def encode_group(value: GroupMetadata) -> bytes:
    """Encode the metadata of a group in value version 3, which Kafka 2.3 and later can read."""
    out = bytearray(_INT16.pack(_GROUP_VALUE_VERSION))
    encoder("GroupMetadataValue", _GROUP_VALUE_VERSION)(out, value)
    return bytes(out)


def decode_group(data: bytes) -> GroupMetadata:
    """Decode the metadata of a group; value versions 0 to 4 are supported. Raises MalformedRecord.

    Version 0 has no rebalance timeout, so the session timeout is used instead.
    """
    *fields, members = astuple(_decode("GroupMetadataValue", data))
    return GroupMetadata._make((*fields, tuple(_member(StoredMember(*astuple(member))) for member in members)))


def _decode(name: str, data: bytes) -> Any:
    """Decode a record value, which consists of a version and a message in this version; return the message."""
    try:
        (version,) = _INT16.unpack_from(data)
        if not 0 <= version <= _VALUE_VERSION_MAX:
            raise MalformedRecord(
                f"the record's value has version {version}; versions 0 to {_VALUE_VERSION_MAX} are supported"
            )
        return decoder(name, version)(memoryview(data)[_INT16.size :])
    except (struct.error, MalformedRequest) as error:
        raise MalformedRecord(f"{name}: {error}") from error


class GroupRecord(NamedTuple):
    """A decoded record of `__consumer_offsets`; a value of None is a tombstone."""

    key: OffsetKey | GroupKey
    value: CommittedOffset | GroupMetadata | None

    @property
    def name(self) -> str:
        """The group id of the record."""
        return self.key.group_id

    def encode(self) -> tuple[bytes, bytes | None]:
        """Return the encoded key and value of the record for `__consumer_offsets`."""
        key, value = self
        encoded = encode_offset_key(key) if isinstance(key, OffsetKey) else encode_group_key(key.group_id)
        if value is None:
            return encoded, None
        return encoded, encode_offset(value) if isinstance(value, CommittedOffset) else encode_group(value)


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Return the decoded record, or None if the record does not concern a classic group. Raises MalformedRecord."""
    decoded = decode_key(key)
    if decoded is None or value is None:
        return None if decoded is None else GroupRecord(decoded, None)
    return GroupRecord(decoded, decode_offset(value) if isinstance(decoded, OffsetKey) else decode_group(value))


def _member(stored: StoredMember) -> StoredMember:
    if stored.rebalance_timeout_ms != NO_TIMESTAMP:
        return stored
    return stored._replace(rebalance_timeout_ms=stored.session_timeout_ms)


Token = NewType("Token", int)
"""The id of a request to a group; each reply in `Step.replies` has the id of its request."""

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1


class JoinRequest(NamedTuple):
    """A JoinGroup request of any version; a request without a member id gets `new_member_id` from the coordinator."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    new_member_id: str = NO_MEMBER_ID
    requires_known_member_id: bool = True
    """True if a new dynamic member must first receive a member id with the error MEMBER_ID_REQUIRED (KIP-394).

    The value is True for JoinGroup from version 4 on.
    """
    supports_skipping_assignment: bool = True
    """True from request version 9 on: the reply to a static leader that rejoins can set SkipAssignment (KIP-814)."""
    reason: str | None = None


class JoinedMember(msgspec.Struct, frozen=True):
    """A member in the leader's JoinGroup reply."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """The answer to a JoinGroup; only the leader's answer lists the `members`."""

    error: ErrorCode
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncRequest(msgspec.Struct, frozen=True):
    """A SyncGroup request; only the leader sends `assignments`, by member id.

    The protocol type and the protocol name are None before request version 5.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}


class SyncReply(msgspec.Struct, frozen=True):
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class MemberIdentity(msgspec.Struct, frozen=True):
    """The member to remove, named by its member id, or by its instance id if the member id is empty (KIP-345)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveResult(msgspec.Struct, frozen=True):
    """The result for one member of a LeaveGroup."""

    identity: MemberIdentity
    error: ErrorCode


class CommitRequest(msgspec.Struct, frozen=True):
    """An OffsetCommit or TxnOffsetCommit. Generation -1 without a member id means that the client is not a member.

    The coordinator sets the commit timestamps of the offsets.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    api_version: int
    offsets: Sequence[tuple[TopicPartition, CommittedOffset]]
    producer: ProducerEpoch | None = None
    """The producer whose transaction contains the offsets, None for an OffsetCommit."""


Reply = JoinReply | SyncReply


class StaticRejoin(msgspec.Struct, frozen=True):
    """The JoinGroup of a static member that rejoins a Stable group.

    `reply` is sent once the new member id is stored.
    """

    token: Token
    reply: JoinReply


class Append(msgspec.Struct, frozen=True):
    """A record of group metadata to append to the log.

    The functions `appended` and `append_failed` in `membership.py` handle the outcome.
    """

    metadata: GroupMetadata
    rejoin: StaticRejoin | None = None


class Step(msgspec.Struct):
    """One state change of a group. The inputs are the time and the settings.

    The outputs are replies, a record and log lines.
    """

    now: Now
    config: BrokerConfig
    replies: list[tuple[Token, Reply]] = msgspec.field(default_factory=list)
    append: Append | None = None
    notes: list[str] = msgspec.field(default_factory=list)

    def reply(self, token: Token, reply: Reply) -> None:
        """Add a reply to the outputs; `token` is the id of the request that the reply answers."""
        self.replies.append((token, reply))


CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_VERSION_COUNT: Final = struct.Struct(">hi")


class Member(msgspec.Struct, eq=False):
    """A member of a group. At most one of `awaiting_join` and `awaiting_sync` is set."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    awaiting_join: Token | None = None
    awaiting_sync: Token | None = None
    session_deadline_ms: int = 0
    is_new: bool = False
    """True until the member's first JoinGroup is answered.

    The member cannot send heartbeats before the answer, so another time limit replaces its session timeout.
    """
    is_unheard_of: bool = False
    """True if the member was loaded from the log and has sent no request since; its member id may be out of date."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol, empty if the member does not support the protocol."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the member's first protocol that is among the candidates."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    @property
    def waits(self) -> bool:
        """True if a JoinGroup or SyncGroup of the member waits for an answer; always False for a new member."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def end_join(self) -> Token | None:
        """Return the token that identifies the waiting JoinGroup request, and clear it; None if no JoinGroup waits."""
        token, self.awaiting_join = self.awaiting_join, None
        return token

    def end_sync(self) -> Token | None:
        """Return the token that identifies the waiting SyncGroup request, and clear it; None if no SyncGroup waits."""
        token, self.awaiting_sync = self.awaiting_sync, None
        return token


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in a consumer's metadata, None if the metadata is not a subscription.

    Each version of the consumer protocol's subscription begins with the version and an array of topic names. The broker
    needs the topics for the expiry of offsets (KIP-211) and to refuse the deletion of offsets in use (KIP-496).
    """
    topics, position = set(), _VERSION_COUNT.size
    try:
        _, count = _VERSION_COUNT.unpack_from(metadata)
        for _ in range(count):
            topic, position = read_string(metadata, position)
            topics.add(topic)
    except (struct.error, UnicodeDecodeError, MalformedRecord):
        return None
    return frozenset(topics)

"""The members of a classic group, the requests to it, the replies, and `Step`: the effects of one state change.

Requests and replies are immutable.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NewType

from barnabas_broker.coordinators.groups.records import CommittedOffset, GroupMetadata
from barnabas_broker.coordinators.modern.records import MemberProtocol
from barnabas_broker.coordinators.runtime.alarms import Now
from barnabas_broker.coordinators.runtime.record_strings import MalformedRecord, read_string
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

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


class JoinedMember(NamedTuple):
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


class SyncRequest(NamedTuple):
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


class SyncReply(NamedTuple):
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class MemberIdentity(NamedTuple):
    """The member to remove, named by its member id, or by its instance id if the member id is empty (KIP-345)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveResult(NamedTuple):
    """The result for one member of a LeaveGroup."""

    identity: MemberIdentity
    error: ErrorCode


class CommitRequest(NamedTuple):
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


class StaticRejoin(NamedTuple):
    """The JoinGroup of a static member that rejoins a Stable group.

    `reply` is sent once the new member id is stored.
    """

    token: Token
    reply: JoinReply


class Append(NamedTuple):
    """A record of group metadata to append to the log.

    The functions `appended` and `append_failed` in `membership.py` handle the outcome.
    """

    metadata: GroupMetadata
    rejoin: StaticRejoin | None = None


@dataclass(slots=True)
class Step:
    """One state change of a group. The inputs are the time and the settings.

    The outputs are replies, a record and log lines.
    """

    now: Now
    config: BrokerConfig
    replies: list[tuple[Token, Reply]] = field(default_factory=list)
    append: Append | None = None
    notes: list[str] = field(default_factory=list)

    def reply(self, token: Token, reply: Reply) -> None:
        """Add a reply to the outputs; `token` is the id of the request that the reply answers."""
        self.replies.append((token, reply))


CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_VERSION_COUNT: Final = struct.Struct(">hi")


@dataclass(slots=True, eq=False)
class Member:
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

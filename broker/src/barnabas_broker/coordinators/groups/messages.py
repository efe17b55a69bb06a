"""The requests, replies and effects of a group. All are frozen but `Step`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NewType

from barnabas_broker.coordinators.groups.config import GroupConfig
from barnabas_broker.coordinators.groups.records import CommittedOffset, GroupMetadata
from barnabas_broker.wire.transaction_markers import ProducerEpoch
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

Token = NewType("Token", int)
"""The id of a request whose answer may come later."""

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1


class Now(NamedTuple):
    """The time of one step: `wall_ms` for records, the monotonic `steady_ms` for deadlines."""

    wall_ms: int
    steady_ms: int


class MemberProtocol(NamedTuple):
    """An assignment protocol that a member supports (such as `range`), with its metadata for the leader."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """A JoinGroup request of any version; `new_member_id`, set by the coordinator, is for a member without id."""

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
    """True from version 4 on: a new dynamic member first gets its id with MEMBER_ID_REQUIRED (KIP-394)."""
    supports_skipping_assignment: bool = True
    """True from version 9 on: the reply to a returning static leader has SkipAssignment (KIP-814)."""
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member in the leader's JoinGroup reply."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """The answer to a JoinGroup; `members` is for the leader alone."""

    error: ErrorCode
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncRequest(NamedTuple):
    """A SyncGroup request; `assignments` by member id only from the leader. Type and name from version 5 on."""

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
    """The member to remove; with an empty member id it is the static member of that instance id (KIP-345)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveResult(NamedTuple):
    """The result for one member of a LeaveGroup."""

    identity: MemberIdentity
    error: ErrorCode


class CommitRequest(NamedTuple):
    """An OffsetCommit, or a TxnOffsetCommit of a `producer`; generation -1 and no member id without membership.

    The coordinator sets commit timestamps.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    api_version: int
    offsets: Sequence[tuple[TopicPartition, CommittedOffset]]
    producer: ProducerEpoch | None = None
    """The producer of the transaction that the offsets belong to; they count once it has committed."""


Reply = JoinReply | SyncReply


class StaticRejoin(NamedTuple):
    """A static member that rejoins a stable group; `reply` is its answer once its new id is stored."""

    token: Token
    reply: JoinReply


class Append(NamedTuple):
    """A record to append; `sync.appended` or `sync.append_failed` gets the outcome."""

    metadata: GroupMetadata
    rejoin: StaticRejoin | None = None


@dataclass(slots=True)
class Step:
    """A step of a group: the time and settings as input; replies, a record to append and log lines as output."""

    now: Now
    config: GroupConfig
    replies: list[tuple[Token, Reply]] = field(default_factory=list)
    append: Append | None = None
    notes: list[str] = field(default_factory=list)

    def reply(self, token: Token, reply: Reply) -> None:
        """Answer the request named `token`."""
        self.replies.append((token, reply))

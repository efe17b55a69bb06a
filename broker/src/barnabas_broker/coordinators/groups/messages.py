"""What goes into a group and what comes out: requests, replies, effects. All frozen but `Step`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NewType

from barnabas_broker.coordinators.groups.config import GroupConfig
from barnabas_broker.coordinators.groups.records import CommittedOffset, GroupMetadata
from barnabas_broker.wire.transaction_markers import ProducerEpoch
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

Token = NewType("Token", int)
"""Names a request whose answer may come later."""

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1


class Now(NamedTuple):
    """The time of one step: `wall_ms` for what is written down, `steady_ms`, which never jumps, for deadlines."""

    wall_ms: int
    steady_ms: int


class MemberProtocol(NamedTuple):
    """One way to assign partitions that a member can do (`range`), with what it tells the leader for that way."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """A JoinGroup request of any version. `new_member_id` is the id to give, should the member need one: the
    coordinator puts it in.
    """

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
    """From version 4 on: a new dynamic member is told its id first (KIP-394)."""
    supports_skipping_assignment: bool = True
    """From version 9 on: a static leader that comes back is told that nothing is to be assigned (KIP-814)."""
    reason: str | None = None


class JoinedMember(NamedTuple):
    """One member as the leader sees it."""

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
    """A SyncGroup request; `assignments` by member id, from the leader alone. Type and name from version 5 on."""

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
    """Who is to leave; an empty member id means the static member of that instance id (KIP-345)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveResult(NamedTuple):
    """What became of one member that was to leave."""

    identity: MemberIdentity
    error: ErrorCode


class CommitRequest(NamedTuple):
    """An OffsetCommit, or a TxnOffsetCommit of a `producer`; generation -1 and no member id from a stranger.

    The coordinator sets commit timestamps.
    """

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    api_version: int
    offsets: Sequence[tuple[TopicPartition, CommittedOffset]]
    producer: ProducerEpoch | None = None
    """Whose transaction the offsets belong to: they count once that has committed."""


Reply = JoinReply | SyncReply


class StaticRejoin(NamedTuple):
    """A static member that came back into a stable group: `reply` is its answer once the record holds its new id."""

    token: Token
    reply: JoinReply


class Append(NamedTuple):
    """A record to append. Its fate comes back through `sync.appended` or `sync.append_failed`."""

    metadata: GroupMetadata
    rejoin: StaticRejoin | None = None


@dataclass(slots=True)
class Step:
    """One step of a group: it goes in with the time and the settings, and comes out with what is to be done: answers to
    give, a record to append, lines to log.
    """

    now: Now
    config: GroupConfig
    replies: list[tuple[Token, Reply]] = field(default_factory=list)
    append: Append | None = None
    notes: list[str] = field(default_factory=list)

    def reply(self, token: Token, reply: Reply) -> None:
        """Answer the request named `token`."""
        self.replies.append((token, reply))

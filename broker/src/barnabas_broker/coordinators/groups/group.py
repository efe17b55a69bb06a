"""A classic consumer group: its members and its state, without IO and clock.

The module `rebalance` decides the join phase, and converts the durable state of a group to its record in
`__consumer_offsets`; all other state is lost when the broker stops. The module `membership` (SyncGroup, heartbeat,
leave, deadlines) decides what happens, and functions here judge commits and deletions of offsets; only the methods of
Group write the fields of a group and of its members. A `Step` collects replies, a record and log lines. The module
`shard` sends the replies, appends the record and logs the lines.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import ClassVar, Final

import msgspec

from barnabas_broker.coordinators.groups.messages import (
    CONSUMER_PROTOCOL_TYPE,
    NO_MEMBER_ID,
    NO_TIMESTAMP,
    CommitRequest,
    CommittedOffset,
    JoinedMember,
    JoinReply,
    JoinRequest,
    Member,
    Token,
    subscribed_topics,
)
from barnabas_broker.coordinators.modern.group import ConsumerGroup
from barnabas_broker.coordinators.modern.records import MemberProtocol
from barnabas_broker.coordinators.runtime.turns import Now
from barnabas_core.errors import ErrorCode
from barnabas_core.group_lag import is_marked, lacks_content
from barnabas_core.topic_partition import TopicPartition


class GroupState(Enum):
    """The states of a group, with the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_GENERATION_MAX: Final = 2**31 - 1
"""The largest generation id; the next generation has the id 0, because a negative id means no generation."""

PREVIOUS_STATES: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""The states from which each state may be entered. A Dead group becomes Empty again if its deletion is not stored."""


class JoinDeadline(msgspec.Struct):
    """The time at which the join phase ends. New members extend the first join phase of an Empty group (KIP-134)."""

    at_ms: int
    is_initial: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0
    new_member_added: bool = False
    paused_until_ms: int = 0
    """The monotonic time in ms until which the join phase lasts even if all members have joined; 0 if it may end at
    once."""

    def end_pause(self) -> None:
        """Allow the join phase to end as soon as all members have joined."""
        self.paused_until_ms = 0


class Group(msgspec.Struct, eq=False):
    """A classic consumer group. Each deadline is set with `expect`, so `wake_ms` is never later than any deadline."""

    group_type: ClassVar[str] = "classic"
    """The type of the group, as clients see it."""
    group_id: str
    state: GroupState = GroupState.EMPTY
    state_timestamp_ms: int = NO_TIMESTAMP
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = msgspec.field(default_factory=dict)
    static_members: dict[str, str] = msgspec.field(default_factory=dict)
    """The member ids of static members, by group instance id."""
    pending_joins: dict[str, int] = msgspec.field(default_factory=dict)
    """The member ids that clients received but did not join with yet, with their deadlines in ms."""
    pending_syncs: set[str] = msgspec.field(default_factory=set)
    """The members of the current generation that have not sent a SyncGroup yet."""
    join_deadline: JoinDeadline | None = None
    sync_deadline_ms: int | None = None
    subscribed_topics: frozenset[str] | None = None
    """The topics to which members subscribe, None if the subscriptions are unknown."""
    storing_assignment: bool = False
    failed_stores: int = 0
    """The number of consecutive assignments that could not be stored."""
    wake_ms: int | None = None
    protocol_counts: Counter[str] = msgspec.field(default_factory=Counter)
    """The number of members that support each protocol."""
    metadata_bytes: int = 0
    """The bytes of the metadata of all members, for all their protocols."""

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first member becomes the leader and determines the group's protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self.pending_joins.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count(member.protocols)
        if self.leader is None:
            self.leader = member.member_id
        if self.join_deadline is not None and self.join_deadline.is_initial:
            self.join_deadline.new_member_added = True

    def _count(self, protocols: Sequence[MemberProtocol]) -> None:
        self.protocol_counts.update(_names(protocols))
        self.metadata_bytes += metadata_bytes(protocols)

    def _discount(self, protocols: Sequence[MemberProtocol]) -> None:
        self.protocol_counts.subtract(_names(protocols))
        self.metadata_bytes -= metadata_bytes(protocols)

    def give_id(self, member_id: str, deadline_ms: int) -> None:
        """Register a member id that was given to a client, which has to send JoinGroup with it before the deadline."""
        self.pending_joins[member_id] = self.expect(deadline_ms)

    def take_back_id(self, member_id: str) -> bool:
        """Remove a pending member id; return False if the id was not pending."""
        return self.pending_joins.pop(member_id, None) is not None

    def remove(self, member_id: str) -> Member:
        """Remove a member; if the leader is removed, the first other member becomes the leader."""
        member = self.members.pop(member_id)
        self.pending_syncs.discard(member_id)
        self._discount(member.protocols)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, old_member_id: str, request: JoinRequest) -> Member:
        """Replace the member id of a static member, which keeps its assignment and its leadership."""
        member, new_member_id = self.members[old_member_id], request.new_member_id
        assert member.instance_id is not None
        self.members = {
            (new_member_id if member_id == old_member_id else member_id): kept
            for member_id, kept in self.members.items()
        }
        member.member_id = new_member_id
        member.client_id, member.client_host = request.client_id, request.client_host
        member.is_new = False
        self.static_members[member.instance_id] = new_member_id
        if old_member_id in self.pending_syncs:
            self.pending_syncs.remove(old_member_id)
            self.pending_syncs.add(new_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def await_generation(self, member: Member, request: JoinRequest, token: Token) -> None:
        """Update a member from its JoinGroup request; the request is answered when the next generation begins."""
        self._discount(member.protocols)
        member.protocols = request.protocols
        self._count(request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = token

    def await_assignment(self, member: Member, token: Token) -> bool:
        """Note that a member waits for its assignment after a SyncGroup.

        Return True if the member is the leader and sent its first SyncGroup of the generation.
        """
        member.awaiting_sync = token
        is_first = self.leader == member.member_id and not self.storing_assignment
        self.storing_assignment |= is_first
        return is_first

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or NONE for the ids in a member's request.

        If another member has the instance id, the code is FENCED_INSTANCE_ID, which shuts the client down. If the other
        member was loaded from the group's record and has sent no request since, the record may be outdated, so the code
        is UNKNOWN_MEMBER_ID.
        """
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is not None and current != member_id:
                is_doubtful = self.members[current].is_unheard_of
                return ErrorCode.UNKNOWN_MEMBER_ID if is_doubtful else ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members, in ms."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def select_protocol(self) -> str:
        """Return the protocol that most members vote for, among the protocols that all members support."""
        size = len(self.members)
        candidates = {name for name, count in self.protocol_counts.items() if count == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def learn_subscribed_topics(self) -> None:
        """Set `subscribed_topics` from the members' metadata for the chosen protocol."""
        self.subscribed_topics = self._read_subscribed_topics()

    def _read_subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            of_member = subscribed_topics(member.metadata(self.protocol_name))
            if of_member is None:
                return None
            topics |= of_member
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member subscribes to the topic, or if the group's consumers have unknown subscriptions."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(self.members)
        return topic in self.subscribed_topics

    def begin_join_phase(self, deadline: JoinDeadline, now: Now) -> None:
        """Enter the join phase until `deadline`; clear the assignments if the last generation never became Stable."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.members.values():
                member.assignment = b""
        self.pending_syncs.clear()
        self.sync_deadline_ms = None
        self.storing_assignment = False
        self.transition(GroupState.PREPARING_REBALANCE, now)
        self.await_joins(deadline)

    def await_joins(self, deadline: JoinDeadline) -> None:
        """Set the deadline of the join phase."""
        self.join_deadline = deadline
        self.expect(deadline.paused_until_ms or deadline.at_ms)

    def begin_generation(self, now: Now) -> None:
        """End the join phase and begin the next generation; a group that nobody joined becomes Empty.

        If the leader did not rejoin, the first member that joined becomes the leader.
        """
        self.join_deadline = None
        self.generation = (self.generation + 1) & _GENERATION_MAX
        joined = [member for member in self.members.values() if member.awaiting_join is not None]
        if joined:
            if self.leader not in [member.member_id for member in joined]:
                self.leader = joined[0].member_id
            self.protocol_name = self.select_protocol()
            self.transition(GroupState.COMPLETING_REBALANCE, now)
            self.sync_deadline_ms = self.expect(now.steady_ms + self.rebalance_timeout_ms)
        else:
            self.protocol_name = self.leader = None
            self.failed_stores = 0
            self.transition(GroupState.EMPTY, now)
        self.learn_subscribed_topics()
        for member in joined:
            self.pending_syncs.add(member.member_id)
            member.is_new = False
            self.touch(member, now)

    def has_synced(self, member: Member) -> None:
        """Record that a member sent its SyncGroup; clear the deadline after the last member's SyncGroup."""
        self.pending_syncs.discard(member.member_id)
        if not self.pending_syncs:
            self.sync_deadline_ms = None

    def become_stable(self, assignments: Mapping[str, bytes], now: Now) -> None:
        """Set the stored assignments of the members and become Stable."""
        self.transition(GroupState.STABLE, now)
        self.storing_assignment = False
        self.failed_stores = 0
        for member in self.members.values():
            member.assignment = assignments[member.member_id]

    def store_failed(self) -> None:
        """Count an assignment that could not be stored."""
        self.failed_stores += 1

    def transition(self, state: GroupState, now: Now) -> None:
        """Enter a state, and record the wall-clock time of the transition."""
        assert self.state in PREVIOUS_STATES[state], (
            f"group {self.group_id} cannot change from state {self.state.value} to {state.value}"
        )
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    @property
    def can_rebalance(self) -> bool:
        """True if a rebalance may begin: the group is Empty, Stable or CompletingRebalance."""
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def expect(self, deadline_ms: int) -> int:
        """Set `wake_ms` to the deadline if the deadline is earlier than `wake_ms`; return the deadline."""
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms
        return deadline_ms

    def touch(self, member: Member, now: Now) -> None:
        """Restart the session timeout of a member, which has sent a request or was sent a response."""
        member.is_unheard_of = False
        member.session_deadline_ms = self.expect(now.steady_ms + member.session_timeout_ms)

    def reset_alarm(self) -> None:
        """Set `wake_ms` to the next deadline, after the passed deadlines were handled."""
        self.wake_ms = self.first_deadline_ms()

    def first_deadline_ms(self) -> int | None:
        """Return the earliest deadline, None if the group has no deadline."""
        deadlines = [member.session_deadline_ms for member in self.members.values() if not member.waits]
        deadlines.extend(self.pending_joins.values())
        if self.join_deadline is not None:
            deadlines.append(self.join_deadline.at_ms)
            if self.join_deadline.paused_until_ms:
                deadlines.append(self.join_deadline.paused_until_ms)
        if self.sync_deadline_ms is not None:
            deadlines.append(self.sync_deadline_ms)
        return min(deadlines, default=None)

    def join_reply(self, member: Member) -> JoinReply:
        """Return the JoinGroup reply for the current generation; only the leader's reply lists the members."""
        leads = self.leader == member.member_id
        return JoinReply(
            ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or "",
            members=tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol_name))
                for each in self.members.values()
                if leads
            ),
        )


def _names(protocols: Iterable[MemberProtocol]) -> set[str]:
    """Return the distinct protocol names, because a client may name a protocol twice."""
    return {protocol.name for protocol in protocols}


def metadata_bytes(protocols: Iterable[MemberProtocol]) -> int:
    """Return the bytes of a member's metadata for all its protocols."""
    return sum([len(protocol.metadata) for protocol in protocols])


COMMIT_WITH_EPOCHS: Final = 9
"""The first version of OffsetCommit with member epochs."""
TXN_COMMIT_WITH_EPOCHS: Final = 6
"""The first version of TxnOffsetCommit whose clients know the errors of member epochs."""

Offsets = Mapping[TopicPartition, CommittedOffset]
"""The committed offsets of one group."""


def check_commit(group: Group, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
    """Return an error code for an OffsetCommit, NONE if the commit is allowed.

    Members of the current generation may commit, except in CompletingRebalance. Clients without a generation may commit
    while the group is Empty. A commit restarts the member's session timeout.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.state is GroupState.EMPTY and generation < 0:
        return ErrorCode.NONE
    if generation < 0 and member_id == NO_MEMBER_ID and instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    group.touch(group.members[member_id], now)
    return ErrorCode.NONE


def check_transactional_commit(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Return the error code for a TxnOffsetCommit.

    The code is NONE if the request names no member, or names a current member and the current generation (KIP-447).
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    is_named = generation >= 0 or member_id != NO_MEMBER_ID or instance_id is not None
    if not is_named or (generation < 0 and group.state is GroupState.EMPTY):
        return ErrorCode.NONE
    error = group.check_member(member_id, instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def knows_member_epochs(request: CommitRequest) -> bool:
    """True if the client knows member epochs and the errors of consumer groups that have them (KIP-848, KIP-1319)."""
    first_version = COMMIT_WITH_EPOCHS if request.producer is None else TXN_COMMIT_WITH_EPOCHS
    return request.api_version >= first_version


def check_unknown_group_commit(request: CommitRequest) -> ErrorCode:
    """Return the error code for a commit to an unknown group: NONE if the commit names no generation."""
    if request.generation < 0:
        return ErrorCode.NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if knows_member_epochs(request) else ErrorCode.ILLEGAL_GENERATION


def following(offset: CommittedOffset, before: CommittedOffset | None, member_id: str, now_ms: int) -> CommittedOffset:
    """Return the offset to store, with its commit timestamp, for a commit that replaces the offset `before`.

    The Kubernetes operator marks each reset of an offset in the metadata of the offset, so that the reset is not
    repeated. The stored offset keeps the mark unless the client commits metadata of its own.
    """
    metadata = offset.metadata
    if before is not None and before.metadata and lacks_content(metadata, member_id) and is_marked(before.metadata):
        metadata = before.metadata
    return offset._replace(metadata=metadata, commit_timestamp_ms=now_ms)


def check_delete_group(group: Group) -> ErrorCode:
    """Return the error code for the deletion of a group (DeleteGroups): NONE if the group is Empty."""
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def check_delete_offsets(group: Group) -> ErrorCode:
    """Return the error code for an OffsetDelete (KIP-496), or NONE.

    If the group has members, its protocol type must be `consumer`, because only the metadata of consumers names the
    subscribed topics.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    known = group.state is GroupState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return ErrorCode.NONE if known else ErrorCode.NON_EMPTY_GROUP


def expiries(group: Group | ConsumerGroup, offsets: Offsets, retention_ms: int) -> Iterator[tuple[TopicPartition, int]]:
    """Yield each offset that can expire, with the wall-clock time in ms at which the offset expires.

    An offset expires after the retention, which begins:
    - in an Empty group: when the group became Empty;
    - in a Stable consumer group, for topics to which no member subscribes: at the commit;
    - in a group without a protocol type: at the commit;
    - in a consumer group of KIP-848, for topics to which no member subscribes: at the commit.
    All other offsets are in use and do not expire. If the commit itself set an expiry time, this time applies instead.
    """
    if isinstance(group, Group) and not _may_expire(group):
        return
    for topic_partition, offset in offsets.items():
        if not group.is_subscribed_to(topic_partition.topic):
            yield topic_partition, _expiry_ms(group, offset, retention_ms)


def _may_expire(group: Group) -> bool:
    if group.protocol_type is None or group.state is GroupState.EMPTY:
        return True
    return group.state is GroupState.STABLE and group.subscribed_topics is not None


def _expiry_ms(group: Group | ConsumerGroup, offset: CommittedOffset, retention_ms: int) -> int:
    if offset.expire_timestamp_ms is not None:
        return offset.expire_timestamp_ms
    since_ms = offset.commit_timestamp_ms
    if isinstance(group, Group) and group.protocol_type is not None and group.state is GroupState.EMPTY:
        since_ms = since_ms if group.state_timestamp_ms == NO_TIMESTAMP else group.state_timestamp_ms
    return since_ms + retention_ms

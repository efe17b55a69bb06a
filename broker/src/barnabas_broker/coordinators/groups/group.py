"""One classic consumer group: its members, its state, and the rules that hold in every phase. No IO, no clock.

What is durable of a group is in its record (`records.GroupMetadata`); the rest is soft and gone with the broker. The
phases have a file each: `join`, `rebalance`, `sync`, `membership` (heartbeat, leave, deadlines), `offsets`. Each
changes the group, and a `Step` takes what else is to be done: replies, a record, lines of the log. `shard` does that.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from barnabas_broker.coordinators.groups.messages import JoinedMember, JoinReply, MemberProtocol, Now, Token
from barnabas_broker.coordinators.groups.records import NO_TIMESTAMP, GroupMetadata, MalformedRecord, StoredMember
from barnabas_broker.coordinators.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from barnabas_core.errors import ErrorCode


class GroupState(Enum):
    """The states, by the names that clients are shown."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREVIOUS_STATES: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""From where a state may be entered. Empty after Dead: a deletion whose record could not be written is taken back."""


@dataclass(slots=True, eq=False)
class Member:
    """One member. At most one of its requests waits: `awaiting_join` or `awaiting_sync` names it."""

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
    """Has not had its first join answered, so it cannot send heartbeats yet."""
    is_unheard_of: bool = False
    """Known from the log alone. The coordinator before may have told the client a newer id that it could not write."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it says for that protocol; nothing where it does not know it."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def vote(self, candidates: Iterable[str]) -> str:
        """The candidate it likes best."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    @property
    def waits(self) -> bool:
        """It is owed an answer, so no heartbeat is expected. A new member may be gone, so it does not count."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)


@dataclass(slots=True)
class JoinDeadline:
    """When the join phase ends at the latest. The first after Empty is extended by new members while time remains."""

    at_ms: int
    is_initial: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0
    new_member_added: bool = False
    paused_until_ms: int = 0
    """Until then it does not end, though everybody may have joined: what fails at once is not to spin."""


@dataclass(slots=True, eq=False)
class Group:
    """The group. Whoever sets a deadline calls `expect`, so that `wake_ms` is never later than the first of them."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_timestamp_ms: int = NO_TIMESTAMP
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member id by group instance id."""
    pending_joins: dict[str, int] = field(default_factory=dict)
    """Ids given out but not yet used, with the deadline of each."""
    pending_syncs: set[str] = field(default_factory=set)
    """Members that know the generation and have not asked for their assignment."""
    join_deadline: JoinDeadline | None = None
    sync_deadline_ms: int | None = None
    subscribed_topics: frozenset[str] | None = None
    """None: not known, as the group does not speak the consumer protocol."""
    storing_assignment: bool = False
    failed_stores: int = 0
    """How many assignments in a row could not be stored."""
    wake_ms: int | None = None
    protocol_counts: Counter[str] = field(default_factory=Counter)
    """How many members know each protocol."""

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        """Take in a member; the first gives the group its protocol type and is its leader."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self.pending_joins.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.protocol_counts.update(_names(member.protocols))
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        """Let a member go; the first of the others leads if it led."""
        member = self.members.pop(member_id)
        self.pending_syncs.discard(member_id)
        self.protocol_counts.subtract(_names(member.protocols))
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, old_member_id: str, new_member_id: str) -> Member:
        """Give a static member a new id in the old one's place; assignment and leadership stay with the instance."""
        member = self.members[old_member_id]
        assert member.instance_id is not None
        self.members = {
            (new_member_id if member_id == old_member_id else member_id): kept
            for member_id, kept in self.members.items()
        }
        member.member_id = new_member_id
        self.static_members[member.instance_id] = new_member_id
        if old_member_id in self.pending_syncs:
            self.pending_syncs.remove(old_member_id)
            self.pending_syncs.add(new_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def set_protocols(self, member: Member, protocols: tuple[MemberProtocol, ...]) -> None:
        """A member tells anew what it can do."""
        self.protocol_counts.subtract(_names(member.protocols))
        member.protocols = protocols
        self.protocol_counts.update(_names(protocols))

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether it is who it says it is: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or NONE.

        FENCED_INSTANCE_ID ends a client for good, so it needs proof that another one has the name: a request under the
        current id. The log alone is none, as a client may know an id before it is written.
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
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Every member waits for the next generation, and nobody is about to join."""
        return not self.pending_joins and all(member.awaiting_join is not None for member in self.members.values())

    # Protocols

    def supports(self, protocol_type: str, protocols: tuple[MemberProtocol, ...]) -> bool:
        """Whether a member that can do these may come in: same type, and one protocol that all others know."""
        if not self.members:
            return bool(protocol_type and protocols)
        size = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.protocol_counts[protocol.name] == size for protocol in protocols
        )

    def select_protocol(self) -> str:
        """The protocol with most votes among those that all know; of equals the one voted for first."""
        size = len(self.members)
        candidates = {name for name, count in self.protocol_counts.items() if count == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members of the consumer protocol subscribe to; None where one of them cannot be read."""
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
        """Whether a member uses the topic; assumed of a consumer group whose subscriptions cannot be read."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(self.members)
        return topic in self.subscribed_topics

    # States and deadlines

    def transition(self, state: GroupState, now: Now) -> None:
        """Enters a state, and notes when."""
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state.value} to {state.value}"
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin, as none is in its join phase."""
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def expect(self, deadline_ms: int) -> int:
        """Note a deadline, so that the group is woken for it; returns it."""
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms
        return deadline_ms

    def touch(self, member: Member, now: Now) -> None:
        """The member lives: its session begins anew."""
        member.is_unheard_of = False
        member.session_deadline_ms = self.expect(now.steady_ms + member.session_timeout_ms)

    def first_deadline_ms(self) -> int | None:
        """The first of all deadlines; None where nothing is awaited."""
        deadlines = [member.session_deadline_ms for member in self.members.values() if not member.waits]
        deadlines.extend(self.pending_joins.values())
        if self.join_deadline is not None:
            deadlines.append(self.join_deadline.at_ms)
            if self.join_deadline.paused_until_ms:
                deadlines.append(self.join_deadline.paused_until_ms)
        if self.sync_deadline_ms is not None:
            deadlines.append(self.sync_deadline_ms)
        return min(deadlines, default=None)

    # Views

    def join_reply(self, member: Member) -> JoinReply:
        """The current generation, as this member is told of it."""
        leads = self.leader == member.member_id
        return JoinReply(
            ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or "",
            members=self.joined_members() if leads else (),
        )

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """All members, for the leader."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def metadata(self, assignments: Mapping[str, bytes]) -> GroupMetadata:
        """The record of this generation; members without an assignment get an empty one."""
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(self._stored(member, assignments) for member in self.members.values()),
        )

    def _stored(self, member: Member, assignments: Mapping[str, bytes]) -> StoredMember:
        return StoredMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            subscription=member.metadata(self.protocol_name),
            assignment=assignments.get(member.member_id, b""),
        )


def restore(group_id: str, stored: GroupMetadata, now: Now) -> Group:
    """The group as its record tells: Stable with sessions that begin now, or Empty. MalformedRecord."""
    _check_restorable(stored)
    group = Group(
        group_id,
        state=GroupState.STABLE if stored.members else GroupState.EMPTY,
        state_timestamp_ms=stored.state_timestamp_ms,
        generation=stored.generation,
        protocol_type=stored.protocol_type or None,
        protocol_name=stored.protocol,
    )
    for member in stored.members:
        protocols = () if stored.protocol is None else (MemberProtocol(stored.protocol, member.subscription),)
        restored = Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            protocols=protocols,
            assignment=member.assignment,
        )
        group.add(restored, stored.protocol_type)
        group.touch(restored, now)
        restored.is_unheard_of = True
    if stored.leader in group.members:
        group.leader = stored.leader
    group.subscribed_topics = group.compute_subscribed_topics()
    return group


def _check_restorable(stored: GroupMetadata) -> None:
    """Raises MalformedRecord: the rules that no step of a group looks at again."""
    if stored.generation < 0:
        raise MalformedRecord(f"generation {stored.generation}; 0 and more are allowed")
    if stored.members and not (stored.protocol_type and stored.protocol):
        raise MalformedRecord(f"{len(stored.members)} members without a protocol or its type")
    member_ids = [member.member_id for member in stored.members]
    instance_ids = [member.instance_id for member in stored.members if member.instance_id is not None]
    if "" in member_ids:
        raise MalformedRecord("a member without an id")
    for ids in (member_ids, instance_ids):
        if len(set(ids)) < len(ids):
            raise MalformedRecord(f"two members with one id among {', '.join(sorted(ids)[:10])}")


def _names(protocols: Iterable[MemberProtocol]) -> set[str]:
    """Each once, though a client may name one twice."""
    return {protocol.name for protocol in protocols}

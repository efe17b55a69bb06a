"""One classic consumer group: its members, its state, and the rules that hold in every phase. No IO, no clock.

The durable state of a group is in its record (`stored_group`); the rest is soft and lost with the broker. The phases
have a file each: `rebalance` (the join phase), `sync`, `membership` (heartbeat, leave, deadlines), `offsets`. They
decide; only the group writes its fields and its members'. A `Step` collects the effects (replies, a record, log lines)
for `shard` to carry out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from barnabas_broker.coordinators.groups.member import Member
from barnabas_broker.coordinators.groups.messages import (
    JoinedMember,
    JoinReply,
    JoinRequest,
    MemberProtocol,
    Now,
    Token,
)
from barnabas_broker.coordinators.groups.records import NO_TIMESTAMP
from barnabas_broker.coordinators.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from barnabas_core.errors import ErrorCode


class GroupState(Enum):
    """The states of a group, by the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_GENERATION_MAX: Final = 2**31 - 1
"""The largest generation, which 0 follows: negative ones mean that there is none."""

PREVIOUS_STATES: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""The states from which each may be entered. Dead to Empty: a deletion is undone if its record was not written."""


@dataclass(slots=True)
class JoinDeadline:
    """The latest end of the join phase. New members extend the first one after Empty while time remains."""

    at_ms: int
    is_initial: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0
    new_member_added: bool = False
    paused_until_ms: int = 0
    """The earliest end, even if all members have joined, so that a step that fails at once does not spin."""

    def end_pause(self) -> None:
        """Allow the phase to end from now on."""
        self.paused_until_ms = 0


@dataclass(slots=True, eq=False)
class Group:
    """A classic group. Each deadline is set with `expect`, so that `wake_ms` is never later than the first."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    state_timestamp_ms: int = NO_TIMESTAMP
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """The member ids by group instance id."""
    pending_joins: dict[str, int] = field(default_factory=dict)
    """The member ids that were assigned, but not yet used for a join, with their deadlines."""
    pending_syncs: set[str] = field(default_factory=set)
    """The members that know the generation and have not sent a SyncGroup."""
    join_deadline: JoinDeadline | None = None
    sync_deadline_ms: int | None = None
    subscribed_topics: frozenset[str] | None = None
    """The topics of all members; None if unknown, for example without the consumer protocol."""
    storing_assignment: bool = False
    failed_stores: int = 0
    """The number of assignments in a row that could not be stored."""
    wake_ms: int | None = None
    protocol_counts: Counter[str] = field(default_factory=Counter)
    """The number of members that support each protocol."""

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first gives the group its protocol type and is its leader."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self.pending_joins.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.protocol_counts.update(_names(member.protocols))
        if self.leader is None:
            self.leader = member.member_id
        if self.join_deadline is not None and self.join_deadline.is_initial:
            self.join_deadline.new_member_added = True

    def give_id(self, member_id: str, deadline_ms: int) -> None:
        """Note a newly assigned member id, valid until the deadline."""
        self.pending_joins[member_id] = self.expect(deadline_ms)

    def take_back_id(self, member_id: str) -> bool:
        """Drop a pending member id; return False if it is not pending."""
        return self.pending_joins.pop(member_id, None) is not None

    def remove(self, member_id: str) -> Member:
        """Remove a member; if it led, the first of the others leads."""
        member = self.members.pop(member_id)
        self.pending_syncs.discard(member_id)
        self.protocol_counts.subtract(_names(member.protocols))
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, old_member_id: str, request: JoinRequest) -> Member:
        """Give a static member a new id in the old one's place; assignment and leadership stay with the instance."""
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
        """Update a member from its JoinGroup, which waits for the next generation."""
        self.protocol_counts.subtract(_names(member.protocols))
        member.protocols = request.protocols
        self.protocol_counts.update(_names(request.protocols))
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = token

    def await_assignment(self, member: Member, token: Token) -> bool:
        """Let a member's sync wait; return True if it has the leader's assignment, stored once a generation."""
        member.awaiting_sync = token
        is_first = self.leader == member.member_id and not self.storing_assignment
        self.storing_assignment |= is_first
        return is_first

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check a member's ids: return UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or NONE.

        FENCED_INSTANCE_ID ends a client for good, so it needs proof that another client has the instance id: a request
        with the current member id. The log is no proof, as a client may get an id before it is written.
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
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Protocols

    def select_protocol(self) -> str:
        """Return the protocol with the most votes of those that all support; with equal votes the first voted for."""
        size = len(self.members)
        candidates = {name for name, count in self.protocol_counts.items() if count == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def learn_subscribed_topics(self) -> None:
        """Read the members' subscriptions from their metadata for the chosen protocol."""
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
        """Return True if a member uses the topic, or may: the subscriptions of a consumer group cannot be read."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(self.members)
        return topic in self.subscribed_topics

    # Phases

    def begin_join_phase(self, deadline: JoinDeadline, now: Now) -> None:
        """Enter the join phase; an assignment of the previous generation that was not stored is void."""
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
        """End the join phase: the leader stays if it joined, else the first that did; without any it is Empty."""
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
        """Note a member's SyncGroup; after the last one cancel the deadline."""
        self.pending_syncs.discard(member.member_id)
        if not self.pending_syncs:
            self.sync_deadline_ms = None

    def become_stable(self, assignments: Mapping[str, bytes], now: Now) -> None:
        """Take over the stored assignment and become Stable."""
        self.transition(GroupState.STABLE, now)
        self.storing_assignment = False
        self.failed_stores = 0
        for member in self.members.values():
            member.assignment = assignments[member.member_id]

    def store_failed(self) -> None:
        """Count an assignment that could not be stored."""
        self.failed_stores += 1

    # States and deadlines

    def transition(self, state: GroupState, now: Now) -> None:
        """Enter a state, and note the wall-clock time."""
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state.value} to {state.value}"
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    @property
    def can_rebalance(self) -> bool:
        """True if a rebalance may begin: the group is Empty, Stable or CompletingRebalance."""
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def expect(self, deadline_ms: int) -> int:
        """Note a deadline, so that the group is woken for it; return it."""
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms
        return deadline_ms

    def touch(self, member: Member, now: Now) -> None:
        """Restart a member's session timeout, after a sign of life."""
        member.is_unheard_of = False
        member.session_deadline_ms = self.expect(now.steady_ms + member.session_timeout_ms)

    def reset_alarm(self) -> None:
        """Set `wake_ms` to the next deadline, after the due ones were handled."""
        self.wake_ms = self.first_deadline_ms()

    def first_deadline_ms(self) -> int | None:
        """Return the first of all deadlines, or None."""
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
        """Return the JoinGroup reply with the current generation; the leader's lists all members."""
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
    """Return the protocol names, each once: a client may name one twice."""
    return {protocol.name for protocol in protocols}

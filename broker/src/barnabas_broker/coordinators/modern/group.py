"""The state of a modern group: its members, their subscriptions and assignments, and the epochs of all of these.

Records are the only way to change the durable state: a decision writes them to a `GroupChange`, which applies each at
once, so the rest of the decision, and the next one, sees its effect. Loading applies the same records, in any order.

In a `ConsumerGroup` (KIP-848) each partition has one owner, and members have member epochs. It also decides whose
commits and reads of offsets are current (KIP-1251).
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from enum import Enum
from typing import Any, Final
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.modern.assignors import Assignment
from barnabas_broker.coordinators.modern.records import (
    NOTHING,
    Current,
    GroupEpoch,
    Kind,
    MemberMetadata,
    ModernRecord,
    Owned,
    ResolvedRegex,
    TargetEpoch,
    Value,
)
from barnabas_broker.coordinators.runtime.turns import Now
from barnabas_core.errors import ApiError, ErrorCode

FIRST_EPOCH: Final = 1
"""The epoch of a new group, and of its target assignment, which is empty; the first member's epoch is 2."""
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
FENCED_AT_ONCE_MAX: Final = 100
"""The members that are fenced in one turn of the event loop: about 5 ms of work."""
NEVER: Final = -1
"""The version of the topics before any were looked at."""
_NONE: Final[Counter[str]] = Counter()
"""The counts of all groups that count nothing: most name no assignor, and have no regular expressions."""


class ModernState(Enum):
    """The states of a modern group, with the names that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ModernMember(msgspec.Struct, eq=False):
    """A member of a modern group. The deadlines are not stored: they begin again when the group is loaded."""

    member_id: str
    metadata: MemberMetadata | None = None
    """The metadata; None while loading has not found its record yet."""
    current: Current = Current()
    target: Assignment = msgspec.field(default_factory=lambda: NOTHING)
    session_deadline_ms: int | None = None
    """The time at which the member counts as gone; None until its first heartbeat is answered."""
    rebalance_deadline_ms: int | None = None
    """The time until which the member must have revoked partitions; None if it has none to revoke."""
    classic_deadline_ms: int | None = None
    """The time until which a classic member must join or sync; None if it need not."""

    @property
    def known(self) -> MemberMetadata:
        """The metadata of a member that is loaded."""
        assert self.metadata is not None
        return self.metadata

    @property
    def is_classic(self) -> bool:
        """True if the member uses the classic protocol."""
        return self.metadata is not None and self.metadata.classic_member_metadata is not None


class ModernGroup:
    """A group whose coordinator assigns partitions. What a subclass adds is what its kind of group does with them."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ModernMember] = {}
        self.static_members: dict[str, str] = {}
        """The member ids of static members, by instance id."""
        self.topic_names = _NONE
        """The number of members that subscribe to each topic by its name."""
        self.patterns = _NONE
        """The number of members that subscribe by each regular expression."""
        self.assignors = _NONE
        """The number of members that name each assignor."""
        self.classic_count = 0
        """The number of members that use the classic protocol."""
        self.regexes: dict[str, ResolvedRegex] = {}
        self._matched_topics = _NONE
        """The number of regular expressions that match each topic."""
        self.subscribed_names = 0
        """The number of topic names in the subscriptions of all members."""
        self.epochs_begun = 0
        """The number of epochs that have begun and were not counted as rebalances yet."""
        self.is_stored = False
        """True if the group has a record of its epoch."""
        self.topics_version = NEVER
        """The version of the cluster's topics with which the group's metadata hash was last compared."""
        self.regexes_version = NEVER
        """The version of the cluster's topics with which the regular expressions were last matched."""
        self.regexes_matched_ms: int | None = None
        """The monotonic time at which the regular expressions were last matched, perhaps only with new topics."""
        self.regexes_refreshed_ms = 0
        """The monotonic time at which they were last matched with all topics."""
        self.is_matching = False
        """True while the regular expressions are matched in turns of the event loop."""
        self.wake_ms: int | None = None
        self.is_assigning = False
        """True while a target assignment is computed in turns of the event loop."""

    @property
    def state(self) -> ModernState:
        """The state of the group."""
        if not self.members:
            return ModernState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ModernState.ASSIGNING
        is_stable = all(map(self.is_reconciled, self.members.values()))
        return ModernState.STABLE if is_stable else ModernState.RECONCILING

    def is_reconciled(self, member: ModernMember) -> bool:
        """True if the member has its whole target assignment."""
        return member.current.state == 0 and member.current.epoch == self.assignment_epoch

    def kind_of(self, role: Kind) -> Kind:
        """Return the kind of this group's records with the meaning `role` has in a consumer group."""
        return role

    def apply(self, record: ModernRecord) -> None:
        """Apply a record to the state."""
        item, value, role = record.item, record.value, record.kind.role
        if isinstance(value, MemberMetadata) or role is Kind.MEMBER:
            self._set_metadata(item, value)  # type: ignore[arg-type]
        elif isinstance(value, GroupEpoch):
            self.epoch, self.metadata_hash, self.is_stored = value.epoch, value.metadata_hash, True
        elif isinstance(value, TargetEpoch):
            self.assignment_epoch, self.assignment_timestamp_ms = value
        elif isinstance(value, ResolvedRegex) or role is Kind.REGEX:
            self._set_regex(item, value)  # type: ignore[arg-type]
        elif role is Kind.TARGET:
            self._set_target(item, value)
        elif role is Kind.CURRENT:
            self.set_current(item, value if isinstance(value, Current) else None)

    def _member(self, member_id: str) -> ModernMember:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ModernMember(member_id)
        return member

    def _set_metadata(self, member_id: str, metadata: MemberMetadata | None) -> None:
        if metadata is None and member_id not in self.members:
            return
        member = self._member(member_id)
        if member.metadata is not None:
            self._unlist(member_id, member.metadata)
        member.metadata = metadata
        if metadata is None:
            del self.members[member_id]
            return
        names = metadata.subscribed_topic_names
        if any(name not in self.topic_names for name in names):
            self.topics_version = NEVER
        self.topic_names = _counted(self.topic_names, names)
        self.subscribed_names += len(names)
        self.classic_count += metadata.classic_member_metadata is not None
        if metadata.server_assignor:
            self.assignors = _counted(self.assignors, (metadata.server_assignor,))
        if metadata.subscribed_topic_regex:
            self.patterns = _counted(self.patterns, (metadata.subscribed_topic_regex,))
        if metadata.instance_id is not None:
            self.static_members[metadata.instance_id] = member_id

    def _unlist(self, member_id: str, metadata: MemberMetadata) -> None:
        """Remove a member's metadata from the indexes."""
        self.classic_count -= metadata.classic_member_metadata is not None
        if any(self.topic_names[name] == 1 for name in metadata.subscribed_topic_names):
            self.topics_version = NEVER
        self.topic_names = _uncounted(self.topic_names, metadata.subscribed_topic_names)
        self.subscribed_names -= len(metadata.subscribed_topic_names)
        if metadata.server_assignor:
            self.assignors = _uncounted(self.assignors, (metadata.server_assignor,))
        if metadata.subscribed_topic_regex:
            self.patterns = _uncounted(self.patterns, (metadata.subscribed_topic_regex,))
        instance_id = metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _set_regex(self, pattern: str, resolved: ResolvedRegex | None) -> None:
        before = self.regexes.pop(pattern, None)
        if resolved is not None:
            self.regexes[pattern] = resolved
            self._matched_topics = _counted(self._matched_topics, resolved.topics)
        if before is not None:
            self._matched_topics = _uncounted(self._matched_topics, before.topics)
        self.topics_version = NEVER

    def _set_target(self, member_id: str, target: Any) -> None:
        if target is not None:
            self._member(member_id).target = target
        elif member_id in self.members:
            self.members[member_id].target = NOTHING

    def set_current(self, member_id: str, current: Current | None) -> None:
        """Set what a member has now; None if it has nothing any more."""
        if current is not None:
            self._member(member_id).current = current
        elif member_id in self.members:
            self.members[member_id].current = Current()

    def forget_unknown(self) -> None:
        """Remove the members whose metadata is not in the log, after the group was loaded."""
        for member_id in [each.member_id for each in self.members.values() if each.metadata is None]:
            self.set_current(member_id, None)
            del self.members[member_id]

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """Return the names of the topics to which a member subscribes; some may not exist."""
        names = frozenset(metadata.subscribed_topic_names)
        resolved = self.regexes.get(metadata.subscribed_topic_regex or "")
        return names if resolved is None else names.union(resolved.topics)

    def is_unresolved(self, metadata: MemberMetadata) -> bool:
        """True if the member subscribes by a regular expression whose topics are not known yet."""
        return bool(metadata.subscribed_topic_regex) and metadata.subscribed_topic_regex not in self.regexes

    def is_computing_for(self, member_id: str, change: "GroupChange") -> bool:
        """True if the group's assignment or topics of the member are being computed, or are to be after the change."""
        if self.assignment_epoch < self.epoch and (self.is_assigning or change.wants_targets):
            return True
        member = self.members.get(member_id)
        is_matching = self.is_matching or change.wanted_matching is not None
        return is_matching and member is not None and self.is_unresolved(member.known)

    def unmatched_patterns(self) -> set[str]:
        """Return the regular expressions whose topics are not known yet."""
        return self.patterns.keys() - self.regexes.keys()

    @property
    def subscription_size(self) -> int:
        """The number of members, of their topics, and of the topics of regular expressions."""
        return len(self.members) + self.subscribed_names + self._matched_topics.total()

    def all_topics(self) -> set[str]:
        """Return the names of the topics to which any member subscribes; some may not exist."""
        return self.topic_names.keys() | self._matched_topics.keys()

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member subscribes to the topic."""
        return topic in self.topic_names or topic in self._matched_topics

    def expect(self, deadline_ms: int) -> int:
        """Set `wake_ms` to the deadline if the deadline is earlier than `wake_ms`; return the deadline."""
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms
        return deadline_ms

    def late(self, now: Now) -> list[tuple[ModernMember, str]]:
        """Return members that have missed a deadline, each with what it has missed; find the next deadline.

        That is now if more members than FENCED_AT_ONCE_MAX are late: the rest is returned by the next call.
        """
        late: list[tuple[ModernMember, str]] = []
        self.wake_ms = None
        for member in self.members.values():
            for deadline_ms, missed in (
                (member.session_deadline_ms, "sent no heartbeat within its session timeout"),
                (member.rebalance_deadline_ms, "did not revoke its partitions within its rebalance timeout"),
                (member.classic_deadline_ms, "did not join or sync within its rebalance timeout"),
            ):
                if deadline_ms is not None and deadline_ms <= now.steady_ms and len(late) < FENCED_AT_ONCE_MAX:
                    late.append((member, missed))
                    break
                if deadline_ms is not None:
                    self.expect(deadline_ms)
        return late


def _counted(counts: Counter[str], names: Iterable[str]) -> Counter[str]:
    """Return the counts with one more of each name; they are changed unless they are _NONE."""
    counts = Counter() if counts is _NONE else counts
    counts.update(names)
    return counts


def _uncounted(counts: Counter[str], names: Iterable[str]) -> Counter[str]:
    """Return the counts with one fewer of each name."""
    for name in names:
        counts[name] -= 1
        if counts[name] <= 0:
            del counts[name]
    return counts or _NONE


class Matching(msgspec.Struct, frozen=True):
    """Regular expressions of a group, and the names with which they must be matched."""

    patterns: Collection[str]
    names: Collection[str]
    may_describe: Callable[[str], bool]
    """The right of the client for whose heartbeat they are matched."""
    adds: bool = False
    """True if the names are only those of topics that were created since all expressions were matched."""


class GroupChange:
    """A change of one group while it is decided: the records that it has written, and lines for the log."""

    def __init__(self, group: ModernGroup) -> None:
        self.group = group
        self.records: list[ModernRecord] = []
        self.notes: list[str] = []
        self.wants_targets = False
        """True if the group needs a target assignment that takes too long for one turn of the event loop."""
        self.wanted_matching: Matching | None = None
        """The matching that is due, if it takes too long for one turn of the event loop."""

    def write(self, kind: Kind, item: str, value: Value | None) -> None:
        """Write a record, and apply it to the group at once."""
        record = ModernRecord(self.group.kind_of(kind), self.group.group_id, item, value)
        self.group.apply(record)
        self.records.append(record)

    def bump(self, metadata_hash: int) -> None:
        """Begin the next epoch of the group."""
        self.write(Kind.GROUP, "", GroupEpoch(self.group.epoch + 1, metadata_hash))
        self.group.epochs_begun += 1

    def remove_member(self, member_id: str) -> None:
        """Remove a member with everything that it has."""
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.write(kind, member_id, None)


def tombstones(group: ModernGroup) -> Iterator[ModernRecord]:
    """Yield the records that remove a group and its members."""
    for role in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
        for member_id in group.members:
            yield ModernRecord(group.kind_of(role), group.group_id, member_id, None)
    yield ModernRecord(group.kind_of(Kind.TARGET_EPOCH), group.group_id, "", None)
    for pattern in group.regexes:
        yield ModernRecord(Kind.REGEX, group.group_id, pattern, None)
    yield ModernRecord(group.kind_of(Kind.OLD_TOPICS), group.group_id, "", None)
    yield ModernRecord(group.kind_of(Kind.GROUP), group.group_id, "", None)


_logger = logging.getLogger(__name__)


class ConsumerGroup(ModernGroup):
    """A consumer group with an index of the owners of all partitions."""

    group_type: Final = "consumer"
    """The type of the group, as clients see it."""
    protocol_type: Final = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self._owners: dict[UUID, dict[int, str]] = {}
        """The member that has each partition, or still has to revoke it."""

    def set_current(self, member_id: str, current: Current | None) -> None:
        """Set what a member has now, also in the index of owners."""
        member = self.members.get(member_id)
        had, has = _held(Current() if member is None else member.current), _held(current or Current())
        super().set_current(member_id, current)
        for topic_id, epochs in had.items():
            if topic_id not in has and topic_id in self._owners:
                self._set_owner(member_id, topic_id, epochs.keys(), NOTHING.keys())
        for topic_id, epochs in has.items():
            before = had.get(topic_id, NOTHING) if had else NOTHING
            if topic_id not in self._owners:
                self._owners[topic_id] = dict.fromkeys(epochs, member_id)
            elif before is not epochs:
                self._set_owner(member_id, topic_id, before.keys(), epochs.keys())

    def _set_owner(self, member_id: str, topic_id: UUID, had: Set[int], has: Set[int]) -> None:
        owners = self._owners[topic_id]
        for number in had - has:
            if owners.get(number) == member_id:
                del owners[number]
        for number in has:
            other_id = owners.setdefault(number, member_id)
            if other_id != member_id:
                owners[number] = self._later_one(other_id, member_id, topic_id, number)
        if not owners:
            del self._owners[topic_id]

    def _later_one(self, other_id: str, member_id: str, topic_id: UUID, number: int) -> str:
        """Return the owner with the later epoch, of two that only a load can find."""
        _logger.warning(
            "group %s: the members %s and %s both have partition %d of topic %s",
            *(self.group_id, other_id, member_id, number, topic_id),
        )
        other, member = self.members.get(other_id), self.members[member_id]
        return other_id if other is not None and other.current.epoch > member.current.epoch else member_id

    def free(self, member_id: str, topic_id: UUID, numbers: Set[int]) -> Collection[int]:
        """Return those partitions of a topic that no member but the given one has."""
        owners = self._owners.get(topic_id)
        return numbers if owners is None else [each for each in numbers if owners.get(each, member_id) == member_id]

    def check_commit(self, member_id: str, epoch: int, partitions: Iterable[tuple[UUID | None, int]]) -> None:
        """Check that a member may commit offsets of partitions. Raises ApiError.

        A member with an earlier epoch may commit offsets of partitions that it has had since that epoch or before. A
        client without a member epoch may commit while the group has no members.
        """
        if epoch < 0 and not self.members:
            return
        current = self._current_of(member_id)
        if epoch == current.epoch:
            return
        if epoch < current.epoch and all(_had(current, epoch, topic_id, number) for topic_id, number in partitions):
            return
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH, f"the member epoch is {epoch}, but must be {current.epoch}")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that a member may read committed offsets. Raises ApiError."""
        if member_id is None and epoch < 0:
            return
        current = self._current_of(member_id or "")
        if epoch != current.epoch:
            is_classic = self.members[member_id or ""].is_classic
            code = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
            raise ApiError(code, f"the member epoch is {epoch}, but must be {current.epoch}")

    def _current_of(self, member_id: str) -> Current:
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {member_id}")
        return member.current


def _held(current: Current) -> Owned:
    """Return the partitions that a member has, or still has to revoke.

    The epochs of a topic stay the same object if nothing changes: a member may have thousands of topics.
    """
    if not current.revoking:
        return current.assigned
    both = {**current.assigned, **current.revoking}
    for topic_id in current.revoking.keys() & current.assigned.keys():
        both[topic_id] = {**current.assigned[topic_id], **current.revoking[topic_id]}
    return both


def _had(current: Current, epoch: int, topic_id: UUID | None, number: int) -> bool:
    """True if the member has had the partition since the epoch, or since an earlier one."""
    since = _epoch_of(current.assigned, topic_id, number)
    since = _epoch_of(current.revoking, topic_id, number) if since is None else since
    return since is not None and since <= epoch


def _epoch_of(owned: Owned, topic_id: UUID | None, number: int) -> int | None:
    epochs: Mapping[int, int] = NOTHING if topic_id is None else owned.get(topic_id, NOTHING)
    return epochs.get(number)

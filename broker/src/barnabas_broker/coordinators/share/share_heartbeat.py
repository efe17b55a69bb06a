"""The handling of ShareGroupHeartbeat requests, without IO and clock: members join, go on, leave and are fenced.

A member has no partitions to revoke, because members share them: each heartbeat brings it to the target assignment at
once.

| the member's epoch in the request | member | the answer |
|---|---|---|
| 0 | unknown, and the group is full | GROUP_MAX_SIZE_REACHED |
| 0 | known or unknown | joins, or joins again |
| above 0, or -1 | unknown | UNKNOWN_MEMBER_ID |
| the current one, or the one before | known | goes on |
| any other above 0 | known | FENCED_MEMBER_EPOCH |
| -1 | known | leaves |

The assignor of share groups, `simple`, computes as Apache Kafka 4.4 does. Members share partitions: each
partition goes to as many members as balance needs, at least to one. Balance comes first, then stickiness. If all
members subscribe to the same topics, all partitions are balanced together, otherwise those of each topic. Kafka
visits members and partitions in the order of its hash maps; here they are visited in the order of their ids, as
Kafka does in small groups.

A share group (KIP-932): a modern group whose members share partitions, and the topics where it has share state. A
partition is assigned only after its share state was initialized at the share coordinator. `ShareTopics` says which
partitions are to be initialized, which ones are, and whether the state of a topic is about to be deleted.

| event | initializing | initialized | deleting |
|---|---|---|---|
| a member subscribes to partitions without state that no request initializes | added | | removed |
| the state was initialized | removed | added | |
| the state could not be initialized | removed | | |
| the offsets of a topic are to be deleted | removed | removed | added |
| the state of a topic was deleted, or the topic itself | removed | removed | removed |
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.modern.assignors import AssignmentInSteps, Subscribers
from barnabas_broker.coordinators.modern.consumer_heartbeat import JOIN_EPOCH, SUBSCRIPTION_BYTES_MAX, BeatReply
from barnabas_broker.coordinators.modern.group import LEAVE_EPOCH, GroupChange, ModernGroup, ModernMember, ModernState
from barnabas_broker.coordinators.modern.records import (
    Current,
    Kind,
    MemberMetadata,
    MemberState,
    ModernRecord,
    Owned,
    ShareTopics,
    TopicShare,
)
from barnabas_broker.coordinators.modern.targets import (
    Plan,
    Topics,
    World,
    assign,
    begin_epoch,
    begin_session,
    check_size,
    is_assignment_due,
    question,
    remove,
)
from barnabas_broker.coordinators.share_state.share_state import UNKNOWN_OFFSET, InitializeEntry
from barnabas_core.config.group_configs import ShareGroupConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps
from barnabas_core.topic_partition import TopicIdPartition

Partitions = Mapping[UUID, Collection[int]]
"""Partitions by topic id."""


class Uninitialized(msgspec.Struct, frozen=True):
    """The partitions of a topic that must be initialized."""

    topic_id: UUID
    share: TopicShare
    at_start: frozenset[int]
    """The partitions that begin at offset 0, because the topic got them after the group knew the topic.

    `share.auto.offset.reset` decides about all others. It would skip what was written to the new partitions before.
    """


class ShareGroup(ModernGroup):
    """A share group, with the topics where it has share state."""

    group_type: Final = "share"
    """The type of the group, as clients see it."""
    protocol_type: Final = "share"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topics = ShareTopics()
        self._open: dict[UUID, set[int]] = {}
        """The partitions, by topic id, whose initialization the share coordinators have not answered yet.

        None of them is initialized once more: the second request would have a later state epoch, and if it came after
        the answer to the first one, it would delete what members have acknowledged meanwhile. The set is not stored: a
        group that was loaded initializes all partitions again, and its epoch is not below that of earlier requests.
        """
        self._settled: tuple[int, bool] | None = None
        """The version of the topics, and whether initialized partitions are not assigned at that version.

        None if members, targets or state have changed since.
        """
        self._is_complete_at: int | None = None
        """The version of the topics for which all partitions of the members' topics have share state."""
        self.is_being_deleted = False
        """True while the share state of the whole group is deleted, before the group itself is."""

    @property
    def state(self) -> ModernState:
        """The state of the group; members share partitions, so there is nothing to wait for."""
        return ModernState.STABLE if self.members else ModernState.EMPTY

    def kind_of(self, role: Kind) -> Kind:
        """Return the kind of a share group's records with the meaning `role` has in a consumer group."""
        return role.of_share_group

    def apply(self, record: ModernRecord) -> None:
        """Apply a record to the state."""
        self._settled = self._is_complete_at = None
        if record.kind is Kind.SHARE_TOPICS:
            self.topics = record.value if isinstance(record.value, ShareTopics) else ShareTopics()
        else:
            super().apply(record)

    def has_unassigned(self, topics: Topics) -> bool:
        """True if partitions of the members' topics are initialized, but not assigned to any member."""
        if self._settled is None or self._settled[0] != topics.version():
            assigned: dict[UUID, set[int]] = {}
            for member in self.members.values():
                for topic_id, numbers in member.target.items():
                    assigned.setdefault(topic_id, set()).update(numbers)
            found = any(
                not each.partitions <= assigned.get(topic_id, set())
                for topic_id, each in self.topics.initialized.items()
                if each.name in self.topic_names and _is_current(topics, each.name, topic_id)
            )
            self._settled = topics.version(), found
        return self._settled[1]

    @property
    def has_open_initializations(self) -> bool:
        """True if the share coordinators have not answered all initializations."""
        return bool(self._open)

    def begin_initializations(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Note that the initialization of partitions is decided, before its record is written."""
        for topic_id, number in partitions:
            self._open.setdefault(topic_id, set()).add(number)

    def end_initializations(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Note that the share coordinators have answered, or that they will not be asked."""
        for topic_id, number in partitions:
            numbers = self._open.get(topic_id, set())
            numbers.discard(number)
            if not numbers:
                self._open.pop(topic_id, None)

    def to_initialize(self, topics: Topics) -> list[Uninitialized]:
        """Return the partitions of the members' topics without share state that are not being initialized."""
        if self._is_complete_at == topics.version() or not self.metadata_hash:  # No topic of the members exists.
            return []
        found, is_complete = list[Uninitialized](), True
        for name in sorted(self.topic_names):
            topic = topics.find(name)
            if topic is None:
                continue
            done = partitions_of(self.topics.initialized, topic.topic_id)
            begun_before = partitions_of(self.topics.initializing, topic.topic_id)
            is_complete &= len(done) >= topic.partition_count
            lacking = frozenset(range(topic.partition_count)) - done - self._open.get(topic.topic_id, set())
            if lacking:
                at_start = lacking if done else lacking - begun_before if begun_before else frozenset()
                found.append(Uninitialized(topic.topic_id, TopicShare(name, lacking), at_start))
        self._is_complete_at = topics.version() if is_complete else None
        return found


def _is_current(topics: Topics, name: str, topic_id: UUID) -> bool:
    topic = topics.find(name)
    return topic is not None and topic.topic_id == topic_id


def partitions_of(topics: Mapping[UUID, TopicShare], topic_id: UUID) -> frozenset[int]:
    """Return the partitions of a topic, none if it is not there."""
    found = topics.get(topic_id)
    return frozenset() if found is None else found.partitions


def begun(topics: ShareTopics, found: Mapping[UUID, TopicShare]) -> ShareTopics:
    """Return the topics when partitions are about to be initialized."""
    return ShareTopics(
        _joined(topics.initializing, found),
        topics.initialized,
        {topic_id: name for topic_id, name in topics.deleting.items() if topic_id not in found},
    )


def finished(topics: ShareTopics, done: Partitions) -> ShareTopics:
    """Return the topics when partitions were initialized; those that are no longer being initialized do not count."""
    still = {
        topic_id: TopicShare(each.name, each.partitions & frozenset(done[topic_id]))
        for topic_id, each in topics.initializing.items()
        if topic_id in done
    }
    return topics._replace(
        initializing=without(topics.initializing, done), initialized=_joined(topics.initialized, still)
    )


def failed(topics: ShareTopics, undone: Partitions) -> ShareTopics:
    """Return the topics when partitions could not be initialized."""
    return topics._replace(initializing=without(topics.initializing, undone))


def deleting(topics: ShareTopics, names: Mapping[UUID, str]) -> ShareTopics:
    """Return the topics when the share state of some is about to be deleted."""
    return ShareTopics(
        _except(topics.initializing, names), _except(topics.initialized, names), {**topics.deleting, **names}
    )


def forgotten(topics: ShareTopics, topic_ids: Collection[UUID]) -> ShareTopics:
    """Return the topics without those whose share state was deleted, or that do not exist any more."""
    kept = {topic_id: name for topic_id, name in topics.deleting.items() if topic_id not in topic_ids}
    return ShareTopics(_except(topics.initializing, topic_ids), _except(topics.initialized, topic_ids), kept)


def size_bytes(topics: ShareTopics) -> int:
    """Return about how many bytes the record of the topics has."""
    shares = (*topics.initializing.values(), *topics.initialized.values())
    names = sum(len(name) for name in (*(each.name for each in shares), *topics.deleting.values()))
    return names + sum(4 * len(each.partitions) for each in shares) + 20 * (len(shares) + len(topics.deleting))


def _joined(topics: Mapping[UUID, TopicShare], more: Mapping[UUID, TopicShare]) -> dict[UUID, TopicShare]:
    joined = dict(topics)
    for topic_id, each in more.items():
        if each.partitions:
            joined[topic_id] = TopicShare(each.name, each.partitions | partitions_of(topics, topic_id))
    return joined


def without(topics: Mapping[UUID, TopicShare], gone: Partitions) -> dict[UUID, TopicShare]:
    """Return the topics without some partitions; a topic without any partition is left out."""
    left = {
        topic_id: TopicShare(each.name, each.partitions - frozenset(gone.get(topic_id, ())))
        for topic_id, each in topics.items()
    }
    return {topic_id: each for topic_id, each in left.items() if each.partitions}


def _except(topics: Mapping[UUID, TopicShare], gone: Iterable[UUID]) -> dict[UUID, TopicShare]:
    names = frozenset(gone)
    return {topic_id: each for topic_id, each in topics.items() if topic_id not in names}


Assignable = Mapping[UUID, Sequence[int]]
"""The partitions that members may share, by topic id: those whose share state is initialized."""
_Place = tuple[UUID, int]
_STEP_BYTES: Final = 64


def simple(subscribers: Subscribers, assignable: Assignable) -> AssignmentInSteps:
    """Return an assignment in which each partition has as many members as balance needs, at least one.

    The longest step is a look at all partitions of one member.
    """
    order = sorted(subscribers)
    targets: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in order}
    for members, topics in _divisions(order, subscribers):
        places = [(topic_id, number) for topic_id in topics for number in assignable.get(topic_id, ())]
        held = []
        for member_id in members:
            target = subscribers[member_id].target
            held.append([(topic_id, number) for topic_id in topics for number in sorted(target.get(topic_id, ()))])
            yield len(held[-1]) * _STEP_BYTES
        yield len(places) * _STEP_BYTES
        for member_id, owned in zip(members, (yield from _Division(places, held).divided()), strict=True):
            for topic_id, number in owned:
                targets[member_id].setdefault(topic_id, set()).add(number)
            yield len(owned) * _STEP_BYTES
    return {name: {topic: frozenset(found) for topic, found in own.items()} for name, own in targets.items()}


def _divisions(order: Sequence[str], subscribers: Subscribers) -> Iterable[tuple[Sequence[str], Sequence[UUID]]]:
    """Yield members with topics that are divided among them: all topics at once, or one by one if members differ."""
    subscriptions = {subscribers[member_id].topics for member_id in order}
    topics = sorted(frozenset[UUID]().union(*subscriptions))
    if len(subscriptions) <= 1:
        yield order, topics
        return
    for topic_id in topics:
        yield [member_id for member_id in order if topic_id in subscribers[member_id].topics], [topic_id]


class _Division:
    """A division of partitions among members who all subscribe to them; a member is its index."""

    def __init__(self, places: Sequence[_Place], held: Sequence[Iterable[_Place]]) -> None:
        """Create the division; `held` has what each member has so far, in order."""
        known = set(places)
        self._sharers: dict[_Place, list[int]] = {place: [] for place in sorted(places)}
        self._held = [[place for place in own if place in known] for own in held]
        for member, own in enumerate(self._held):
            for place in own:
                self._sharers[place].append(member)
        self._sharing = -(-len(held) // len(places)) if places else 0
        average = self._sharing * len(places) / max(1, len(held))
        ends = [ceil(average * member) for member in range(len(held) + 1)]
        self._quotas = [high - low for low, high in pairwise(ends)]

    def divided(self) -> InSteps[list[list[_Place]]]:
        """Take what members or partitions have too much, and give what partitions lack; return what members have."""
        for member, own in enumerate(self._held):
            for place in own[: max(0, len(own) - self._quotas[member])]:
                own.remove(place)
                self._sharers[place].remove(member)
            yield len(own) * _STEP_BYTES
        for place, sharers in self._sharers.items():
            for member in sharers[: max(0, len(sharers) - self._sharing)]:
                sharers.remove(member)
                self._held[member].remove(place)
            yield len(sharers) * _STEP_BYTES
        yield from self._give()
        return self._held

    def _give(self) -> InSteps[None]:
        """Give partitions with too few members to those below their quota, who take turns.

        As in Kafka a member may take its turn twice for one partition, which then has fewer members than it should.
        """
        waiting = [member for member, own in enumerate(self._held) if len(own) < self._quotas[member]]
        turn, has_given = 0, False
        for place, sharers in self._sharers.items():
            lacks = self._sharing - len(sharers)
            while lacks > 0 and waiting:
                if turn >= len(waiting):
                    if not has_given:
                        break
                    turn, has_given = 0, False
                member = waiting[turn]
                turn += 1
                if member in sharers:
                    continue
                if place not in self._held[member]:
                    self._held[member].append(place)
                lacks -= 1
                has_given = True
                if len(self._held[member]) >= self._quotas[member]:
                    turn -= 1
                    del waiting[turn]
            yield _STEP_BYTES


ShareWorld = World[ShareGroupConfig]
"""The facts outside a share group on which a decision depends."""
SHARE_TOPICS_BYTES_MAX: Final = 900_000
"""The bytes of the record of the topics with share state; the log takes no record of more than 1 MiB."""
MEMBER_ID_CHARS_MAX: Final = 36
"""The maximum length of a member id, which is a UUID that the client makes."""


class ShareBeat(NamedTuple):
    """A ShareGroupHeartbeat request; None means that the value has not changed since the last heartbeat."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    topic_names: Sequence[str] | None = None


def check(beat: ShareBeat) -> None:
    """Check the fields of a request that do not depend on the group. Raises ApiError."""
    size = len("".join((*(beat.topic_names or ()), beat.rack_id or "")).encode())
    checks = (
        (not beat.member_id, "MemberId can't be empty."),
        (len(beat.member_id) > MEMBER_ID_CHARS_MAX, f"MemberId must have at most {MEMBER_ID_CHARS_MAX} characters."),
        (not beat.group_id, "GroupId can't be empty."),
        (beat.rack_id == "", "RackId can't be empty."),
        (beat.epoch == JOIN_EPOCH and not beat.topic_names, "SubscribedTopicNames must be set in first request."),
        (beat.epoch < LEAVE_EPOCH, f"MemberEpoch is {beat.epoch}, but must be {LEAVE_EPOCH} or more."),
        (size > SUBSCRIPTION_BYTES_MAX, f"The subscription has {size} bytes; {SUBSCRIPTION_BYTES_MAX} allowed."),
    )
    for is_wrong, message in checks:
        if is_wrong:
            raise ApiError(ErrorCode.INVALID_REQUEST, message)


class ShareReply(msgspec.Struct, frozen=True):
    """The answer to a ShareGroupHeartbeat, and the partitions whose share state must be initialized after it."""

    beat: BeatReply
    to_initialize: Sequence[InitializeEntry] = ()


def heartbeat(change: GroupChange, group: ShareGroup, beat: ShareBeat, world: ShareWorld) -> ShareReply:
    """Decide on a heartbeat; `change` is one of the group. Raises ApiError."""
    member = group.members.get(beat.member_id)
    if beat.epoch == LEAVE_EPOCH:
        return ShareReply(_leave(change, _checked(member, beat), world))
    if beat.epoch != JOIN_EPOCH:
        _check_epoch(_checked(member, beat).current, beat)
    elif member is None:
        check_size(group, world, "group.share.max.size")
    before = Current() if member is None else member.current
    is_due = _subscribe(change, None if member is None else member.metadata, beat)
    if group.assignment_epoch >= group.epoch:
        is_due |= group.has_unassigned(world.topics)
    begin_epoch(change, world, is_due=is_due)
    if is_assignment_due(group, world):
        assign(change, plan(group, world), world.now)
    member = group.members[beat.member_id]
    _reconcile(change, group, member, world, is_due=is_due)
    begin_session(group, member, world)
    return _initialize(change, group, _reply(member, before, beat, world), world)


def plan(group: ShareGroup, world: ShareWorld) -> InSteps[Plan]:
    """Return the computation of the group's next target assignment, of initialized partitions only."""
    subscribers, counts = yield from question(group, world.topics)
    assignable = {
        topic_id: sorted(number for number in each.partitions if number < counts[topic_id])
        for topic_id, each in group.topics.initialized.items()
        if topic_id in counts
    }
    size = len(subscribers) + sum(map(len, assignable.values()))
    return Plan(size, simple(subscribers, assignable))


def _checked(member: ModernMember | None, beat: ShareBeat) -> ModernMember:
    if member is None:
        message = f"Member {beat.member_id} is not a member of group {beat.group_id}."
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member


def _check_epoch(current: Current, beat: ShareBeat) -> None:
    """Check the member epoch. The previous one counts, because the last answer may be lost. Raises ApiError."""
    if beat.epoch not in (current.epoch, current.previous_epoch):
        message = f"the member epoch is {beat.epoch}, but must be {current.epoch}; the member must join again"
        raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _subscribe(change: GroupChange, old: MemberMetadata | None, beat: ShareBeat) -> bool:
    """Store what the heartbeat says about the member; return True if its topics have changed."""
    before = old or MemberMetadata()
    names = before.subscribed_topic_names if beat.topic_names is None else tuple(sorted(set(beat.topic_names)))
    rack_id = before.rack_id if beat.rack_id is None else beat.rack_id
    metadata = MemberMetadata(None, rack_id, beat.client_id, beat.client_host, names)
    if metadata != old:
        change.write(Kind.MEMBER, beat.member_id, metadata)
    return names != before.subscribed_topic_names


def _reconcile(
    change: GroupChange, group: ShareGroup, member: ModernMember, world: ShareWorld, *, is_due: bool
) -> None:
    """Give the member its target assignment, without topics to which it does not subscribe any more."""
    current = member.current
    if current.epoch == group.assignment_epoch and not is_due:
        return
    names, name_of = group.topics_of(member.known), world.topics.name_of
    assigned: Owned = {
        topic_id: dict.fromkeys(sorted(numbers), 0)
        for topic_id, numbers in member.target.items()
        if name_of(topic_id) in names
    }
    is_same_epoch = current.epoch == group.assignment_epoch
    previous = current.previous_epoch if is_same_epoch else current.epoch
    found = Current(group.assignment_epoch, previous, MemberState.STABLE, assigned)
    if found != current:
        change.write(Kind.CURRENT, member.member_id, found)


def _reply(member: ModernMember, before: Current, beat: ShareBeat, world: ShareWorld) -> BeatReply:
    current = member.current
    is_asked = beat.epoch == JOIN_EPOCH or beat.topic_names is not None
    is_sent = is_asked or not current.has_same_partitions(before)
    return BeatReply(
        member_id=member.member_id,
        epoch=current.epoch,
        heartbeat_interval_ms=world.settings.heartbeat_interval_ms,
        assignment=current.assigned if is_sent else None,
    )


def _initialize(change: GroupChange, group: ShareGroup, reply: BeatReply, world: ShareWorld) -> ShareReply:
    """Note the partitions without share state as initializing; they are initialized once the records are written."""
    found = group.to_initialize(world.topics)
    if not found:
        return ShareReply(reply)
    topics = begun(group.topics, {each.topic_id: each.share for each in found})
    if size_bytes(topics) > SHARE_TOPICS_BYTES_MAX:
        change.notes.append(f"{len(found)} topics more are not initialized: their record would be too large")
        return ShareReply(reply)
    change.write(Kind.OLD_TOPICS, "", topics)
    entries = [entry for each in found for entry in _entries(each, group.epoch)]
    group.begin_initializations(entry.partition for entry in entries)
    return ShareReply(reply, entries)


def _entries(found: Uninitialized, state_epoch: int) -> Iterator[InitializeEntry]:
    for number in sorted(found.share.partitions):
        start_offset = 0 if number in found.at_start else UNKNOWN_OFFSET
        yield InitializeEntry(TopicIdPartition(found.topic_id, number), state_epoch, start_offset)


def _leave(change: GroupChange, member: ModernMember, world: ShareWorld) -> BeatReply:
    change.notes.append(f"member {member.member_id} left")
    remove(change, [member], world)
    return BeatReply(member_id=member.member_id, epoch=LEAVE_EPOCH)

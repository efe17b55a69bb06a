"""The server-side assignors of consumer groups, `uniform` and `range`, computed as Apache Kafka 4.4 computes them.

Kafka visits members, and in `uniform` with equal subscriptions also topics and partitions, in the order of its hash
maps. Here they are visited in the order of their ids, so the same group always gets the same assignment. The numbers
of partitions, and how many of them move, do not depend on that order more than in Kafka. Where Kafka's order is
determined (`range`, and the topics of mixed subscriptions) the result is the same, partition for partition.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final
from uuid import UUID

import msgspec

from barnabas_core.loop_turns import InSteps

Assignment = Mapping[UUID, frozenset[int]]
TopicPartitionIndex = tuple[int, int]
"""A partition: the index of its topic, and its number."""

BALANCING_ROUNDS_MAX: Final = 16
"""The number of times that `uniform` visits each topic of mixed subscriptions, at most, to balance it."""
_FREE: Final = -1
_SIGNS: Final = 1 << 127 | 1 << 63
_PLACE_BYTES: Final = 64
_STEP_PLACES: Final = 256


class Subscriber(msgspec.Struct, frozen=True):
    """The facts about a member that an assignor uses: the topics that it subscribes to, and its target so far."""

    instance_id: str | None
    topics: frozenset[UUID]
    target: Assignment


Subscribers = Mapping[str, Subscriber]
PartitionCounts = Mapping[UUID, int]
AssignmentInSteps = InSteps[dict[str, Assignment]]


def uniform(subscribers: Subscribers, partition_counts: PartitionCounts) -> AssignmentInSteps:
    """Return an assignment that is balanced over all topics, and moves as few partitions as that allows.

    The longest step is a look at all partitions of one topic, or sorts the topics.
    """
    draft = _Draft(sorted(subscribers), subscribers, partition_counts)
    yield from draft.subscribe()
    yield from draft.keep_targets()
    if draft.has_equal_subscriptions:
        yield from _divide_equally(draft)
    else:
        yield from _give_free_partitions(draft)
        yield from _balance(draft)
    return (yield from draft.result())


def range_(subscribers: Subscribers, partition_counts: PartitionCounts) -> AssignmentInSteps:
    """Return an assignment of contiguous partitions of each topic; equal topics are divided at the same partitions.

    Static members come first, by instance id, then the others, by member id.
    """

    def place_in_order(member_id: str) -> tuple[bool, str]:
        instance_id = subscribers[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    draft = _Draft(sorted(subscribers, key=place_in_order), subscribers, partition_counts)
    yield from draft.subscribe()
    for topic, members in enumerate(draft.subscribers):
        least, extras = divmod(len(draft.owners[topic]), len(members))
        others = members[extras:] if least else ()
        draft.owners[topic] = [member for member in members[:extras] for _ in range(least + 1)]
        draft.owners[topic] += [member for member in others for _ in range(least)]
        yield len(draft.owners[topic]) * _PLACE_BYTES
    return (yield from draft.result())


ASSIGNORS: Final[Mapping[str, Callable[[Subscribers, PartitionCounts], AssignmentInSteps]]] = {
    "uniform": uniform,
    "range": range_,
}


class _Draft:
    """An assignment in the making: the owner of each partition, and how many partitions each member owns.

    A member is its index in the order in which members are visited, a topic its index in the order of the ids.
    """

    def __init__(self, order: Sequence[str], members: Subscribers, partition_counts: PartitionCounts) -> None:
        self.order = order
        self.sizes = [0] * len(order)
        self.topics: list[UUID] = []
        self.owners: list[list[int]] = []
        self.subscribers: list[Sequence[int]] = []
        self._members = members
        self._partition_counts = partition_counts
        self._numbers: dict[UUID, int] = {}

    @property
    def has_equal_subscriptions(self) -> bool:
        """True if all members subscribe to all of the topics."""
        return all(len(subscribers) == len(self.order) for subscribers in self.subscribers)

    def subscribe(self) -> InSteps[None]:
        """Find the topics and their subscribers. Topics that do not exist are ignored.

        Members with the same subscription are handled together, because a group may have thousands of each.
        """
        alike: dict[frozenset[UUID], list[int]] = {}
        for index, member_id in enumerate(self.order):
            alike.setdefault(self._members[member_id].topics, []).append(index)
            yield _PLACE_BYTES
        sets_of_topic: dict[UUID, list[int]] = {}
        for number, topics in enumerate(alike):
            for count, topic in enumerate(topics):
                if topic in self._partition_counts:
                    sets_of_topic.setdefault(topic, []).append(number)
                if count % _STEP_PLACES == 0:
                    yield _STEP_PLACES * _PLACE_BYTES
        self.topics = sorted(sets_of_topic, key=_as_in_kafka)
        self._numbers = {topic: number for number, topic in enumerate(self.topics)}
        self.owners = [[_FREE] * self._partition_counts[topic] for topic in self.topics]
        yield len(self.topics) * _PLACE_BYTES
        members = list(alike.values())
        merged: dict[tuple[int, ...], Sequence[int]] = {}
        for topic in self.topics:
            numbers = tuple(sets_of_topic[topic])
            if numbers not in merged:
                merged[numbers] = sorted(index for number in numbers for index in members[number])
                yield len(merged[numbers]) * _PLACE_BYTES
            self.subscribers.append(merged[numbers])

    def keep_targets(self) -> InSteps[None]:
        """Give each member its target, except for topics that it no longer subscribes to."""
        for index in range(len(self.order)):
            for number, target in self._targets(index):
                owners = self.owners[number]
                count = len(owners)
                for partition in target:
                    if partition < count and owners[partition] == _FREE:
                        owners[partition] = index
                        self.sizes[index] += 1
            yield self.sizes[index] * _PLACE_BYTES

    def _targets(self, member: int) -> Iterator[tuple[int, frozenset[int]]]:
        """Yield the topics of a member's target to which it still subscribes, with the partitions."""
        facts = self._members[self.order[member]]
        for topic, target in facts.target.items():
            if topic in self._numbers and topic in facts.topics:
                yield self._numbers[topic], target

    def kept(self, member: int) -> list[TopicPartitionIndex]:
        """Return the partitions that a member has kept of its target, in order."""
        return [
            (number, partition)
            for number, target in sorted(self._targets(member), key=itemgetter(0))
            for partition in sorted(target)
            if partition < len(self.owners[number]) and self.owners[number][partition] == member
        ]

    def free(self, topic: int) -> list[TopicPartitionIndex]:
        """Return the partitions of a topic without an owner."""
        return [(topic, partition) for partition, owner in enumerate(self.owners[topic]) if owner == _FREE]

    def assign(self, place: TopicPartitionIndex, member: int) -> None:
        """Make a member the owner of a partition, instead of its previous owner, if it has one."""
        topic, partition = place
        previous = self.owners[topic][partition]
        if previous != _FREE:
            self.sizes[previous] -= 1
        self.owners[topic][partition] = member
        self.sizes[member] += 1

    def result(self) -> AssignmentInSteps:
        """Return the partitions of each member by topic; topics without partitions of the member are absent."""
        assignments: list[dict[UUID, frozenset[int]]] = [{} for _ in self.order]
        shared: dict[frozenset[int], frozenset[int]] = {}  # A member often has the same numbers of very many topics.
        for topic, owners in zip(self.topics, self.owners, strict=True):
            for owner, owned in _by_owner(owners).items():
                numbers = frozenset(owned)
                assignments[owner][topic] = shared.setdefault(numbers, numbers)
            yield len(owners) * _PLACE_BYTES
        found: dict[str, Assignment] = dict(zip(self.order, assignments, strict=True))
        return found


def _by_owner(owners: Sequence[int]) -> dict[int, list[int]]:
    """Return the partitions of one topic by their owners."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for partition, owner in enumerate(owners):
        found[owner].append(partition)
    return found


def _divide_equally(draft: _Draft) -> InSteps[None]:
    """Take from members what is above their quota, and give it, and what was free, to those below theirs."""
    free: list[TopicPartitionIndex] = []
    for topic in range(len(draft.topics)):
        free += draft.free(topic)
        yield len(draft.owners[topic]) * _PLACE_BYTES
    unfilled: list[tuple[int, int]] = []
    least, extras = divmod(sum(map(len, draft.owners)), max(1, len(draft.order)))
    for member, size in enumerate(list(draft.sizes)):
        has_extra = extras > 0
        quota = least + has_extra
        if size > quota:
            free += draft.kept(member)[quota:]
        lacks = max(0, quota - size)
        # The last members must take the extra partitions that no other has taken.
        if lacks and has_extra and len(draft.order) - member > extras:
            lacks -= 1
            has_extra = False
        if lacks:
            unfilled.append((member, lacks))
        extras -= has_extra
        yield 0
    given = 0
    for member, lacks in unfilled:
        for place in free[given : given + lacks]:
            draft.assign(place, member)
        given += lacks
        yield lacks * _PLACE_BYTES


def _give_free_partitions(draft: _Draft) -> InSteps[None]:
    """Give each partition without an owner to the subscriber with the fewest partitions."""
    for topic in _by_partitions_per_subscriber(draft, range(len(draft.topics))):
        free = draft.free(topic)
        if free:
            levels = _Levels(draft.subscribers[topic], draft.sizes)
            for number, place in enumerate(free):
                draft.assign(place, levels.receiver())
                if number % _STEP_PLACES == 0:
                    yield _STEP_PLACES * _PLACE_BYTES


def _balance(draft: _Draft) -> InSteps[None]:
    """Move partitions between subscribers, topic by topic, until a whole round over the topics has moved none."""
    shared = [topic for topic, subscribers in enumerate(draft.subscribers) if len(subscribers) > 1]
    topics = _by_partitions_per_subscriber(draft, shared)
    last_moved: int | None = None
    for _ in range(BALANCING_ROUNDS_MAX):
        for topic in topics:
            if topic == last_moved:
                return
            moved = yield from _balance_topic(draft, topic)
            if moved or last_moved is None:
                last_moved = topic


def _balance_topic(draft: _Draft, topic: int) -> InSteps[int]:
    """Move partitions of a topic from its subscribers with the most partitions to those with the fewest.

    Return how many were moved. The last partition of a member goes first.
    """
    subscribers, moved = draft.subscribers[topic], 0
    yield 0
    sizes = list(map(draft.sizes.__getitem__, subscribers))
    if max(sizes) - min(sizes) <= 1:
        return moved
    owned = _by_owner(draft.owners[topic])
    levels = _Levels(subscribers, draft.sizes)
    while (donor := _donor(levels, owned)) is not None:
        partition = owned[donor].pop()
        receiver = levels.receiver()
        if levels.are_balanced:
            break
        draft.assign((topic, partition), receiver)
        moved += 1
        if moved % _STEP_PLACES == 0:
            yield 0
    return moved


def _donor(levels: "_Levels", owned: Mapping[int, Sequence[int]]) -> int | None:
    """Return the member that gives the next partition, or None if no member above the level of all has one."""
    while (donor := levels.donor()) is not None and not owned.get(donor):
        levels.exclude_donor()
    return donor


class _Levels:
    """The subscribers of a topic by the number of their partitions: receivers at the low end, donors at the high end.

    Receivers take turns. After a round, when each has one more, those subscribers join them that have as many already.
    Donors take turns in the same way, from the last one down.
    """

    def __init__(self, subscribers: Iterable[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._order = sorted(subscribers, key=sizes.__getitem__)
        self._low = sizes[self._order[0]] - 1
        self._low_end = self._next_low = 0
        self._high = sizes[self._order[-1]] + 1
        self._high_begin = self._high_end = len(self._order)
        self._next_high = len(self._order) - 1

    @property
    def are_balanced(self) -> bool:
        """True if donors have at most one partition more than receivers."""
        return self._high - self._low <= 1

    def receiver(self) -> int:
        """Return the member that receives the next partition."""
        if self._next_low >= self._low_end:
            self._low += 1
            while self._low_end < len(self._order) and self._size_at(self._low_end) == self._low:
                self._low_end += 1
            self._next_low = 0
        self._next_low += 1
        return self._order[self._next_low - 1]

    def donor(self) -> int | None:
        """Return the member that gives the next partition, or None if all donors are excluded."""
        if self._next_high < self._high_begin:
            if self._high_end <= self._high_begin and self._high_begin > 0:
                self._high = self._size_at(self._high_begin - 1)
            else:
                self._high -= 1
            while self._high_begin > 0 and self._size_at(self._high_begin - 1) == self._high:
                self._high_begin -= 1
            self._next_high = self._high_end - 1
        if self._next_high < 0:
            return None
        self._next_high -= 1
        return self._order[self._next_high + 1]

    def exclude_donor(self) -> None:
        """Let the donor that was returned last give no partitions of this topic any more, because it has none."""
        self._high_end -= 1
        place, end = self._next_high + 1, self._high_end
        self._order[place], self._order[end] = self._order[end], self._order[place]

    def _size_at(self, place: int) -> int:
        return self._sizes[self._order[place]]


def _by_partitions_per_subscriber(draft: _Draft, topics: Iterable[int]) -> list[int]:
    """Sort topics by partitions per subscriber, most first; then by subscribers, fewest first; then by id."""

    def rank(topic: int) -> tuple[float, int, int]:
        subscribers = len(draft.subscribers[topic])
        return -len(draft.owners[topic]) / subscribers, subscribers, topic

    return sorted(topics, key=rank)


def _as_in_kafka(topic: UUID) -> int:
    """Return a key that sorts ids as Kafka does, which compares them as two signed integers."""
    return topic.int ^ _SIGNS

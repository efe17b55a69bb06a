"""The assignor of share groups, `simple`, computed as Apache Kafka 4.4 computes it.

Members share partitions: each partition goes to as many members as balance needs, at least to one. Balance comes first,
then stickiness. If all members subscribe to the same topics, all partitions are balanced together, otherwise those of
each topic. Kafka visits members and partitions in the order of its hash maps; here they are visited in the order of
their ids, as Kafka does in small groups.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Final
from uuid import UUID

from barnabas_broker.coordinators.modern.assignors import Assignment, AssignmentInSteps, Subscribers
from barnabas_core.loop_turns import InSteps, at_once

Assignable = Mapping[UUID, Sequence[int]]
"""The partitions that members may share, by topic id: those whose share state is initialized."""
_Place = tuple[UUID, int]
_STEP_BYTES: Final = 64


def simple(subscribers: Subscribers, assignable: Assignable) -> dict[str, Assignment]:
    """Return an assignment in which each partition has as many members as balance needs, at least one."""
    return at_once(simple_in_steps(subscribers, assignable))


def simple_in_steps(subscribers: Subscribers, assignable: Assignable) -> AssignmentInSteps:
    """Compute `simple` in steps; the longest is a look at all partitions of one member."""
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

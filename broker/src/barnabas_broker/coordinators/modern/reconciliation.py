"""The way of a member from the partitions that it has to those of its target assignment.

| state | the next heartbeat | to |
|---|---|---|
| STABLE | has the epoch of the target, and its subscription lacks no assigned topic | STABLE, unchanged |
| STABLE, UNREVOKED | the subscription no longer has the topic of an assigned partition | UNREVOKED, in the same epoch |
| UNREVOKED | does not show that all partitions are revoked | UNREVOKED, unchanged |
| STABLE, UNREVOKED, UNRELEASED | must revoke partitions that are not in the target | UNREVOKED, in the same epoch |
| STABLE, UNREVOKED, UNRELEASED | lacks partitions that other members still have | UNRELEASED, in the target's epoch |
| STABLE, UNREVOKED, UNRELEASED | has, or now gets, all partitions of the target | STABLE, in the target's epoch |

A partition has at most one owner: a member gets it when no other member has it, or is still to revoke it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import NamedTuple
from uuid import UUID

from barnabas_broker.coordinators.modern.assignors import Assignment
from barnabas_broker.coordinators.modern.records import NOTHING, Current, MemberState, Owned

Reported = Mapping[UUID, Collection[int]] | None
"""The partitions that a member says it owns, by topic id; None if the heartbeat does not say."""


class Aim(NamedTuple):
    """The target assignment that a member is to reach, its epoch, and what stands in the way."""

    epoch: int
    target: Assignment
    reported: Reported
    topics: frozenset[UUID] | None
    """The topics of its assignment and target to which the member subscribes.

    None if its regular expression is not resolved yet, or if the target was computed for its subscription.
    """
    free: Callable[[UUID, Set[int]], Collection[int]]
    """Return those partitions of a topic that no other member has."""


def reconciled(current: Current, aim: Aim) -> Current:
    """Return the member's next assignment; the same object if nothing changes."""
    if current.state is MemberState.STABLE and current.epoch == aim.epoch:
        return _without_unsubscribed(current, aim)
    if current.state is MemberState.UNREVOKED and _still_owns(aim.reported, current.revoking):
        return _without_unsubscribed(current, aim)
    return _next(current, aim)


def _still_owns(reported: Reported, revoking: Owned) -> bool:
    """True if the member owns partitions that it must revoke, or may own them because it does not say."""
    if reported is None:
        return True
    return any(not revoking.get(topic_id, NOTHING).keys().isdisjoint(owned) for topic_id, owned in reported.items())


def _without_unsubscribed(current: Current, aim: Aim) -> Current:
    """Return the assignment in which topics to which the member no longer subscribes are to be revoked."""
    gone = {} if aim.topics is None else {each: current.assigned[each] for each in current.assigned.keys() - aim.topics}
    if not gone:
        return current
    revoking = {topic_id: {**current.revoking.get(topic_id, NOTHING), **epochs} for topic_id, epochs in gone.items()}
    return current._replace(
        state=MemberState.UNREVOKED,
        assigned={topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in gone},
        revoking={**current.revoking, **revoking},
    )


def _next(current: Current, aim: Aim) -> Current:
    kept, revoking, added, is_whole = _differences(current, aim)
    if revoking and _still_owns(aim.reported, revoking):
        return _unless_equal(current, current.epoch, MemberState.UNREVOKED, kept, revoking)
    assigned = {**kept, **added}
    for topic_id in added.keys() & kept.keys():
        assigned[topic_id] = {**kept[topic_id], **added[topic_id]}
    state = MemberState.STABLE if is_whole else MemberState.UNRELEASED
    return _unless_equal(current, aim.epoch, state, assigned, NOTHING)


def _differences(current: Current, aim: Aim) -> tuple[Owned, Owned, Owned, bool]:
    """Return what the member keeps, what it must revoke, what it gets, and whether it then has its whole target."""
    kept: dict[UUID, Mapping[int, int]] = {}
    revoking: dict[UUID, Mapping[int, int]] = {}
    added: dict[UUID, Mapping[int, int]] = {}
    is_whole = True
    for topic_id, epochs, wanted in _topics(current, aim):
        is_subscribed = aim.topics is None or topic_id in aim.topics
        target = wanted if is_subscribed else frozenset()
        if not target or target == epochs.keys():  # A group with thousands of topics has no time for the general way.
            if epochs:
                (kept if target else revoking)[topic_id] = epochs
            continue
        lacking = target - epochs.keys() if epochs else target
        free = sorted(aim.free(topic_id, lacking))
        is_whole &= len(free) == len(lacking)
        if not epochs:
            if free:
                added[topic_id] = dict.fromkeys(free, aim.epoch)
            continue
        for found, epochs_of in (
            (kept, {number: epoch for number, epoch in epochs.items() if number in target}),
            (revoking, {number: epoch for number, epoch in epochs.items() if number not in target}),
            (added, dict.fromkeys(free, aim.epoch)),
        ):
            if epochs_of:
                found[topic_id] = epochs_of
    return kept, revoking, added, is_whole


def _topics(current: Current, aim: Aim) -> Iterator[tuple[UUID, Mapping[int, int], frozenset[int]]]:
    """Yield each topic that the member has or is to have, with both."""
    assigned, target = current.assigned, aim.target
    for topic_id, epochs in assigned.items():
        yield topic_id, epochs, target.get(topic_id, frozenset())
    for topic_id, numbers in target.items():
        if topic_id not in assigned:
            yield topic_id, NOTHING, numbers


def _unless_equal(current: Current, epoch: int, state: MemberState, assigned: Owned, revoking: Owned) -> Current:
    """Return the next assignment, or the current one if it is equal; a new epoch makes the last one the previous."""
    previous = current.previous_epoch if epoch == current.epoch else current.epoch
    found = Current(epoch, previous, state, assigned, revoking)
    return current if found == current else found

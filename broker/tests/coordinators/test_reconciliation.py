"""The table of a member's states, row by row, and what no order of heartbeats may bring about."""

import random
from collections.abc import Mapping
from functools import partial
from uuid import UUID

import pytest

from barnabas_broker.coordinators.modern.consumer_heartbeat import Aim, Reported, reconciled
from barnabas_broker.coordinators.modern.group import ConsumerGroup
from barnabas_broker.coordinators.modern.records import Current, Kind, MemberMetadata, MemberState, ModernRecord, Owned

T, U = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED, UNRELEASED = MemberState


def had(since: int, *numbers: int, topic: UUID = T) -> Owned:
    return {topic: dict.fromkeys(numbers, since)}


def aim(
    epoch: int,
    *target: int,
    reported: Reported = None,
    topics: frozenset[UUID] | None = frozenset({T}),
    taken: tuple[int, ...] = (),
) -> Aim:
    assignment = {T: frozenset(target)} if target else {}
    return Aim(epoch, assignment, reported, topics, lambda _, numbers: numbers - set(taken))


def test_topics_of_which_a_member_gets_the_same_partitions_share_one_object() -> None:
    target = {T: frozenset({0, 1}), U: frozenset({0, 1})}
    given = reconciled(Current(), Aim(2, target, None, None, lambda _, numbers: list(numbers))).assigned
    assert given[T] == {0: 2, 1: 2}
    assert given[T] is given[U]


@pytest.mark.parametrize(
    ("current", "to", "expected"),
    [
        (Current(2, 1, STABLE, had(2, 0)), aim(2, 0, 1), Current(2, 1, STABLE, had(2, 0))),
        (Current(0), aim(2, 0, 1), Current(2, 0, STABLE, had(2, 0, 1))),
        (Current(2, 1, STABLE, had(2, 0)), aim(3, 0, 1), Current(3, 2, STABLE, {T: {0: 2, 1: 3}})),
        (Current(2, 1, STABLE, had(2, 0)), aim(3, 0, 1, taken=(1,)), Current(3, 2, UNRELEASED, had(2, 0))),
        (
            Current(2, 1, STABLE, had(2, 0, 1)),
            aim(3, 0),
            Current(2, 1, UNREVOKED, had(2, 0), had(2, 1)),
        ),
        (Current(2, 1, STABLE, had(2, 0, 1)), aim(3, 0, reported={T: [0]}), Current(3, 2, STABLE, had(2, 0))),
        (
            Current(2, 1, UNREVOKED, had(2, 0), had(2, 1)),
            aim(3, 0, reported={T: [0, 1]}),
            Current(2, 1, UNREVOKED, had(2, 0), had(2, 1)),
        ),
        (
            Current(2, 1, UNREVOKED, had(2, 0), had(2, 1)),
            aim(3, 0, 2, reported={T: [0]}),
            Current(3, 2, STABLE, {T: {0: 2, 2: 3}}),
        ),
        (
            Current(2, 1, UNREVOKED, had(2, 0, 2), had(2, 1)),
            aim(4, 0, reported={T: [0, 2]}),
            Current(2, 1, UNREVOKED, had(2, 0), had(2, 2)),
        ),
        (Current(3, 2, UNRELEASED, had(2, 0)), aim(3, 0, 1), Current(3, 2, STABLE, {T: {0: 2, 1: 3}})),
        (
            Current(3, 2, UNRELEASED, had(2, 0)),
            aim(3, 0, 1, 2, taken=(2,)),
            Current(3, 2, UNRELEASED, {T: {0: 2, 1: 3}}),
        ),
        (Current(3, 2, UNRELEASED, had(2, 0)), aim(4, 1), Current(3, 2, UNREVOKED, {}, had(2, 0))),
        (
            Current(2, 1, STABLE, had(2, 0)),
            aim(2, 0, topics=frozenset()),
            Current(2, 1, UNREVOKED, {}, had(2, 0)),
        ),
        (Current(2, 1, STABLE, had(2, 0)), aim(2, 0, topics=None), Current(2, 1, STABLE, had(2, 0))),
        (Current(2, 1, STABLE, {}), aim(3, 0, topics=frozenset()), Current(3, 2, STABLE, {})),
        (
            Current(2, 1, UNREVOKED, had(2, 0), had(2, 1)),
            aim(3, 0, topics=frozenset({U})),
            Current(2, 1, UNREVOKED, {}, {T: {1: 2, 0: 2}}),
        ),
    ],
)
def test_member_comes_nearer_to_its_target(current: Current, to: Aim, expected: Current) -> None:
    assert reconciled(current, to) == expected


def test_nothing_new_is_the_same_object() -> None:
    waiting = Current(2, 1, UNREVOKED, had(2, 0), had(2, 1))
    for current, to in (
        (waiting, aim(3, 0)),
        (Current(2, 1, STABLE, had(2, 0)), aim(2, 0)),
        (Current(3, 2, UNRELEASED, had(2, 0)), aim(3, 0, 1, taken=(1,))),
    ):
        assert reconciled(current, to) is current


class _Members:
    """Three members of a group under random targets; each gives up and says what it owns late, or not at all."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.group = ConsumerGroup("g")
        self.epoch = 1
        self.targets: dict[str, frozenset[int]] = dict.fromkeys("abc", frozenset())
        self.owned: dict[str, frozenset[int]] = dict.fromkeys("abc", frozenset())
        for name in "abc":
            self.group.apply(ModernRecord(Kind.MEMBER, "g", name, MemberMetadata()))

    def assign(self) -> None:
        owners = [self.random.choice("abc") for _ in range(6)]
        self.epoch += 1
        self.targets = {name: frozenset(n for n, owner in enumerate(owners) if owner == name) for name in "abc"}

    def beat(self, name: str, *, speaks: bool) -> None:
        current = self.group.members[name].current
        to = Aim(
            self.epoch,
            {T: self.targets[name]},
            {T: self.owned[name]} if speaks else None,
            frozenset({T}),
            partial(self.group.free, name),
        )
        found = reconciled(current, to)
        self.group.apply(ModernRecord(Kind.CURRENT, "g", name, found))
        if self.random.random() < 0.7:
            self.owned[name] = _numbers(found.assigned)

    def check(self) -> None:
        """No partition is owned by two clients, or given to two members."""
        given = [
            number
            for member in self.group.members.values()
            for owned in (member.current.assigned, member.current.revoking)
            for number in _numbers(owned)
        ]
        assert len(given) == len(set(given))
        owned = [number for numbers in self.owned.values() for number in numbers]
        assert len(owned) == len(set(owned))


def _numbers(owned: Mapping[UUID, Mapping[int, int]]) -> frozenset[int]:
    return frozenset(number for numbers in owned.values() for number in numbers)


@pytest.mark.parametrize("seed", range(20))
def test_no_partition_has_two_owners_and_each_has_one_in_the_end(seed: int) -> None:
    members = _Members(seed)
    for _ in range(200):
        if members.random.random() < 0.1:
            members.assign()
        members.beat(members.random.choice("abc"), speaks=members.random.random() < 0.8)
        members.check()
    members.random = random.Random(0)
    for _ in range(40):
        for name in "abc":
            members.beat(name, speaks=True)
    assert members.owned == members.targets

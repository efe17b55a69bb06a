"""Each assignor of Java's consumers by an example of the documents, and what a group keeps when members come and go.

What an assignor computes is Java's; that its members agree on it, generation after generation, is ours (F43, F44).

Member ids begin with the client id, so the documents' names of consumers are their order here too. A whole group joins
at once, within the broker's initial delay.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest

from drivers.remote import RemoteClient, RemoteMember
from harness.deadline import wait_for

pytestmark = pytest.mark.soak(only=True)

RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
ROUND_ROBIN = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
STICKY = "org.apache.kafka.clients.consumer.StickyAssignor"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"

Assignments = dict[str, set[str]]


class Group:
    """Consumers by name; partitions read `A3` for partition 3 of topic A, whatever the topic is really called."""

    def __init__(self, java: RemoteClient, prefix: str, assignor: str, topics: Mapping[str, int]) -> None:
        self._java = java
        self._prefix = prefix
        self._assignor = assignor
        self.members: dict[str, RemoteMember] = {}
        for name, partitions in topics.items():
            java.create_topic(self._name(name), partitions, {})

    def _name(self, topic: str) -> str:
        return f"{self._prefix}-{topic}"

    def join(self, name: str, topics: Sequence[str]) -> None:
        config = {"partition.assignment.strategy": self._assignor}
        names = [self._name(topic) for topic in topics]
        self.members[name] = self._java.join(self._prefix, name, names, config=config)

    def leave(self, name: str) -> None:
        self.members.pop(name).leave()

    def assignments(self) -> Assignments:
        """Who has what, now."""
        strip = len(self._prefix) + 1
        held = {name: member.assignment() for name, member in self.members.items()}
        return {name: {f"{topic[strip:]}{partition}" for topic, partition in places} for name, places in held.items()}

    def expect(self, **expected: str) -> None:
        """Waits until the group has come to rest at the expected assignment."""
        wanted = {name: set(places.split()) for name, places in expected.items()}
        wait_for(self.assignments, lambda assignments: assignments == wanted)


MakeGroup = Callable[[str, Mapping[str, int], Mapping[str, str]], AbstractContextManager[Group]]


@pytest.fixture
def group_of(java: RemoteClient, topic: str) -> MakeGroup:
    @contextmanager
    def make(assignor: str, topics: Mapping[str, int], members: Mapping[str, str]) -> Iterator[Group]:
        group = Group(java, topic, assignor, topics)
        for name, subscribed in members.items():
            group.join(name, subscribed.split())
        yield group
        for name in list(group.members):
            group.leave(name)

    return make


def ten(topic: str, *partitions: int) -> str:
    return " ".join(f"{topic}{partition}" for partition in partitions)


def test_range_gives_the_first_of_three_one_more_of_ten(group_of: MakeGroup) -> None:
    with group_of(RANGE, {"T1-": 10}, {"C1-0": "T1-", "C2-0": "T1-", "C2-1": "T1-"}) as group:
        group.expect(**{"C1-0": ten("T1-", 0, 1, 2, 3), "C2-0": ten("T1-", 4, 5, 6), "C2-1": ten("T1-", 7, 8, 9)})


DIFFERENT = {"C0": "A", "C1": "A B", "C2": "A B C"}


def test_round_robin_of_three_different_subscriptions(group_of: MakeGroup) -> None:
    with group_of(ROUND_ROBIN, {"A": 1, "B": 2, "C": 3}, DIFFERENT) as group:
        group.expect(C0="A0", C1="B0", C2="B1 C0 C1 C2")


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE])
def test_sticky_keeps_what_the_others_have_when_one_leaves(group_of: MakeGroup, assignor: str) -> None:
    with group_of(assignor, {"A": 1, "B": 2, "C": 3}, DIFFERENT) as group:
        group.expect(C0="A0", C1="B0 B1", C2="C0 C1 C2")
        group.leave("C0")
        group.expect(C1="A0 B0 B1", C2="C0 C1 C2")


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE])
def test_sticky_moves_only_the_partitions_of_the_one_who_left(group_of: MakeGroup, assignor: str) -> None:
    topics = {"t0p": 2, "t1p": 2, "t2p": 2, "t3p": 2}
    with group_of(assignor, topics, dict.fromkeys(("C0", "C1", "C2"), " ".join(topics))) as group:
        group.expect(C0="t0p0 t1p1 t3p0", C1="t0p1 t2p0 t3p1", C2="t1p0 t2p1")
        group.leave("C1")
        # The document gives t2p0 to C0; today's assignor deals the free ones in order. What stays is the point.
        group.expect(C0="t0p0 t1p1 t3p0 t0p1", C2="t1p0 t2p1 t2p0 t3p1")


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN, STICKY, COOPERATIVE])
def test_twelve_rows_are_tilled_by_two_then_four_then_three_then_two(group_of: MakeGroup, assignor: str) -> None:
    with group_of(assignor, {"row": 12}, {"first": "row", "second": "row"}) as group:
        rest_at(group, 6)
        group.join("third", ["row"])
        group.join("fourth", ["row"])
        rest_at(group, 3)
        group.leave("second")
        rest_at(group, 4)
        group.leave("third")
        rest_at(group, 6)


def rest_at(group: Group, each: int) -> None:
    """Waits until each member has so many of the twelve rows, and no row is with two."""

    def fair(assignments: Assignments) -> bool:
        once = len(set().union(*assignments.values())) == 12
        return once and all(len(rows) == each for rows in assignments.values())

    wait_for(group.assignments, fair)


@pytest.mark.parametrize("assignor", [ROUND_ROBIN, STICKY])
def test_six_consumers_have_one_each_of_six_partitions_of_three_topics(group_of: MakeGroup, assignor: str) -> None:
    names = [f"C{n}" for n in range(6)]
    with group_of(assignor, {"A": 1, "B": 2, "C": 3}, dict.fromkeys(names, "A B C")) as group:
        wait_for(group.assignments, lambda held: sorted(map(len, held.values())) == [1] * 6)
        assert set().union(*group.assignments().values()) == {"A0", "B0", "B1", "C0", "C1", "C2"}


def test_twenty_consumers_have_five_each_of_a_hundred_partitions(group_of: MakeGroup) -> None:
    names = [f"C{n:02}" for n in range(20)]
    with group_of(RANGE, {"p": 100}, dict.fromkeys(names, "p")) as group:
        group.expect(**{name: ten("p", *range(5 * n, 5 * n + 5)) for n, name in enumerate(names)})


def test_the_strategy_that_most_members_name_wins_and_a_member_without_it_is_refused(
    java: RemoteClient, topic: str
) -> None:
    java.create_topic(topic, 2, {})
    both = {"partition.assignment.strategy": f"{ROUND_ROBIN},{RANGE}"}
    first = java.join(topic, "first", [topic], config=both)
    wait_for(first.assignment, lambda held: len(held) == 2)
    second = java.join(topic, "second", [topic], config={"partition.assignment.strategy": RANGE})
    wait_for(lambda: [len(member.assignment()) for member in (first, second)], lambda sizes: sizes == [1, 1])
    stranger = java.join(topic, "stranger", [topic], config={"partition.assignment.strategy": STICKY})
    with pytest.raises(Exception, match="InconsistentGroupProtocol"):
        wait_for(stranger.assignment)
    assert len(first.assignment()) == 1
    for member in (first, second, stranger):
        member.leave()

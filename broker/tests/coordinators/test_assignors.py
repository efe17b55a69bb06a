"""The server-side assignors on groups that are small enough to work out by hand."""

from collections.abc import Mapping
from uuid import UUID

from barnabas_broker.coordinators.modern.assignors import AssignmentInSteps, Subscriber, range_, uniform
from barnabas_core.loop_turns import at_once

LETTERS = UUID(int=1)
NUMBERS = UUID(int=2)
HIGH = UUID(int=1 << 127)
GONE = UUID(int=9)


def member(*topics: UUID, target: Mapping[UUID, set[int]] | None = None, instance_id: str | None = None) -> Subscriber:
    held = {topic: frozenset(partitions) for topic, partitions in (target or {}).items()}
    return Subscriber(instance_id, frozenset(topics), held)


def shown(steps: AssignmentInSteps) -> dict[str, dict[int, list[int]]]:
    """Return the assignments with topic numbers and sorted partitions."""
    return {
        name: {topic.int: sorted(partitions) for topic, partitions in assignment.items()}
        for name, assignment in at_once(steps).items()
    }


def test_uniform_gives_each_member_an_equal_share_of_all_topics() -> None:
    members = {name: member(LETTERS, NUMBERS) for name in ("a", "b")}
    # Kafka hands out free partitions topic by topic; the last member takes the extra one.
    assert shown(uniform(members, {LETTERS: 3, NUMBERS: 2})) == {"a": {1: [0, 1]}, "b": {1: [2], 2: [0, 1]}}


def test_uniform_takes_only_what_a_new_member_needs() -> None:
    members = {
        "a": member(LETTERS, target={LETTERS: {0, 1, 2}}),
        "b": member(LETTERS, target={LETTERS: {3, 4, 5}}),
        "c": member(LETTERS),
    }
    assert shown(uniform(members, {LETTERS: 6})) == {"a": {1: [0, 1]}, "b": {1: [3, 4]}, "c": {1: [2, 5]}}


def test_uniform_leaves_an_extra_partition_with_the_member_that_has_it() -> None:
    members = {"a": member(LETTERS, target={LETTERS: {0}}), "b": member(LETTERS, target={LETTERS: {1, 2}})}
    assert shown(uniform(members, {LETTERS: 3})) == {"a": {1: [0]}, "b": {1: [1, 2]}}


def test_uniform_balances_mixed_subscriptions_over_the_members_that_share_a_topic() -> None:
    members = {"a": member(LETTERS), "b": member(LETTERS, NUMBERS)}
    # NUMBERS goes first, because it has more partitions per subscriber (2 beside 3/2), and only b subscribes to it. Of
    # LETTERS a takes two to reach the level of b, and then the third, as the first of the two.
    assert shown(uniform(members, {LETTERS: 3, NUMBERS: 2})) == {"a": {1: [0, 1, 2]}, "b": {2: [0, 1]}}


def test_uniform_moves_the_last_partitions_of_the_member_with_the_most() -> None:
    members = {"a": member(LETTERS, target={LETTERS: {0, 1, 2, 3}}), "b": member(LETTERS, NUMBERS)}
    assert shown(uniform(members, {LETTERS: 4, NUMBERS: 1})) == {"a": {1: [0, 1, 2]}, "b": {1: [3], 2: [0]}}


def test_uniform_orders_topics_by_signed_ids() -> None:
    members = {"a": member(LETTERS, HIGH), "b": member(LETTERS, HIGH)}
    assert at_once(uniform(members, {LETTERS: 1, HIGH: 1}))["a"] == {HIGH: frozenset({0})}


def test_uniform_frees_partitions_of_topics_that_a_member_left() -> None:
    members = {"a": member(NUMBERS, target={LETTERS: {0}, NUMBERS: {0}}), "b": member(LETTERS)}
    assert shown(uniform(members, {LETTERS: 1, NUMBERS: 1})) == {"a": {2: [0]}, "b": {1: [0]}}


def test_a_partition_with_two_targets_stays_with_the_first_member() -> None:
    both = {LETTERS: {0, 1}}
    members = {"a": member(LETTERS, target=both), "b": member(LETTERS, target=both)}
    assert shown(uniform(members, {LETTERS: 2})) == {"a": {1: [0]}, "b": {1: [1]}}


def test_range_divides_equal_topics_at_the_same_partitions() -> None:
    members = {name: member(LETTERS, NUMBERS) for name in ("a", "b")}
    assert shown(range_(members, {LETTERS: 3, NUMBERS: 3})) == {"a": {1: [0, 1], 2: [0, 1]}, "b": {1: [2], 2: [2]}}


def test_range_gives_the_first_partitions_to_static_members_by_instance_id() -> None:
    members = {
        "a": member(LETTERS),
        "b": member(LETTERS, instance_id="pod-1"),
        "c": member(LETTERS, instance_id="pod-0"),
    }
    assert shown(range_(members, {LETTERS: 4})) == {"c": {1: [0, 1]}, "b": {1: [2]}, "a": {1: [3]}}


def test_members_beyond_the_partitions_have_none() -> None:
    members = {name: member(LETTERS) for name in ("a", "b", "c")}
    assert shown(range_(members, {LETTERS: 1})) == {"a": {1: [0]}, "b": {}, "c": {}}
    assert sorted(map(len, at_once(uniform(members, {LETTERS: 1})).values())) == [0, 0, 1]


def test_topics_that_do_not_exist_are_ignored() -> None:
    members = {"a": member(LETTERS, GONE, target={GONE: {0}})}
    for assign in (uniform, range_):
        assert shown(assign(members, {LETTERS: 1})) == {"a": {1: [0]}}


def test_a_group_without_topics_or_members_has_an_empty_assignment() -> None:
    for assign in (uniform, range_):
        assert shown(assign({}, {LETTERS: 1})) == {}
        assert shown(assign({"a": member()}, {LETTERS: 1})) == {"a": {}}


def test_a_large_assignment_is_computed_in_many_steps() -> None:
    topics = [UUID(int=number) for number in range(100)]
    members = {f"m{number}": member(*topics) for number in range(100)}
    assert len(list(uniform(members, dict.fromkeys(topics, 10)))) > 100

"""Heartbeats of strangers, of large groups and with expensive subscriptions delay nobody else (KIP-848)."""

from typing import Any
from unittest.mock import patch

import pytest
from consumer_world import GROUP, Consumer, group_of, numbers, settle
from coordinator_world import World

from barnabas_broker.coordinators.groups.consumer_groups import WAITS_MAX
from barnabas_broker.coordinators.modern.consumer_heartbeat import Beat, BeatReply
from barnabas_broker.coordinators.modern.group import FENCED_AT_ONCE_MAX
from barnabas_broker.coordinators.modern.shard import WAIT_S_MAX
from barnabas_broker.coordinators.modern.targets import question
from barnabas_core.errors import ErrorCode


@pytest.fixture
def world() -> World:
    world = World()
    world.topics.make("flights", 6)
    return world


def _join(world: World, count: int) -> list[BeatReply]:
    replies: list[BeatReply] = []
    for number in range(count):
        beat = Beat(GROUP, f"m{number:05}", 0, topic_names=["flights"], rebalance_timeout_ms=60_000, owned={})
        world.coordinator.beat(beat, 1, replies.append)
    world.timers.pass_time()
    return replies


def test_partitions_that_a_member_only_says_it_owns_stay_with_their_owner(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    settle(first, second)
    flights = world.topics.known["flights"].topic_id
    reply = second.beat(owned={flights: [0, 1, 2, 3, 4, 5, 99]})
    assert (reply.error, reply.assignment) == (ErrorCode.NONE, None)
    full = first.beat(rebalance_timeout_ms=60_000, topic_names=["flights"])
    assert numbers(full.assignment) == [0, 1, 2]


@pytest.mark.parametrize("text", ["a" * 10_240, "(", "a{1000}{1000}", r"\p{Nonsense}"])
def test_expression_that_is_too_long_or_not_valid_is_refused_and_changes_nothing(world: World, text: str) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    reply = second.join(topic_names=None, topic_regex=text)
    assert (reply.error, bool(reply.message)) == (ErrorCode.INVALID_REGULAR_EXPRESSION, True)
    assert (list(group_of(world).members), first.beat().epoch) == (["a"], 2)


def test_many_expressions_are_compiled_in_turns_of_the_loop_after_loading(world: World) -> None:
    for number in range(30):
        Consumer(world, f"m{number}").join(topic_names=None, topic_regex=f"flights|{number}")
    world.crash()
    world.topics.make("0", 1)
    world.coordinator.beat(Beat(GROUP, "m0", group_of(world).members["m0"].current.epoch), 1, lambda _: None)
    assert group_of(world).is_matching
    world.timers.pass_time()
    assert not group_of(world).is_matching
    assert group_of(world).all_topics() == {"flights", "0"}


def test_new_expression_is_matched_without_those_that_are_known(world: World) -> None:
    world.topics.make("planes", 2)
    Consumer(world, "a").join(topic_names=None, topic_regex="flights")
    seen: list[str] = []

    def may_describe(name: str) -> bool:
        seen.append(name)
        return True

    reply = Consumer(world, "b").join(topic_names=None, topic_regex="pl.*", may_describe=may_describe)
    assert (reply.error, seen) == (ErrorCode.NONE, ["planes"])


def test_hundreds_of_expressions_give_each_member_its_topics(world: World) -> None:
    members = [Consumer(world, f"m{number}") for number in range(200)]
    for number, member in enumerate(members):
        member.join(topic_names=None, topic_regex=f"flights|other{number}")
    settle(*members, rounds=3)
    group = group_of(world)
    assert (len(group.regexes), group.all_topics()) == (200, {"flights"})
    assert sorted(number for member in members for number in member.numbers) == [0, 1, 2, 3, 4, 5]


def test_topics_of_an_expression_are_forgotten_with_it(world: World) -> None:
    world.topics.make("planes", 2)
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join(topic_names=None, topic_regex="flights|planes")
    second.join(topic_names=None, topic_regex="planes")
    first.leave()
    group = group_of(world)
    assert (group.all_topics(), group.is_subscribed_to("flights")) == ({"planes"}, False)
    assert group.subscription_size == 2


def test_silent_members_of_a_large_group_are_fenced_in_several_turns(world: World) -> None:
    count = 2 * FENCED_AT_ONCE_MAX + 1
    _join(world, count)
    members = group_of(world).members
    late = group_of(world).late(world.coordinator.runtime.find(GROUP).now()._replace(steady_ms=10**9))
    assert len(late) == FENCED_AT_ONCE_MAX
    assert group_of(world).wake_ms is not None
    assert len(members) == count
    world.timers.pass_time(46)
    assert not group_of(world).members


def test_members_of_a_large_group_are_read_for_an_assignment_in_steps(world: World) -> None:
    _join(world, 100)
    steps = sum(1 for _ in question(group_of(world), world.topics))
    assert steps > 100


def test_heartbeats_during_a_long_assignment_do_not_begin_another(world: World) -> None:
    world.topics.make("flights", 2_000)
    _join(world, 2)
    group = group_of(world)
    group.is_assigning = True
    with patch.object(world.topics, "find", wraps=world.topics.find) as find:
        world.coordinator.beat(Beat(GROUP, "m00000", group.members["m00000"].current.epoch), 1, lambda _: None)
    find.assert_not_called()


def test_heartbeat_that_changes_nothing_compares_no_topics_of_the_member(world: World) -> None:
    class Uncomparable(dict[Any, Any]):
        def __eq__(self, _: object) -> bool:
            raise AssertionError("the topics are compared")

        __ne__ = __eq__
        __hash__ = None

    Consumer(world, "a").join()
    member = group_of(world).members["a"]
    member.current = member.current._replace(assigned=Uncomparable(member.current.assigned))
    replies: list[BeatReply] = []
    world.coordinator.beat(Beat(GROUP, "a", member.current.epoch, "client", "/127.0.0.1"), 1, replies.append)
    assert [(reply.error, reply.assignment) for reply in replies] == [(ErrorCode.NONE, None)]


def test_hundred_members_on_a_thousand_partitions_are_assigned_in_the_heartbeat_that_needs_it(world: World) -> None:
    world.topics.make("flights", 1_000)
    _join(world, 99)
    group = group_of(world)
    Consumer(world, "one-more").join_and_wait()
    assert (group.is_assigning, group.assignment_epoch) == (False, group.epoch)


def test_members_of_a_large_group_get_their_partitions_in_their_first_answers(world: World) -> None:
    world.topics.make("flights", 2_000)
    members = [Consumer(world, f"m{number}") for number in range(20)]
    for member in members:
        member.join_and_wait()
    assert not any(member.replies for member in members)
    world.timers.pass_time()
    shares = [numbers(reply.assignment) or [] for member in members for reply in member.replies]
    assert [len(share) for share in shares] == [100] * 20
    assert sorted(number for share in shares for number in share) == list(range(2_000))


def test_heartbeat_gets_the_target_that_is_computed_when_it_comes(world: World) -> None:
    world.topics.make("flights", 2_000)
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join_and_wait()
    assert len(numbers(first.beat().assignment) or ()) == 1_000


def test_heartbeat_that_waits_for_an_assignment_is_answered_when_the_coordinator_resigns(world: World) -> None:
    world.topics.make("flights", 2_000)
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    group_of(world).is_assigning = True
    second.join_and_wait()
    world.timers.pass_time()
    assert not second.replies
    world.resign()
    world.timers.pass_time()
    assert [reply.error for reply in second.replies] == [ErrorCode.NOT_COORDINATOR]


def test_heartbeat_that_waits_for_an_assignment_is_refused_when_its_member_has_left(world: World) -> None:
    world.topics.make("flights", 2_000)
    member = Consumer(world, "a")
    member.join_and_wait()
    member.begin(epoch=-1, owned=None)
    world.timers.pass_time()
    assert sorted(reply.error for reply in member.replies) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_heartbeat_is_answered_although_a_computation_takes_long(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    group_of(world).is_assigning = True
    second.join_and_wait()
    world.timers.pass_time(WAIT_S_MAX - 0.1)
    assert not second.replies
    world.timers.pass_time(0.2)
    assert [(reply.error, reply.assignment) for reply in second.replies] == [(ErrorCode.NONE, {})]
    world.resign()
    world.timers.pass_time()
    assert len(second.replies) == 1


def test_heartbeat_waits_for_a_few_computations_only(world: World) -> None:
    Consumer(world, "a").join()
    member = Consumer(world, "b")
    group_of(world).is_assigning = True
    member.join_and_wait()
    modern: Any = world.coordinator.runtime.find(GROUP).modern
    for _ in range(WAITS_MAX):
        world.timers.pass_time()
        assert not member.replies
        modern._computed(GROUP)  # It computes on.
    world.timers.pass_time()
    assert (member.replies[0].error, numbers(member.replies[0].assignment)) == (ErrorCode.NONE, [])

"""ConsumerGroupHeartbeat: who joins, goes on, leaves and is fenced, and what the group's epochs do (KIP-848)."""

from typing import Any

import pytest
from consumer_world import GROUP, Consumer, group_of, numbers, settle
from coordinator_world import Client, World
from msgspec.structs import replace

from barnabas_broker.coordinators.modern.consumer_heartbeat import Beat, BeatReply
from barnabas_broker.coordinators.modern.group import ModernState
from barnabas_broker.coordinators.modern.records import Kind, MemberState, decode
from barnabas_core.errors import ApiError, ErrorCode


@pytest.fixture
def world() -> World:
    world = World()
    world.topics.make("flights", 6)
    return world


def test_first_member_gets_epoch_2_and_all_partitions_in_its_first_answer(world: World) -> None:
    reply = Consumer(world, "a").join()
    assert (reply.error, reply.epoch, reply.heartbeat_interval_ms) == (ErrorCode.NONE, 2, 5_000)
    assert numbers(reply.assignment) == [0, 1, 2, 3, 4, 5]
    assert group_of(world).state is ModernState.STABLE


def test_second_member_gets_partitions_once_the_first_has_revoked_them(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    assert (second.join().epoch, second.numbers) == (3, [])
    revoking = first.beat()
    assert (revoking.epoch, first.numbers) == (2, [0, 1, 2])
    assert second.beat().assignment is None
    assert (first.beat().epoch, first.numbers) == (3, [0, 1, 2])
    assert (second.beat().epoch, second.numbers) == (3, [3, 4, 5])
    assert group_of(world).state is ModernState.STABLE


def test_member_that_waits_for_partitions_of_others_is_to_come_back_soon(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    assert second.join().heartbeat_interval_ms == 500
    assert second.beat().heartbeat_interval_ms == 500
    settle(first, second)
    assert second.numbers == [3, 4, 5]
    assert second.beat().heartbeat_interval_ms > 500


def test_members_of_a_group_that_has_changed_come_four_times_as_often_for_twelve_intervals(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    assert first.beat().heartbeat_interval_ms == 1_250
    settle(first, second)
    assert second.beat().heartbeat_interval_ms == 1_250
    for _ in range(3):
        world.clock.pass_time(20)
        last = first.beat(), second.beat()
    assert [each.heartbeat_interval_ms for each in last] == [5_000, 5_000]


def test_member_on_its_own_keeps_the_interval_because_it_waits_for_nobody(world: World) -> None:
    only = Consumer(world, "a")
    assert (only.join().heartbeat_interval_ms, only.beat().heartbeat_interval_ms) == (5_000, 5_000)


def test_clock_that_was_set_back_lets_no_member_come_more_often(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    settle(first, second)
    world.clock.ahead_ms = -3_600_000
    assert first.beat().heartbeat_interval_ms == 5_000


def test_members_of_a_large_group_do_not_come_back_sooner_than_the_group_can_answer(world: World) -> None:
    members = [Consumer(world, f"m{number}") for number in range(3)]
    world.consumer_settings = replace(world.consumer_settings, heartbeat_interval_ms=20)
    members[0].join()
    assert [members[1].join().heartbeat_interval_ms, members[2].join().heartbeat_interval_ms] == [3, 4]


def test_group_is_reconciling_until_each_member_has_its_target(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    assert group_of(world).state is ModernState.RECONCILING
    settle(first, second)
    assert group_of(world).state is ModernState.STABLE
    first.leave()
    assert group_of(world).state is ModernState.ASSIGNING
    second.leave()
    assert group_of(world).state is ModernState.EMPTY


def test_member_that_does_not_say_what_it_owns_keeps_nobody_from_waiting(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    first.beat(owned=None)
    first.beat(owned=None)
    assert second.beat().assignment is None
    assert first.beat().epoch == 3


def test_revoking_partitions_does_not_raise_the_epoch_before_the_target_is_reached(world: World) -> None:
    first, second, third = (Consumer(world, name) for name in "abc")
    first.join()
    second.join()
    assert first.beat().epoch == 2
    third.join()
    # The partitions to revoke for the second member are revoked; now the third needs some more.
    assert (first.beat().epoch, first.numbers) == (2, [0, 1])
    assert first.beat().epoch == 4
    settle(first, second, third)
    assert [len(each.numbers) for each in (first, second, third)] == [2, 2, 2]


def test_partition_that_a_member_revokes_itself_comes_back_to_it_at_once(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    first.beat()
    second.leave()
    # A third member's place is not taken; all partitions are the first member's again.
    assert first.beat().epoch == group_of(world).epoch
    assert first.numbers == [0, 1, 2, 3, 4, 5]


def test_member_that_left_frees_its_partitions_at_the_next_heartbeat_of_another(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    settle(first, second)
    assert (first.leave().epoch, group_of(world).epoch) == (-1, 4)
    second.beat()
    assert (second.epoch, second.numbers) == (4, [0, 1, 2, 3, 4, 5])


def test_group_that_all_members_left_has_equal_epochs(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    member.leave()
    group = group_of(world)
    assert (group.state, group.epoch, group.assignment_epoch) == (ModernState.EMPTY, 3, 3)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_first_heartbeat_is_refused_if_a_field_is_wrong(
    world: World, changes: dict[str, Any], error: ErrorCode
) -> None:
    reply = Consumer(world, "a").join(**changes)
    assert (reply.error, bool(reply.message)) == (error, True)
    assert not world.log.committed(0)


def test_partitions_that_a_joining_member_owns_are_refused(world: World) -> None:
    owned = {world.topics.known["flights"].topic_id: [0]}
    assert Consumer(world, "a").join(owned=owned).error is ErrorCode.INVALID_REQUEST


def test_member_without_topics_may_join(world: World) -> None:
    reply = Consumer(world, "a").join(topic_names=[])
    assert (reply.error, reply.epoch, numbers(reply.assignment)) == (ErrorCode.NONE, 1, [])


def test_unknown_member_and_wrong_epochs_are_refused(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    assert Consumer(world, "b").send(epoch=2).error is ErrorCode.UNKNOWN_MEMBER_ID  # type: ignore[union-attr]
    assert Consumer(world, "b").leave().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert member.beat(epoch=3).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert member.beat(epoch=1).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_previous_epoch_counts_only_if_the_partitions_are_within_the_assigned_ones(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    flights = world.topics.known["flights"].topic_id
    first.beat()
    first.beat()
    assert (first.epoch, first.numbers) == (3, [0, 1, 2])
    assert first.beat(epoch=2, owned=None).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert first.beat(epoch=2, owned={flights: [0, 5]}).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert first.beat(epoch=2, owned={flights: [0, 1]}).epoch == 3


def test_fenced_member_may_join_again_with_its_member_id(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    reply = member.join()
    assert (reply.epoch, numbers(reply.assignment)) == (2, [0, 1, 2, 3, 4, 5])


def test_answer_names_the_assignment_only_if_it_changed_or_the_request_is_full(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    assert member.beat().assignment is None
    full = member.beat(rebalance_timeout_ms=60_000, topic_names=["flights"])
    assert numbers(full.assignment) == [0, 1, 2, 3, 4, 5]


def test_full_group_accepts_only_members_and_their_static_successors(world: World) -> None:
    world.consumer_settings = replace(world.consumer_settings, max_size=1)
    member = Consumer(world, "a", instance_id="one")
    member.join()
    assert Consumer(world, "b").join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    member.leave(epoch=-2)
    assert Consumer(world, "c", instance_id="one").join().error is ErrorCode.NONE
    assert Consumer(world, "c", instance_id="one").send(epoch=2).error is ErrorCode.NONE  # type: ignore[union-attr]


def test_silent_member_is_fenced_after_its_session_timeout(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    settle(first, second)
    for _ in range(10):
        world.timers.pass_time(5)
        second.beat()
    assert list(group_of(world).members) == ["b"]
    assert second.numbers == [0, 1, 2, 3, 4, 5]
    assert first.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_does_not_revoke_is_fenced_after_its_rebalance_timeout(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join(rebalance_timeout_ms=10_000)
    second.join()
    first.beat()
    for _ in range(3):
        world.timers.pass_time(4)
        first.beat(owned=None)
        second.beat()
    assert list(group_of(world).members) == ["b"]


def test_member_that_revokes_in_time_is_not_fenced(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join(rebalance_timeout_ms=10_000)
    second.join()
    first.beat()
    first.beat()
    for _ in range(5):
        world.timers.pass_time(4)
        settle(first, second, rounds=1)
    assert list(group_of(world).members) == ["a", "b"]


def test_static_member_that_left_for_a_while_keeps_its_partitions_for_its_successor(world: World) -> None:
    first, second = Consumer(world, "a", instance_id="one"), Consumer(world, "b")
    first.join()
    second.join()
    settle(first, second)
    before, epoch = first.numbers, group_of(world).epoch
    assert first.leave(epoch=-2).epoch == -2
    successor = Consumer(world, "c", instance_id="one")
    reply = successor.join()
    assert (numbers(reply.assignment), reply.epoch, group_of(world).epoch) == (before, epoch, epoch)
    assert list(group_of(world).static_members.items()) == [("one", "c")]
    assert first.beat(epoch=3).error is ErrorCode.FENCED_INSTANCE_ID


def test_static_member_that_did_not_leave_keeps_its_instance_id(world: World) -> None:
    member = Consumer(world, "a", instance_id="one")
    member.join()
    assert Consumer(world, "b", instance_id="one").join().error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert member.join().error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_static_member_that_does_not_come_back_is_fenced(world: World) -> None:
    member = Consumer(world, "a", instance_id="one")
    member.join()
    member.leave(epoch=-2)
    world.timers.pass_time(46)
    assert not group_of(world).members
    assert not group_of(world).static_members


def test_successor_with_another_assignor_makes_another_assignment(world: World) -> None:
    first = Consumer(world, "a", instance_id="one")
    first.join(assignor="uniform")
    first.leave(epoch=-2)
    epoch = group_of(world).epoch
    Consumer(world, "b", instance_id="one").join(assignor="range")
    assert group_of(world).epoch == epoch + 1


def test_changed_instance_id_drops_the_old_one(world: World) -> None:
    member = Consumer(world, "a", instance_id="one")
    member.join()
    member.instance_id = "two"
    assert member.join().error is ErrorCode.NONE
    assert group_of(world).static_members == {"two": "a"}
    assert Consumer(world, "b", instance_id="one").join().error is ErrorCode.NONE


def test_member_that_unsubscribes_revokes_the_topic_before_it_has_a_target(world: World) -> None:
    world.topics.make("planes", 2)
    world.consumer_settings = replace(world.consumer_settings, assignment_interval_ms=10_000)
    member = Consumer(world, "a", ["flights", "planes"])
    member.join()
    assert len(member.numbers) == 8
    member.beat(topic_names=["flights"])
    assert member.numbers == [0, 1, 2, 3, 4, 5]
    assert group_of(world).members["a"].current.state is MemberState.UNREVOKED


def test_topic_that_is_made_or_grows_is_assigned_at_the_next_heartbeat(world: World) -> None:
    member = Consumer(world, "a", ["flights", "planes"])
    member.join()
    world.topics.make("planes", 2)
    assert len(numbers(member.beat().assignment) or ()) == 8
    world.topics.make("planes", 3)
    assert len(numbers(member.beat().assignment) or ()) == 9
    world.topics.delete("planes")
    assert len(numbers(member.beat().assignment) or ()) == 6


def test_other_topics_do_not_change_the_group(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    world.topics.make("planes", 2)
    assert (member.beat().epoch, group_of(world).epoch) == (2, 2)


def test_assignment_interval_is_waited_for(world: World) -> None:
    world.consumer_settings = replace(world.consumer_settings, assignment_interval_ms=10_000)
    first, second = Consumer(world, "a"), Consumer(world, "b")
    assert first.join().epoch == 2
    assert (second.join().epoch, group_of(world).epoch) == (2, 3)
    assert first.beat().epoch == 2
    world.timers.pass_time(11)
    settle(first, second)
    assert (first.numbers, second.numbers) == ([0, 1, 2], [3, 4, 5])


def test_clock_that_was_set_back_does_not_put_off_an_assignment(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    world.clock.ahead_ms -= 3_600_000
    second.join()
    settle(first, second)
    assert (first.numbers, second.numbers) == ([0, 1, 2], [3, 4, 5])


def test_answer_waits_until_the_records_are_committed(world: World) -> None:
    world.log.holding = True
    member = Consumer(world, "a")
    assert member.send(epoch=0, topic_names=["flights"], rebalance_timeout_ms=1, owned={}) is None
    assert member.send(epoch=2) is None
    world.log.commit()
    assert [reply.error for reply in member.replies] == [ErrorCode.NONE] * 2


def test_hundred_members_that_join_in_one_turn_cost_one_batch(world: World) -> None:
    before, replies = world.log.batches, list[BeatReply]()
    for number in range(100):
        world.coordinator.beat(_joining(f"m{number}"), 1, replies.append)
    world.timers.pass_time()
    assert (len(replies), world.log.batches - before) == (100, 1)


def _joining(name: str) -> Beat:
    return Beat(GROUP, name, 0, topic_names=["flights"], rebalance_timeout_ms=60_000, owned={})


def test_each_epoch_of_a_group_counts_as_a_rebalance(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    second.join()
    settle(first, second)
    assert world.coordinator.counters.consumer_group_rebalances == 2
    world.crash()
    second.leave()
    assert world.coordinator.counters.consumer_group_rebalances == 1


def test_records_of_a_join_are_in_kafkas_order(world: World) -> None:
    Consumer(world, "a").join()
    kinds = [int.from_bytes(key[:2], "big") for key, _ in world.log.committed(0)]
    assert kinds == [Kind.MEMBER, Kind.GROUP, Kind.TARGET, Kind.TARGET_EPOCH, Kind.CURRENT]


def test_records_of_a_leave_are_in_kafkas_order(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    before = len(world.log.committed(0))
    member.leave()
    records = [decode(key, value) for key, value in world.log.committed(0)[before:]]
    assert [(each.kind, each.value is None) for each in records if each is not None] == [
        (Kind.CURRENT, True),
        (Kind.TARGET, True),
        (Kind.MEMBER, True),
        (Kind.GROUP, False),
        (Kind.TARGET_EPOCH, False),
    ]


def test_next_coordinator_knows_the_group(world: World) -> None:
    first, second = Consumer(world, "a", instance_id="one"), Consumer(world, "b")
    first.join()
    second.join()
    first.beat()
    before = group_of(world)
    world.crash()
    after = group_of(world)
    assert (after.epoch, after.assignment_epoch, after.state) == (before.epoch, before.assignment_epoch, before.state)
    assert after.static_members == before.static_members
    for member_id, member in before.members.items():
        found = after.members[member_id]
        assert (found.metadata, found.current, found.target) == (member.metadata, member.current, member.target)
    settle(first, second)
    assert (first.numbers, second.numbers) == ([0, 1, 2], [3, 4, 5])


def test_next_coordinator_fences_members_that_it_never_hears_of(world: World) -> None:
    Consumer(world, "a").join()
    world.crash()
    world.timers.pass_time(46)
    assert not group_of(world).members


def test_write_that_fails_leaves_no_trace(world: World) -> None:
    member = Consumer(world, "a")
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert member.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.failing = None
    world.timers.pass_time(1)
    assert member.join().epoch == 2
    assert group_of(world).epoch == 2


def test_requests_behind_a_write_that_failed_are_refused_and_not_written(world: World) -> None:
    replies: list[BeatReply] = []
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    for name in "ab":
        world.coordinator.beat(_joining(name), 1, replies.append)
    world.timers.pass_time()
    assert {reply.error for reply in replies} <= {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
    world.log.failing = None
    world.timers.pass_time(1)
    assert not world.log.committed(0)


def test_classic_group_without_members_becomes_a_consumer_group(world: World) -> None:
    client = Client(world, "x", group_id=GROUP).join()
    client.sync()
    client.leave()
    assert Consumer(world, "a").join().error is ErrorCode.NONE
    world.crash()
    assert len(group_of(world).members) == 1


def test_classic_group_with_members_refuses_a_consumer(world: World) -> None:
    client = Client(world, "x", group_id=GROUP).join()
    client.sync()
    assert Consumer(world, "a").join().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_consumer_group_with_members_refuses_a_classic_member(world: World) -> None:
    Consumer(world, "a").join()
    assert Client(world, "x", group_id=GROUP).join().joined[-1].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_consumer_group_without_members_becomes_a_classic_group(world: World) -> None:
    member = Consumer(world, "a")
    member.join()
    member.leave()
    assert Client(world, "x", group_id=GROUP).join().joined[-1].error is ErrorCode.NONE
    world.crash()
    with pytest.raises(ApiError, match="not found"):
        group_of(world)


def test_large_group_is_assigned_in_turns(world: World) -> None:
    world.topics.make("flights", 2_000)
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join_and_wait()
    assert (first.replies, group_of(world).is_assigning) == ([], True)
    first.join()
    assert (first.epoch, len(first.numbers)) == (2, 2_000)
    second.join()
    settle(first, second)
    assert (len(first.numbers), len(second.numbers)) == (1_000, 1_000)


@pytest.mark.parametrize(
    ("count", "name_bytes", "message"),
    [
        (2_200, 246, "the subscription of a member has 541200 bytes, but must have at most 524288"),
        (10_001, 6, "the subscription of a member names 10001 topics, but must name at most 10000"),
    ],
)
def test_a_subscription_that_is_too_large_is_refused_and_disturbs_no_other_member(
    world: World, count: int, name_bytes: int, message: str
) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    reply = second.join(topic_names=[f"{number:06}{'x' * (name_bytes - 6)}" for number in range(count)])
    assert (reply.error, reply.message) == (ErrorCode.INVALID_REQUEST, message)
    assert list(group_of(world).members) == ["a"]
    assert first.beat().error is ErrorCode.NONE

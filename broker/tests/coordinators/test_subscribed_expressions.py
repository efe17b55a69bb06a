"""Members that subscribe by regular expressions (KIP-848): which topics they get, and when."""

import pytest
from consumer_world import Consumer, group_of, numbers, settle
from coordinator_world import World

from barnabas_broker.coordinators.modern.records import Kind
from barnabas_core.errors import ErrorCode


@pytest.fixture
def world() -> World:
    world = World()
    world.topics.make("flights", 6)
    return world


def test_regular_expression_gives_its_topics_in_the_first_answer(world: World) -> None:
    world.topics.make("planes", 2)
    world.topics.make("other", 3)
    reply = Consumer(world, "a").join(topic_names=None, topic_regex="flights|pl.*")
    assert (reply.epoch, len(numbers(reply.assignment) or ())) == (2, 8)
    kinds = [int.from_bytes(key[:2], "big") for key, _ in world.log.committed(0)]
    assert kinds == [Kind.MEMBER, Kind.REGEX, Kind.GROUP, Kind.TARGET, Kind.TARGET_EPOCH, Kind.CURRENT]


def test_regular_expression_matches_whole_names_beside_the_named_topics(world: World) -> None:
    world.topics.make("flights2", 2)
    world.topics.make("planes", 1)
    reply = Consumer(world, "a", ["planes"]).join(topic_regex="flights")
    assert len(numbers(reply.assignment) or ()) == 7


def test_regular_expression_that_is_not_valid_is_refused(world: World) -> None:
    reply = Consumer(world, "a").join(topic_regex="(")
    assert (reply.error, bool(reply.message)) == (ErrorCode.INVALID_REGULAR_EXPRESSION, True)
    assert not world.log.committed(0)


def test_regular_expression_matches_no_topic_that_the_client_may_not_describe(world: World) -> None:
    world.topics.make("planes", 2)
    reply = Consumer(world, "a").join(topic_names=None, topic_regex=".*", may_describe=lambda name: name == "planes")
    assert len(numbers(reply.assignment) or ()) == 2


def test_new_topic_that_matches_is_found_by_the_next_heartbeat(world: World) -> None:
    member = Consumer(world, "a")
    member.join(topic_names=None, topic_regex="flights|pl.*")
    world.topics.make("planes", 2)
    world.topics.make("other", 1)
    world.timers.pass_time(0.01)
    assert len(numbers(member.beat().assignment) or ()) == 8
    assert group_of(world).regexes["flights|pl.*"].topics == ("flights", "planes")


def test_new_topics_are_matched_at_most_each_ten_milliseconds_for_each_expression(world: World) -> None:
    members = [Consumer(world, name) for name in "abcd"]
    for member in members:
        member.join(topic_names=None, topic_regex=f"flights|p[l{member.name}].*")
    settle(*members)
    world.topics.make("planes", 1)
    world.timers.pass_time(0.03)
    assert (members[0].beat().assignment, "planes" in group_of(world).all_topics()) == (None, False)
    world.timers.pass_time(0.02)
    members[0].beat()
    assert "planes" in group_of(world).all_topics()


def test_topic_that_is_created_before_a_matching_in_turns_begins_is_found_by_the_next_one(world: World) -> None:
    members = [Consumer(world, f"m{number}") for number in range(25)]
    for member in members:
        member.join(topic_names=None, topic_regex=f"flights|p.*{member.name}")
    settle(*members)
    world.topics.make("planes-m0", 1)
    world.timers.pass_time(1)
    members[0].begin()
    assert group_of(world).is_matching
    world.topics.make("pilots-m0", 1)
    world.timers.pass_time(1)
    settle(*members)
    assert group_of(world).all_topics() == {"flights", "planes-m0", "pilots-m0"}


def test_more_partitions_and_deleted_topics_match_no_expression_again(world: World) -> None:
    world.topics.make("planes", 1)
    members = [Consumer(world, f"m{number}") for number in range(25)]
    for member in members:
        member.join(topic_names=None, topic_regex=f"flights|p.*{member.name}")
    settle(*members)
    world.topics.make("flights", 7)
    world.topics.delete("planes")
    world.timers.pass_time(1)
    members[0].begin()
    assert not group_of(world).is_matching


def test_topics_that_match_later_are_found_after_a_pause_if_it_is_not_known_which_are_new(world: World) -> None:
    member = Consumer(world, "a")
    member.join(topic_names=None, topic_regex=".*")
    world.topics.knows_created = False
    world.topics.make("planes", 2)
    world.timers.pass_time(9)
    assert member.beat().assignment is None
    world.timers.pass_time(2)
    assert len(numbers(member.beat().assignment) or ()) == 8


def test_topics_that_may_no_longer_be_described_leave_at_the_refresh_although_new_topics_were_matched(
    world: World,
) -> None:
    member, refresh_s = Consumer(world, "a"), world.consumer_settings.regex_refresh_interval_ms / 1000
    member.join(topic_names=None, topic_regex=".*")
    world.timers.pass_time(1)
    world.topics.make("planes", 2)
    member.beat()
    for _ in range(int(refresh_s // 30)):
        world.timers.pass_time(30)
        member.beat(may_describe=lambda name: name == "planes")
    assert group_of(world).all_topics() == {"planes"}


def test_regular_expression_that_is_dropped_begins_an_epoch_and_is_forgotten(world: World) -> None:
    member = Consumer(world, "a")
    member.join(topic_names=None, topic_regex="nothing.*")
    epoch = group_of(world).epoch
    member.beat(topic_names=["flights"], topic_regex="")
    assert (group_of(world).epoch, dict(group_of(world).regexes)) == (epoch + 1, {})


def test_regular_expression_goes_with_its_last_member(world: World) -> None:
    first, second = Consumer(world, "a"), Consumer(world, "b")
    for member in (first, second):
        member.join(topic_names=None, topic_regex="fl.*")
    first.leave()
    assert list(group_of(world).regexes) == ["fl.*"]
    second.leave()
    assert not group_of(world).regexes


def test_next_coordinator_knows_the_topics_of_regular_expressions(world: World) -> None:
    member = Consumer(world, "a")
    member.join(topic_names=None, topic_regex="fl.*")
    world.crash()
    assert group_of(world).regexes["fl.*"].topics == ("flights",)
    assert member.beat().epoch == 2


def test_regular_expressions_are_matched_in_turns_in_a_large_cluster(world: World) -> None:
    for number in range(2_000):
        world.topics.make(f"t{number}", 1)
    member = Consumer(world, "a")
    member.begin(topic_names=None, topic_regex="flights|t1", rebalance_timeout_ms=60_000)
    assert (member.replies, group_of(world).is_matching) == ([], True)
    world.timers.pass_time()
    (reply,) = member.replies
    assert len(numbers(reply.assignment) or ()) == 7

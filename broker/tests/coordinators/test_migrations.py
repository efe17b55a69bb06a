"""Groups with members change from the classic protocol to the consumer protocol, and back (KIP-848)."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from consumer_world import GROUP, Consumer, group_of, settle
from coordinator_world import Client, World
from group_script import subscription
from msgspec.structs import replace

from barnabas_broker.coordinators.groups.classic_members import assignment
from barnabas_broker.coordinators.groups.group import GroupState
from barnabas_broker.coordinators.groups.messages import CommitRequest, CommittedOffset
from barnabas_broker.coordinators.modern.records import MemberProtocol
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition


@pytest.fixture
def world() -> World:
    world = World()
    world.topics.make("flights", 6)
    return world


def assigned(*numbers: int, user_data: str = "") -> str:
    """Encode an assignment of partitions of the topic `flights`, as a leader of a classic group makes it."""
    partitions = struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    data = struct.pack(">i", len(user_data)) + user_data.encode()
    return (b"\0\0" + struct.pack(">ih", 1, 7) + b"flights" + partitions + data).decode()


def owning(*numbers: int, user_data: bytes = b"") -> tuple[MemberProtocol, ...]:
    """Return the protocols of a member that subscribes to `flights` and still owns partitions."""
    partitions = struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    data = struct.pack(">i", len(user_data)) + user_data if user_data else struct.pack(">i", -1)
    topics = struct.pack(">hih", 1, 1, 7) + b"flights" + data
    return (MemberProtocol("cooperative-sticky", topics + struct.pack(">ih", 1, 7) + b"flights" + partitions),)


class ClassicClient(Client):
    """A consumer of the classic protocol in cooperative rebalances; it owns what it was last assigned."""

    def __init__(self, world: World, name: str, instance_id: str | None = None) -> None:
        super().__init__(world, name, instance_id, GROUP)
        self.owned: list[int] = []

    def rejoin(self, **changes: Any) -> ErrorCode:
        count = len(self.joined)
        self.join(**{"protocols": owning(*self.owned), **changes})
        return self.joined[-1].error if len(self.joined) > count else ErrorCode.NONE

    def take(self) -> ErrorCode:
        """Send a SyncGroup, and own what it answers."""
        self.sync()
        reply = self.synced[-1]
        if reply.error is ErrorCode.NONE:
            found = assignment(reply.assignment, self.world.topics)
            self.owned = sorted(number for numbers in found.values() for number in numbers)
        return reply.error

    def go_on(self) -> None:
        """Send a Heartbeat, and rejoin and sync if the answer says so."""
        if self.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()
            self.take()


def classic_group(world: World, *shares: Sequence[int]) -> list[ClassicClient]:
    """Make a stable classic group, whose members have these partitions."""
    members = [ClassicClient(world, f"c{number}") for number in range(len(shares))]
    for member in members:
        member.join(protocols=owning())
    for member in members:
        member.join(protocols=owning())
    world.timers.pass_time(5)
    shared = {member.member_id: assigned(*share) for member, share in zip(members, shares, strict=True)}
    for member in members:
        member.sync(**shared)
    world.timers.pass_time()
    for member, share in zip(members, shares, strict=True):
        assert member.synced[-1].error is ErrorCode.NONE
        member.owned = list(share)
    return members


def test_classic_members_keep_their_partitions_and_give_some_to_the_first_consumer(world: World) -> None:
    first, second = classic_group(world, [0, 1, 2], [3, 4, 5])
    generation = first.generation
    consumer = Consumer(world, "new")
    assert consumer.join().error is ErrorCode.NONE
    group = group_of(world)
    assert (group.epoch, group.classic_count, len(group.members)) == (generation + 1, 2, 3)
    for _ in range(4):
        first.go_on()
        second.go_on()
        consumer.beat()
    shares = [first.owned, second.owned, consumer.numbers]
    assert sorted(number for share in shares for number in share) == [0, 1, 2, 3, 4, 5]
    assert [len(share) for share in shares] == [2, 2, 2]
    assert group_of(world).state.value == "Stable"
    assert first.heartbeat() is ErrorCode.NONE


def test_group_in_a_rebalance_lets_its_members_join_again(world: World) -> None:
    first, _ = classic_group(world, [0, 1, 2], [3, 4, 5])
    first.join(protocols=owning(0, 1, 2), reason="new topics")
    waiting = len(first.joined)
    Consumer(world, "new").join()
    world.timers.pass_time()
    assert len(first.joined) >= waiting
    assert first.joined[-1].error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE)


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_policy_refuses_consumers_in_a_classic_group(world: World, policy: str) -> None:
    world.consumer_settings = replace(world.consumer_settings, migration_policy=policy)
    classic_group(world, [0])
    assert Consumer(world, "new").join().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_group_with_user_data_in_assignments_is_not_changed(world: World) -> None:
    client = ClassicClient(world, "c")
    client.join(protocols=owning())
    client.sync(**{client.member_id: assigned(0, user_data="x")})
    reply = Consumer(world, "new").join()
    assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert "user data in an assignment" in (reply.message or "")


def test_user_data_in_subscriptions_is_that_of_kafkas_cooperative_assignor(world: World) -> None:
    client = ClassicClient(world, "c")
    client.join(protocols=owning(user_data=b"\0\0\0\1"))
    client.sync(**{client.member_id: assigned(0)})
    assert Consumer(world, "new").join().error is ErrorCode.NONE


def test_group_of_another_protocol_type_is_not_changed(world: World) -> None:
    client = Client(world, "c", group_id=GROUP)
    client.join(protocol_type="connect")
    client.sync()
    assert Consumer(world, "new").join().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_refused_consumer_leaves_the_classic_group_as_it_was(world: World) -> None:
    (first,) = classic_group(world, [0])
    assert Consumer(world, "new").join(topic_regex="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert first.heartbeat() is ErrorCode.NONE
    assert [group.group_type for group in world.coordinator.list_groups()] == ["classic"]


def test_classic_member_joins_a_consumer_group(world: World) -> None:
    consumer, client = Consumer(world, "a"), ClassicClient(world, "c")
    consumer.join()
    assert client.rejoin() is ErrorCode.NONE
    reply = client.joined[-1]
    assert (reply.generation, reply.leader, reply.members, reply.protocol_name) == (3, "", (), "cooperative-sticky")
    client.take()
    settle(consumer)
    for _ in range(3):
        client.go_on()
        consumer.beat()
    assert (client.owned, consumer.numbers) == ([3, 4, 5], [0, 1, 2])
    assert group_of(world).members[client.member_id].known.subscribed_topic_regex == ""


def test_classic_member_that_must_know_its_id_gets_one_first(world: World) -> None:
    Consumer(world, "a").join()
    client = ClassicClient(world, "c")
    assert client.rejoin(requires_known_member_id=True) is ErrorCode.MEMBER_ID_REQUIRED
    client.member_id = client.joined[-1].member_id
    assert client.rejoin(requires_known_member_id=True) is ErrorCode.NONE


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": ()},
        {"protocols": (MemberProtocol("cooperative-sticky", b"\0"),)},
    ],
)
def test_classic_join_that_does_not_fit_is_refused(world: World, changes: dict[str, Any]) -> None:
    Consumer(world, "a").join()
    assert ClassicClient(world, "c").rejoin(**changes) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_members_need_a_protocol_in_common(world: World) -> None:
    Consumer(world, "a").join()
    ClassicClient(world, "c").rejoin()
    other = (MemberProtocol("range", subscription(["flights"])),)
    assert ClassicClient(world, "d").rejoin(protocols=other) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_disabled_policy_refuses_classic_members(world: World) -> None:
    world.consumer_settings = replace(world.consumer_settings, migration_policy="disabled")
    Consumer(world, "a").join()
    assert ClassicClient(world, "c").rejoin() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_silent_classic_member_is_fenced(world: World) -> None:
    consumer, client = Consumer(world, "a"), ClassicClient(world, "c")
    consumer.join()
    client.rejoin()
    client.take()
    for _ in range(3):
        world.timers.pass_time(5)
        consumer.beat()
    assert list(group_of(world).members) == ["a"]


def test_stale_commit_of_a_classic_member_has_an_illegal_generation(world: World) -> None:
    consumer, client = Consumer(world, "a"), ClassicClient(world, "c")
    consumer.join()
    client.rejoin()
    client.take()
    answers: list[Any] = []
    offsets = [(TopicPartition("flights", 0), CommittedOffset(5))]
    for generation in (1, client.generation):
        request = CommitRequest(GROUP, client.member_id, None, generation, 7, offsets)
        world.coordinator.commit(request, answers.append)
        world.timers.pass_time()
    assert answers == [[ErrorCode.ILLEGAL_GENERATION], [ErrorCode.NONE]]


def test_classic_member_reads_offsets_with_its_generation(world: World) -> None:
    consumer, client = Consumer(world, "a"), ClassicClient(world, "c")
    consumer.join()
    client.rejoin()
    world.coordinator.committed(GROUP, client.member_id, client.generation)
    with pytest.raises(ApiError) as refusal:
        world.coordinator.committed(GROUP, client.member_id, client.generation + 1)
    assert refusal.value.code is ErrorCode.ILLEGAL_GENERATION


def test_refused_classic_member_leaves_an_empty_consumer_group_as_it_was(world: World) -> None:
    consumer = Consumer(world, "a")
    consumer.join()
    consumer.leave()
    assert ClassicClient(world, "c").rejoin(member_id="nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.group_type for each in world.coordinator.list_groups()] == ["consumer"]


def test_group_goes_down_with_its_last_consumer(world: World) -> None:
    consumer, client = Consumer(world, "a"), ClassicClient(world, "c")
    consumer.join()
    client.rejoin()
    client.take()
    consumer.leave()
    (group,) = world.coordinator.list_groups()
    assert (group.group_type, group.state) == ("classic", GroupState.PREPARING_REBALANCE)
    assert client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    client.rejoin()
    world.timers.pass_time(5)
    client.sync(**{client.member_id: assigned(0, 1, 2, 3, 4, 5)})
    assert client.synced[-1].error is ErrorCode.NONE
    world.crash()
    assert [each.group_type for each in world.coordinator.list_groups()] == ["classic"]


def test_group_stays_up_if_the_policy_says_so(world: World) -> None:
    world.consumer_settings = replace(world.consumer_settings, migration_policy="upgrade")
    consumer, client = Consumer(world, "a"), ClassicClient(world, "c")
    consumer.join()
    client.rejoin()
    client.take()
    consumer.leave()
    assert [group.group_type for group in world.coordinator.list_groups()] == ["consumer"]


def test_static_classic_member_is_taken_over_by_a_consumer_that_did_not_wait(world: World) -> None:
    consumer, client = Consumer(world, "a"), ClassicClient(world, "c", instance_id="one")
    consumer.join()
    client.rejoin()
    client.take()
    settle(consumer)
    client.go_on()
    successor = Consumer(world, "b", instance_id="one")
    reply = successor.join()
    assert (reply.error, successor.numbers) == (ErrorCode.NONE, client.owned)
    assert client.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert group_of(world).classic_count == 0


def test_static_consumer_is_taken_over_by_a_classic_member_and_the_group_goes_down(world: World) -> None:
    consumer, client = Consumer(world, "a", instance_id="one"), ClassicClient(world, "c", instance_id="one")
    consumer.join()
    assert client.rejoin() is ErrorCode.NONE
    assert [each.group_type for each in world.coordinator.list_groups()] == ["classic"]
    assert consumer.send().error is not ErrorCode.NONE  # type: ignore[union-attr]


def test_next_coordinator_knows_the_classic_members(world: World) -> None:
    first, second = classic_group(world, [0, 1, 2], [3, 4, 5])
    consumer = Consumer(world, "new")
    consumer.join()
    world.crash()
    assert group_of(world).classic_count == 2
    for _ in range(4):
        first.go_on()
        second.go_on()
        consumer.beat()
    assert [len(share) for share in (first.owned, second.owned, consumer.numbers)] == [2, 2, 2]


def test_classic_members_that_leave_are_removed(world: World) -> None:
    first, second = classic_group(world, [0, 1, 2], [3, 4, 5])
    consumer = Consumer(world, "new")
    consumer.join()
    first.leave()
    second.leave()
    settle(consumer)
    assert consumer.numbers == [0, 1, 2, 3, 4, 5]

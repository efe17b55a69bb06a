"""Replicas never move without room or to fewer replicas or racks, move a few at a time, and come to an end."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.placement import DiskSpace
from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.cluster_state import (
    APPROVAL,
    ClusterState,
    DesiredState,
    Disks,
    LogDirContent,
    ReplicaIds,
    TopicState,
    Trouble,
)
from barnabas_operator.planning.status.cluster_status import reassignment_conditions
from barnabas_operator.planning.topics.reconcile_plan import (
    UNEVEN_SHARE,
    MovePlan,
    ReconcilePlan,
    plan_evacuation,
    plan_rebalance,
    plan_reconcile,
)
from barnabas_operator.planning.topics.replica_moves import (
    BYTES_MAX,
    PARTITIONS_MAX,
    MoveReplicas,
    ReplicaMoves,
    TopicStep,
    loads,
    room,
    take_turns,
)
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, RebalanceMode
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.topic import Topic, TopicSpec

GIB = 1 << 30
PLENTY = DiskSpace(1 << 50, 1 << 50)
ROUNDS_MAX = 200


def state(
    rows: Sequence[ReplicaIds],
    brokers: int,
    sizes: Sequence[int] | None = None,
    spaces: Mapping[int, DiskSpace] | None = None,
    racks: Mapping[int, str] | None = None,
) -> ClusterState:
    """Return a cluster with a topic `t` with these replicas; disks are known if sizes are given."""
    topics = {"t": TopicState("id", tuple(rows), {})}
    found = ClusterState(racks=racks or dict.fromkeys(range(brokers)), topics=topics)
    if sizes is None:
        return found
    held: dict[int, dict[TopicPartition, int]] = {}
    for number, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        for broker in row:
            held.setdefault(broker, {})[TopicPartition("t", number)] = size
    known = {number: (spaces or {}).get(number, PLENTY) for number in range(brokers)}
    return replace(found, disks=disks_of(known, held))


def disks_of(spaces: Mapping[int, DiskSpace], held: Mapping[int, Mapping[TopicPartition, int]]) -> Disks:
    """Return disks with one log dir for each broker."""
    return Disks({broker: {"/data": LogDirContent(each, held.get(broker, {}), {})} for broker, each in spaces.items()})


def moved(found: ClusterState, steps: Sequence[TopicStep]) -> ClusterState:
    """Return the cluster after these moves: the new replicas are complete and take their room."""
    disks, rows = found.disks, list(found.topics["t"].partitions)
    held = {broker: dict(parts) for broker, parts in disks.replicas.items()} if disks else {}
    spaces = {broker: each["/data"].space for broker, each in disks.log_dirs.items()} if disks else {}
    for step in steps:
        assert isinstance(step, MoveReplicas)
        for number, row in step.assignments.items():
            partition = TopicPartition("t", number)
            for broker in set(row) - set(rows[number]) if disks else ():
                size = disks.sizes.get(partition, 0) if disks else 0
                held.setdefault(broker, {})[partition] = size
                spaces[broker] = spaces[broker]._replace(usable_bytes=spaces[broker].usable_bytes - size)
            for broker in set(rows[number]) - set(row) if disks else ():
                held[broker].pop(partition, None)
            rows[number] = row
    after = disks_of(spaces, held) if disks else None
    return replace(found, topics={"t": TopicState("id", tuple(rows), {})}, disks=after)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterState:
    brokers = draw(st.integers(2, 6))
    names = draw(st.sampled_from(["x", "xy", "xyz"]))
    holders = st.permutations(range(draw(st.integers(1, brokers))))
    factor = draw(st.integers(1, 3))
    rows = draw(st.lists(holders.map(lambda order: tuple(order[:factor])), min_size=1, max_size=60))
    sizes = draw(st.lists(st.sampled_from([0, 1, 1000, GIB // 3, 2 * GIB]), min_size=len(rows), max_size=len(rows)))
    spaces = draw(st.lists(st.integers(0, 40), min_size=brokers, max_size=brokers))
    return state(
        rows,
        brokers,
        sizes,
        {number: DiskSpace(space * GIB, 100 * GIB) for number, space in enumerate(spaces)},
        {number: names[number % len(names)] for number in range(brokers)},
    )


def check_rows(before: ClusterState, after: ClusterState) -> None:
    """Check that each row keeps its number of replicas and of racks, on distinct brokers."""
    racks = set(after.homes.values())
    for old, new in zip(before.topics["t"].targets, after.topics["t"].targets, strict=True):
        assert len(new) == len(set(new)) == len(old)
        spread = len({before.racks[broker] for broker in old})
        assert len({before.racks[broker] for broker in new}) >= min(spread, len(racks))


def loses_a_rack(found: ClusterState, row: ReplicaIds, fit: Sequence[int]) -> bool:
    """True if the replicas that have to leave cannot be in as many racks on the brokers that fit."""
    stay = {found.racks[broker] for broker in set(row) - found.leaving}
    others = {found.racks[broker] for broker in fit} - stay
    most = len(stay) + min(len(found.leaving.intersection(row)), len(others))
    return most < min(len({found.racks[broker] for broker in row}), len(set(found.homes.values())))


def check_turn(found: ClusterState, begin: Sequence[MoveReplicas]) -> None:
    """Check that no broker copies more than it may at a time, nor more than it has room for."""
    assert found.disks is not None
    counts, sizes = Counter[int](), Counter[int]()
    for step in begin:
        for number, row in step.assignments.items():
            for broker in set(row) - set(found.topics["t"].partitions[number]):
                counts[broker] += 1
                sizes[broker] += found.disks.sizes.get(TopicPartition("t", number), 0)
    for broker, count in counts.items():
        assert count <= PARTITIONS_MAX
        assert count == 1 or sizes[broker] <= BYTES_MAX
        assert sizes[broker] <= found.disks.room_bytes(broker)


def squares(found: ClusterState) -> int:
    counted = loads(found)
    return sum(counted[broker] ** 2 for broker in found.homes)


@given(clusters())
def test_a_rebalance_keeps_replicas_and_racks_fits_into_the_disks_and_ends(before: ClusterState) -> None:
    found, rounds = before, 0
    while moves := plan_rebalance(found):
        rounds += 1
        assert rounds < ROUNDS_MAX, "it never ends"
        turns = take_turns(moves, found)
        assert turns.begin, "something always begins"
        check_turn(found, turns.begin)
        after = moved(found, turns.begin)
        check_rows(found, after)
        found = after
    assert squares(found) <= squares(before)


@given(clusters(), st.integers(1, 5))
def test_brokers_to_be_removed_are_emptied_in_turns_as_far_as_there_is_room(before: ClusterState, stay: int) -> None:
    found, rounds = before.with_brokers(stay), 0
    while moves := plan_evacuation((), found, {}):
        rounds += 1
        assert rounds < ROUNDS_MAX, "it never ends"
        turns = take_turns(moves, found)
        assert turns.begin, "something always begins"
        check_turn(found, turns.begin)
        after = moved(found, turns.begin)
        check_rows(found, after)
        found = after
    assert found.disks is not None
    for number, row in enumerate(found.topics["t"].partitions):
        size = found.disks.sizes.get(TopicPartition("t", number), 0)
        fit = [broker for broker in set(found.homes) - set(row) if found.disks.room_bytes(broker) >= size]
        leaving = found.leaving.intersection(row)
        assert not leaving or len(fit) < len(leaving) or len(row) > len(found.homes) or loses_a_rack(found, row, fit)


@given(clusters())
def test_planning_twice_gives_the_same_moves(found: ClusterState) -> None:
    assert plan_rebalance(found) == plan_rebalance(found)
    assert take_turns(plan_rebalance(found), found) == take_turns(plan_rebalance(found), found)


def test_a_broker_that_was_added_gets_its_share() -> None:
    before = state([(0, 1), (1, 2), (2, 0)] * 8, 4)
    after = moved(before, plan_rebalance(before))
    assert sorted(loads(after).values()) == [12, 12, 12, 12]


@pytest.mark.parametrize(
    ("row", "factor", "expected"),
    [
        ((0, 1, 2), 2, (0, 1)),
        ((0, 1, 2), 1, (0,)),
        ((0, 3, 1), 2, (0, 1)),
        ((1, 0, 3), 2, (1, 0)),
        ((0, 3, 1, 4), 3, (0, 3, 1)),
    ],
)
def test_a_lower_number_of_replicas_keeps_the_racks(row: ReplicaIds, factor: int, expected: ReplicaIds) -> None:
    racks = {0: "x", 1: "y", 2: "z", 3: "x", 4: "y"}
    moves = ReplicaMoves(state([row], 5, [1000], racks=racks))
    step = moves.of_topic("t", factor)
    assert step is not None, moves.without_room
    assert step.assignments == {0: expected}


def test_a_rebalance_keeps_each_partition_in_as_many_racks() -> None:
    before = state([(0, 1)] * 12, 3, racks={0: "x", 1: "y", 2: "x"})
    after = moved(before, plan_rebalance(before))
    assert set(after.topics["t"].partitions) == {(0, 1), (2, 1)}
    assert loads(after) == {0: 8, 1: 12, 2: 4}, "the replicas of broker 1 stay in its rack"


def test_a_rebalance_counts_bytes_instead_of_partitions_if_sizes_are_known() -> None:
    before = state([(0,), (0,), (0,), (1,)], 2, [10 * GIB, GIB, GIB, 2 * GIB])
    (move,) = plan_rebalance(before)
    assert move.assignments == {1: (1,), 2: (1,)}, "moving the large partition would not even out the brokers"


def test_a_broker_without_room_gets_nothing() -> None:
    full, some = DiskSpace(GIB, 100 * GIB), DiskSpace(5 * GIB, 100 * GIB)
    before = state([(0,), (0,), (0,)], 3, [GIB] * 3, {1: full, 2: some})
    (move,) = plan_evacuation((), replace(before, leaving=frozenset({0})), {})
    assert move.assignments == {0: (2,), 1: (2,), 2: (2,)}
    before = state([(0,), (0,), (0,)], 3, [3 * GIB] * 3, {1: full, 2: some})
    (move,) = plan_evacuation((), replace(before, leaving=frozenset({0})), {})
    assert move.assignments == {0: (2,)}, "replicas that are being copied take room as well"


def test_a_small_disk_keeps_a_tenth_of_itself_free() -> None:
    found = state([(0,)], 1, [0], {0: DiskSpace(usable_bytes=500, total_bytes=1000)})
    assert found.disks is not None
    assert room(found, found.disks) == {0: 400}


def test_moves_in_progress_count_for_room_and_turns() -> None:
    row, size = (0, 1), GIB // 2
    topic = TopicState("id", (row, (0,), (0,)), {}, moving={0: (0, 1)})
    base = state([(0,), (0,), (0,)], 2, [size] * 3)
    found = replace(base, topics={"t": topic}, troubles=(Trouble("t", 0, missing=(1,), in_sync=(0,), offline=False),))
    assert found.disks is not None
    assert room(found, found.disks)[1] == PLENTY.room_bytes - size
    turns = take_turns([MoveReplicas("t", {1: (0, 1), 2: (0, 1)})], found)
    assert (turns.begin, turns.waiting) == ((MoveReplicas("t", {1: (0, 1)}),), 1)


def test_partitions_with_the_fewest_in_sync_replicas_move_first_and_then_small_ones() -> None:
    found = state([(0, 2), (0, 2), (0, 2), (0, 2)], 3, [GIB, 9, 7, GIB])
    found = replace(found, troubles=(Trouble("t", 3, missing=(2,), in_sync=(0,), offline=False),))
    turns = take_turns([MoveReplicas("t", dict.fromkeys(range(4), (0, 2, 1)))], found)
    assert turns.begin == (MoveReplicas("t", {3: (0, 2, 1)}),)
    later = take_turns([MoveReplicas("t", dict.fromkeys(range(3), (0, 2, 1)))], found)
    assert later.begin == (MoveReplicas("t", {1: (0, 2, 1), 2: (0, 2, 1)}),)


def test_moves_that_copy_nothing_need_no_turn() -> None:
    rows = [(0, 1, 2)] * 3 * PARTITIONS_MAX
    fewer = MoveReplicas("t", dict.fromkeys(range(len(rows)), (0, 1)))
    assert take_turns([fewer], state(rows, 3)) == ((fewer,), 0)


def cluster(mode: RebalanceMode = "Manual", *, approved: bool = False, brokers: int = 2) -> Cluster:
    annotations = {APPROVAL: "approve"} if approved else {}
    spec = ClusterSpec(brokers=Brokers(replicas=brokers), rebalance=mode)
    return Cluster(metadata=ObjectMeta(name="one", annotations=annotations), spec=spec)


UNEVEN = state([(0,)] * 10, 2, [1000] * 10).with_brokers(2)
EVEN = state([(0,), (1,)] * 5, 2, [1000] * 10).with_brokers(2)
NEARLY = state([(0,)] * 6 + [(1,)] * 5, 2, [1000] * 11).with_brokers(2)


def planned(declared: Cluster, found: ClusterState) -> ReconcilePlan:
    return plan_reconcile(DesiredState(declared, (), ()), found)


def test_an_uneven_cluster_proposes_a_rebalance_and_moves_nothing() -> None:
    plan = planned(cluster(), UNEVEN)
    assert plan.steps == ()
    assert plan.moves.rebalance is not None
    assert (plan.moves.rebalance.partitions, plan.moves.rebalance.size_bytes, plan.moves.rebalance.to_brokers) == (
        5,
        5000,
        (1,),
    )
    (told,) = reassignment_conditions(cluster(), "T", UNEVEN, plan.moves)
    assert (told.type, told.status, told.reason) == ("RebalanceProposed", "True", "BrokersUneven")
    assert told.message == (
        "broker 1 has less data than the other brokers, so 5 partitions (5000 bytes) can move to that broker; "
        "to approve the rebalance, run "
        "`kubectl annotate clusters.barnabas.dev one barnabas.dev/rebalance=approve`, or set "
        "spec.rebalance to Automatic"
    )


def test_a_proposal_names_all_brokers_that_get_partitions() -> None:
    uneven = state([(0,)] * 10, 3, [1000] * 10).with_brokers(3)
    plan = planned(cluster(), uneven)
    (told,) = reassignment_conditions(cluster(), "T", uneven, plan.moves)
    assert told.message.startswith("brokers 1, 2 have less data than the other brokers, so ")
    assert "can move to these brokers; to approve" in told.message


@pytest.mark.parametrize("declared", [cluster(approved=True), cluster("Automatic")])
def test_an_approved_or_automatic_rebalance_begins(declared: Cluster) -> None:
    plan = planned(declared, UNEVEN)
    assert [type(step) for step in plan.steps] == [MoveReplicas]
    after = moved(UNEVEN, plan.steps)
    assert loads(after)[1] >= UNEVEN_SHARE * loads(after)[0]
    assert list(reassignment_conditions(declared, "T", UNEVEN, plan.moves)) == []


def test_a_paused_topic_does_not_move_and_does_not_delay_the_end_of_an_approval() -> None:
    paused = Topic(metadata=ObjectMeta(name="mine"), spec=TopicSpec(topic_name="t", pause=True))
    plan = plan_reconcile(DesiredState(cluster(approved=True), (paused,), ()), UNEVEN)
    assert (plan.steps, plan.moves.rebalance, plan.moves.is_rebalanced) == ((), None, True)


def test_an_approved_rebalance_is_done_when_nothing_is_left_to_move() -> None:
    assert not planned(cluster(approved=True), UNEVEN).moves.is_rebalanced
    assert planned(cluster(approved=True), EVEN).moves.is_rebalanced
    assert not planned(cluster("Automatic"), EVEN).moves.is_rebalanced
    away = replace(EVEN, racks={0: None})
    assert not planned(cluster(approved=True), away).moves.is_rebalanced, "a broker that is down may have much less"


@pytest.mark.parametrize("declared", [cluster(), cluster("Automatic")])
def test_a_slightly_uneven_cluster_is_not_rebalanced(declared: Cluster) -> None:
    assert planned(declared, NEARLY).moves.rebalance is None


NOT_NOW: Mapping[str, ClusterState] = {
    "a broker is away": replace(UNEVEN, declared=3),
    "a replica is out of sync": replace(UNEVEN, troubles=(Trouble("t", 0, (0,), (), offline=True),)),
    "a broker is awaited": replace(UNEVEN, awaited=frozenset({1})),
    "there is one broker": replace(UNEVEN, racks={0: None}, declared=1),
}


@pytest.mark.parametrize("name", NOT_NOW)
def test_nothing_is_rebalanced_while_the_cluster_has_a_problem(name: str) -> None:
    plan = planned(cluster("Automatic"), NOT_NOW[name])
    assert (plan.moves.rebalance, plan.steps) == (None, ())


def test_a_broker_to_be_removed_is_emptied_before_a_rebalance() -> None:
    plan = planned(cluster("Automatic", brokers=2), replace(UNEVEN, racks=dict.fromkeys(range(3))).with_brokers(1))
    assert plan.moves.rebalance is None


@pytest.mark.parametrize(
    ("found", "spec", "are_needed"),
    [
        (state([(0,)] * 10, 2).with_brokers(2), TopicSpec(), True),
        (state([(0,), (1,)], 2).with_brokers(2), TopicSpec(), False),
        (state([(0,), (1,)], 2).with_brokers(2), TopicSpec(replicas=2), True),
        (state([(0,), (1,)], 2).with_brokers(2), TopicSpec(replicas=2, pause=True), False),
        (state([(0, 1), (1, 0)], 2).with_brokers(2), TopicSpec(replicas=1), False),
        (state([(0,), (1,)], 2).with_brokers(1), TopicSpec(), True),
    ],
)
def test_disks_are_requested_only_if_something_must_be_copied(
    found: ClusterState, spec: TopicSpec, are_needed: bool
) -> None:
    declared = Topic(metadata=ObjectMeta(name="t"), spec=msgspec.structs.replace(spec, adopt=True))
    assert plan_reconcile(DesiredState(cluster(), (declared,), ()), found).moves.needs_disks is are_needed


def test_a_refused_topic_does_not_hide_that_another_needs_more_replicas() -> None:
    found = state([(0,), (1,)], 2).with_brokers(2)
    older, refused = (
        Topic(metadata=ObjectMeta(name=name), spec=TopicSpec(topic_name="t", replicas=replicas, adopt=True))
        for name, replicas in (("older", 2), ("refused", None))
    )
    assert plan_reconcile(DesiredState(cluster(), (older, refused), ()), found).moves.needs_disks


def test_a_cluster_reports_how_many_partitions_wait_for_their_turn() -> None:
    topic = TopicState("id", ((0, 1), (0,)), {}, moving={0: (0, 1)})
    (told,) = reassignment_conditions(cluster(), "T", replace(UNEVEN, topics={"t": topic}), MovePlan(waiting=7))
    assert (
        told.message
        == "partitions of these topics are being reassigned: t (1); 7 partitions wait for their reassignment"
    )


def test_a_cluster_reports_which_partitions_stay_because_no_broker_has_room() -> None:
    """Otherwise the broker to be removed would stay forever without a reason."""
    full = DiskSpace(GIB, 10 * GIB)
    going = state([(2,), (0,)], 3, [2 * GIB, 0], {0: full, 1: full}).with_brokers(2)
    plan = planned(cluster(), going)
    assert (plan.steps, plan.moves.without_room) == ((), (TopicPartition("t", 0),))
    (told,) = reassignment_conditions(cluster(), "T", going, plan.moves)
    assert told.type == "ReplicasMoving"
    assert told.message == (
        "partitions of these topics are being reassigned: none yet; no broker has enough free space for t-0; "
        "enlarge volumes, add brokers or delete records"
    )


def test_only_partitions_without_room_are_reported_if_a_topic_gets_more_replicas() -> None:
    found = state([(0,), (0,)], 2, [2 * GIB, 1], {1: DiskSpace(GIB + 1, 10 * GIB)}).with_brokers(2)
    declared = Topic(metadata=ObjectMeta(name="t"), spec=TopicSpec(replicas=2))
    plan = plan_reconcile(DesiredState(cluster(), (declared,), ()), found)
    assert plan.moves.without_room == (TopicPartition("t", 0),)
    assert [type(step) for step in plan.steps] == [MoveReplicas]

"""The moves of a plan of the job `skew` between the log dirs of one broker."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from barnabas_core.placement import DiskSpace
from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.cluster_state import (
    APPROVAL,
    ClusterState,
    DesiredState,
    Disks,
    LogDirContent,
    TopicState,
    named_rebalance,
)
from barnabas_operator.planning.status.cluster_status import reassignment_conditions
from barnabas_operator.planning.topics.reconcile_plan import MovePlan, ReconcilePlan, plan_reconcile
from barnabas_operator.planning.topics.replica_moves import LogDirMove, MoveReplicas, room
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.maintenance_run import MaintenanceJob, MaintenanceJobSpec, MaintenanceJobStatus
from barnabas_operator.resources.topic import Topic, TopicSpec

MIB, GIB = 1 << 20, 1 << 30
CLUSTER = Cluster(
    metadata=ObjectMeta(name="one", annotations={APPROVAL: "even"}), spec=ClusterSpec(brokers=Brokers(replicas=2))
)
OTHER, HERE = "/data/2", "/data/1"
PARTITIONS = 30
PLENTY = DiskSpace(100 * GIB, 200 * GIB)


def within(number: int, path: str = OTHER, **more: Any) -> dict[str, Any]:
    """Return a planned partition whose replica on broker 0 moves to `path`; that on broker 1 stays."""
    row = {"replicas": [0, 1], "before": [0, 1], "log_dirs": [path, "any"]}
    return {"topic": "t", "partition": number, **row, **more}


def found(
    *,
    moved: Mapping[int, str] | None = None,
    coming: Mapping[int, int] | None = None,
    size: int = 100 * MIB,
    space: DiskSpace = PLENTY,
    row: tuple[int, ...] = (0, 1),
) -> ClusterState:
    """Return two brokers; replicas of broker 0 are in HERE, except those `moved` to OTHER; `coming` move there."""
    places = {number: (moved or {}).get(number, HERE) for number in range(PARTITIONS)}
    held = {
        path: {TopicPartition("t", number): size for number, place in places.items() if place == path}
        for path in (HERE, OTHER)
    }
    on_the_way = {TopicPartition("t", number): done for number, done in (coming or {}).items()}
    log_dirs = {
        HERE: LogDirContent(DiskSpace(70 * GIB, 100 * GIB), held[HERE], {}),
        OTHER: LogDirContent(space, held[OTHER], on_the_way),
    }
    beside = {HERE: LogDirContent(DiskSpace(90 * GIB, 100 * GIB), {**held[HERE], **held[OTHER]}, {})}
    disks = Disks({0: log_dirs, 1: beside})
    topics = {"t": TopicState("id", (row,) * PARTITIONS, {})}
    return ClusterState(dict.fromkeys(range(2)), topics, disks=disks).with_brokers(2)


def planned(state: ClusterState, *partitions: dict[str, Any], topics: tuple[Topic, ...] = ()) -> ReconcilePlan:
    text = json.dumps({"version": 1, "partitions": partitions, "topic_ids": {"t": "id"}})
    run = MaintenanceJob(
        metadata=ObjectMeta(name="even"),
        spec=MaintenanceJobSpec(job="skew"),
        status=MaintenanceJobStatus(phase="Succeeded", result={"plan": text}),
    )
    return plan_reconcile(DesiredState(CLUSTER, topics, (), named=named_rebalance("even", run)), state)


def begun(plan: ReconcilePlan) -> list[int]:
    """Return the numbers of partitions of broker 0 whose moves to OTHER begin now."""
    assert all((each.broker_id, each.path) == (0, OTHER) for each in plan.moves.log_dir_moves)
    return [each.partition.partition for each in plan.moves.log_dir_moves]


def told(plan: ReconcilePlan) -> tuple[str, str]:
    (said,) = reassignment_conditions(CLUSTER, "T", None, MovePlan(named=plan.moves.named))
    return said.reason, said.message.replace(" of the plan of MaintenanceJob even are moved", "")


def test_a_replica_moves_to_the_log_dir_of_the_plan() -> None:
    plan = planned(found(), within(3))
    assert plan.moves.log_dir_moves == (LogDirMove(TopicPartition("t", 3), 0, OTHER),)
    assert (plan.steps, plan.moves.is_rebalanced, told(plan)) == ((), False, ("PlanUnderWay", "0 of 1 partitions"))


def test_a_move_in_progress_is_not_requested_again_and_the_plan_is_not_done() -> None:
    plan = planned(found(coming={3: 10 * MIB}), within(3))
    assert (plan.moves.log_dir_moves, plan.moves.is_rebalanced) == ((), False)
    assert told(plan) == ("PlanUnderWay", "0 of 1 partitions")
    assert plan.moves.are_within


def test_a_plan_is_done_when_the_replica_is_in_its_log_dir() -> None:
    plan = planned(found(moved={3: OTHER}), within(3))
    assert (plan.moves.log_dir_moves, plan.moves.is_rebalanced) == ((), True)
    assert told(plan) == ("PlanDone", "1 of 1 partitions")
    assert not plan.moves.are_within


def test_moves_within_a_broker_wait_for_those_between_brokers() -> None:
    state = found()
    between = {"topic": "t", "partition": 4, "replicas": [1, 0], "before": [0, 1]}
    plan = planned(state, within(3), between)
    assert plan.steps == (MoveReplicas("t", {4: (1, 0)}),)
    assert plan.moves.log_dir_moves == ()
    moving = replace(state.topics["t"], moving={4: (1, 0)})
    assert planned(replace(state, topics={"t": moving}), within(3), between).moves.log_dir_moves == ()


def test_a_broker_copies_a_limited_number_and_size_of_replicas_at_once() -> None:
    many = [within(number) for number in range(PARTITIONS)]
    assert begun(planned(found(size=1), *many)) == list(range(20)), "at most 20 replicas"
    assert begun(planned(found(), *many)) == list(range(10)), "or one GiB"
    assert begun(planned(found(size=5 * GIB), *many)) == [0], "or one larger replica"
    assert begun(planned(found(coming={0: 90 * MIB, 1: 0}), *many)) == list(range(2, 11)), "moves in progress count"


def test_each_move_reduces_the_free_space_for_later_moves() -> None:
    """A GiB stays free."""
    small = DiskSpace(GIB + 250 * MIB, 100 * GIB)
    plan = planned(found(space=small), *(within(number) for number in range(3)))
    assert begun(plan) == [0, 1]
    assert told(plan)[1].endswith("these partitions were left out: t-2 (broker 0 has too little free space in /data/2)")
    later = planned(found(space=small, coming={0: 50 * MIB}), *(within(number) for number in range(3)))
    assert begun(later) == [1, 2], "half of it is written already"


def test_a_copy_within_a_broker_reduces_the_room_for_replicas_of_other_brokers() -> None:
    """The copy may be large and last for hours."""

    def left(done: dict[int, int]) -> int:
        state = found(coming=done, size=10 * GIB)
        assert state.disks is not None
        return room(state, state.disks)[0] // GIB

    assert [left({}), left({3: 0}), left({3: 4 * GIB}), left({3: 0, 4: 0, 5: 0, 6: 0})] == [99, 89, 93, 69]


def test_log_dirs_on_one_disk_share_its_free_space() -> None:
    disk = DiskSpace(GIB + 150 * MIB, 100 * GIB)
    state = found(space=disk, moved={7: OTHER})
    assert state.disks is not None
    dirs = {path: each._replace(space=disk) for path, each in state.disks.log_dirs[0].items()}
    both = Disks({**state.disks.log_dirs, 0: dirs})
    plan = planned(replace(state, disks=both), within(3), within(7, HERE))
    assert begun(plan) == [3]
    assert told(plan)[1].endswith("these partitions were left out: t-7 (broker 0 has too little free space in /data/1)")


@pytest.mark.parametrize(
    ("partition", "why"),
    [
        (within(3, "/data/9"), "broker 0 has no online log dir /data/9"),
        (within(3, replicas=[1, 0]), "broker 1 has no online log dir /data/2"),
        (within(3, before=[0, 5]), "the replicas have changed since the plan was made"),
    ],
)
def test_an_impossible_move_is_left_out_with_the_reason(partition: dict[str, Any], why: str) -> None:
    row = tuple(partition["replicas"]) if partition["before"] == [0, 1] else (5, 0)
    plan = planned(found(row=row), partition)
    assert plan.moves.log_dir_moves == ()
    assert told(plan)[1] == f"0 of 1 partitions; these partitions were left out: t-3 ({why})"


@pytest.mark.parametrize("paused", [False, True])
def test_a_plan_waits_for_a_copy_in_progress_even_if_its_partition_is_left_out(paused: bool) -> None:
    """Another log dir of its partition was lost, or its Topic was paused, after the copy began."""
    topic = Topic(metadata=ObjectMeta(name="mine"), spec=TopicSpec(topic_name="t", pause=paused))
    away = within(3, log_dirs=[OTHER, "/data/9"])
    plan = planned(found(coming={3: 10 * MIB}), away, topics=(topic,))
    assert (plan.moves.log_dir_moves, plan.moves.is_rebalanced, told(plan)[0]) == ((), False, "PlanUnderWay")
    assert plan.moves.are_within
    ended = planned(found(moved={3: OTHER}), away, topics=(topic,))
    assert (ended.moves.is_rebalanced, told(ended)[0]) == (True, "PlanDone")


def test_a_plan_that_has_a_partition_twice_is_refused() -> None:
    """Its replica would move from one log dir to the other and back forever."""
    plan = planned(found(), within(3), within(4), within(3, HERE))
    assert (plan.moves.log_dir_moves, plan.moves.is_rebalanced) == ((), False)
    reason, message = told(plan)
    assert reason == "PlanRefused"
    assert message.startswith("the annotation barnabas.dev/rebalance is even: the plan contains t-3 more than once;")


def test_a_paused_topic_stays_in_its_log_dirs() -> None:
    paused = Topic(metadata=ObjectMeta(name="mine"), spec=TopicSpec(topic_name="t", pause=True))
    plan = planned(found(), within(3), topics=(paused,))
    assert (plan.moves.log_dir_moves, plan.moves.is_rebalanced) == ((), True)
    assert told(plan)[1].endswith("these partitions were left out: t-3 (the Topic is paused)")


def test_nothing_moves_between_log_dirs_while_a_broker_is_not_alive() -> None:
    plan = planned(replace(found(), racks={0: None}), within(3))
    assert (plan.moves.log_dir_moves, plan.moves.is_rebalanced) == ((), False)
    assert "the next moves begin when all brokers are ready, all replicas are in sync" in told(plan)[1]


def test_a_plan_waits_for_a_broker_that_does_not_report_its_disks() -> None:
    state = found()
    assert state.disks is not None
    silent = Disks({1: state.disks.log_dirs[1]})
    plan = planned(replace(state, disks=silent), within(3))
    assert (plan.moves.log_dir_moves, plan.moves.is_rebalanced) == ((), False)
    assert told(plan)[1].endswith("these partitions were left out: t-3 (broker 0 does not report its free space)")
    unknown = planned(replace(state, disks=None), within(3))
    assert (unknown.moves.log_dir_moves, unknown.moves.is_rebalanced) == ((), False)

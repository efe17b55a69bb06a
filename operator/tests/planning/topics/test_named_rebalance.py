"""A plan of a run of the job `skew`: the moves that are done, and the report of those that are left out."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
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
    named_run,
)
from barnabas_operator.planning.status.cluster_events import cluster_events
from barnabas_operator.planning.status.cluster_status import reassignment_conditions
from barnabas_operator.planning.topics.reconcile_plan import MovePlan, NamedProgress, ReconcilePlan, plan_reconcile
from barnabas_operator.planning.topics.replica_moves import MoveReplicas
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, ClusterStatus
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.maintenance_run import MaintenanceJob, MaintenanceJobSpec, MaintenanceJobStatus
from barnabas_operator.resources.topic import Topic, TopicSpec

GIB = 1 << 30
PLENTY = DiskSpace(100 * GIB, 100 * GIB)
MOVED = {"topic": "t", "partition": 0, "replicas": [1], "before": [0]}
PLAN = {"version": 1, "partitions": [MOVED, {**MOVED, "partition": 1, "replicas": [2]}], "topic_ids": {"t": "id"}}


def declared(word: str = "even") -> Cluster:
    return Cluster(
        metadata=ObjectMeta(name="one", annotations={APPROVAL: word}), spec=ClusterSpec(brokers=Brokers(replicas=3))
    )


def run(plan: object = PLAN, **changes: Any) -> MaintenanceJob:
    job, phase = changes.get("job", "skew"), changes.get("phase", "Succeeded")
    text = plan if isinstance(plan, str) else json.dumps(plan)
    return MaintenanceJob(
        metadata=ObjectMeta(name="even"),
        spec=MaintenanceJobSpec(job=job),
        status=MaintenanceJobStatus(phase=phase, result={"plan": text, "records": 7}),
    )


def found(
    rows: tuple[tuple[int, ...], ...] = ((0,), (0,), (0,)), room: Mapping[int, DiskSpace] | None = None
) -> ClusterState:
    """Three brokers, and three partitions of 10 GiB."""
    held = {
        broker: {TopicPartition("t", number): 10 * GIB for number, row in enumerate(rows) if broker in row}
        for broker in range(3)
    }
    log_dirs = {
        broker: {"/data": LogDirContent((room or {}).get(broker, PLENTY), each, {})} for broker, each in held.items()
    }
    topics = {"t": TopicState("id", rows, {})}
    return ClusterState(dict.fromkeys(range(3)), topics, disks=Disks(log_dirs)).with_brokers(3)


def planned(state: ClusterState, plan: object = PLAN, *topics: Topic) -> ReconcilePlan:
    return plan_reconcile(DesiredState(declared(), topics, (), named=named_rebalance("even", run(plan))), state)


def told(plan: ReconcilePlan, state: ClusterState) -> tuple[str, str, str]:
    ahead = plan.moves
    conditions = reassignment_conditions(declared(), "T", state, ahead)
    (said,) = [each for each in conditions if each.type == "Rebalancing"]
    return said.status, said.reason, said.message


def test_the_moves_of_the_plan_begin_and_replace_those_of_the_operator() -> None:
    plan = planned(found())
    assert plan.steps == (MoveReplicas("t", {0: (1,), 1: (2,)}),)
    assert not plan.moves.is_rebalanced
    assert told(plan, found()) == (
        "True",
        "PlanUnderWay",
        "0 of 2 partitions of the plan of MaintenanceJob even are moved",
    )


def test_an_operator_continues_a_plan_that_is_partly_done() -> None:
    """One partition has moved, and the other one is moving."""
    state = found(((1,), (0, 2), (0,)))
    state = replace(state, topics={"t": replace(state.topics["t"], moving={1: (2,)})})
    plan = planned(state)
    assert (plan.steps, plan.moves.is_rebalanced) == ((), False)
    assert told(plan, state)[2].startswith("1 of 2 partitions")


def test_a_plan_is_done_when_all_of_it_has_moved() -> None:
    state = found(((1,), (2,), (0,)))
    plan = planned(state)
    assert (plan.steps, plan.moves.is_rebalanced) == ((), True)
    assert told(plan, state)[:2] == ("False", "PlanDone")
    assert not planned(replace(state, racks={0: None, 1: None})).moves.is_rebalanced, "a broker is not alive"


OTHER_TOPIC = replace(found(), topics={"t": TopicState("another", ((0,), (0,)), {})})
LEFT_OUT: Mapping[str, ClusterState] = {
    "the topic was deleted": replace(found(), topics={}),
    "the topic was deleted and created again": OTHER_TOPIC,
    "the replicas have changed since the plan was made": found(((2,), (2,), (0,))),
    "broker 1 has too little free space": found(room={1: DiskSpace(10 * GIB, 100 * GIB)}),
}


@pytest.mark.parametrize("why", LEFT_OUT)
def test_a_partition_that_has_changed_since_the_plan_was_made_is_left_out(why: str) -> None:
    one = {**PLAN, "partitions": [MOVED]}
    plan = planned(LEFT_OUT[why], one)
    assert (plan.steps, plan.moves.is_rebalanced) == ((), True)
    assert told(plan, LEFT_OUT[why]) == (
        "False",
        "PlanDone",
        f"0 of 1 partitions of the plan of MaintenanceJob even are moved; these partitions were left out: t-0 ({why})",
    )


def test_a_paused_topic_is_left_out() -> None:
    paused = Topic(metadata=ObjectMeta(name="mine"), spec=TopicSpec(topic_name="t", pause=True))
    assert "t-0 (the Topic is paused)" in told(planned(found(), PLAN, paused), found())[2]


@pytest.mark.parametrize(
    ("by_hand", "why"),
    [
        (
            {"replicas": [1]},
            "the planned replicas are 1; allowed: as many replicas as before, each on a different broker",
        ),
        (
            {"replicas": []},
            "the planned replicas are none; allowed: as many replicas as before, each on a different broker",
        ),
        (
            {"replicas": [2, 2]},
            "the planned replicas are 2,2; allowed: as many replicas as before, each on a different broker",
        ),
        (
            {"replicas": [0, 1, 2]},
            "the planned replicas are 0,1,2; allowed: as many replicas as before, each on a different broker",
        ),
        ({"log_dirs": ["/a"]}, "the plan has 1 log_dirs; allowed: one for each replica, in total 2"),
        ({"partition": -1}, "the topic has no such partition"),
        ({"partition": 3}, "the topic has no such partition"),
    ],
)
def test_a_plan_written_by_hand_cannot_change_the_number_of_replicas(by_hand: dict[str, object], why: str) -> None:
    """Fewer replicas would be fewer copies of records, although the run had planned only moves."""
    state = found(((0, 1), (0, 1), (0, 1)))
    moved = {**MOVED, "replicas": [2, 1], "before": [0, 1], **by_hand}
    plan = planned(state, {**PLAN, "partitions": [moved]})
    assert (plan.steps, plan.moves.is_rebalanced) == ((), True)
    assert told(plan, state)[2].endswith(f"; these partitions were left out: t-{moved['partition']} ({why})")


def test_another_order_of_the_same_replicas_moves_the_preferred_leader() -> None:
    state = found(((0, 1), (0, 1), (0, 1)))
    plan = planned(state, {**PLAN, "partitions": [{**MOVED, "replicas": [1, 0], "before": [0, 1]}]})
    assert plan.steps == (MoveReplicas("t", {0: (1, 0)}),)


def test_a_plan_that_was_cut_is_reported_as_such() -> None:
    """A pod's result has at most 4,096 bytes, which is often too little for 50 planned moves."""
    state = found(((1,), (2,), (0,)))
    result = {"plan": json.dumps(PLAN), "plan_partitions": 2, "planned_partitions": 50}
    long = msgspec.structs.replace(run(), status=MaintenanceJobStatus(phase="Succeeded", result=result))
    plan = plan_reconcile(DesiredState(declared(), (), (), named=named_rebalance("even", long)), state)
    status, reason, message = told(plan, state)
    assert (status, reason) == ("False", "PlanDone")
    assert message.endswith(
        " are moved; 48 more partitions did not fit into the plan; for them, run the job skew again"
    )


def test_moves_of_one_plan_share_the_room_of_a_broker() -> None:
    both = {**PLAN, "partitions": [MOVED, {**MOVED, "partition": 1}]}
    state = found(room={1: DiskSpace(16 * GIB, 100 * GIB)})
    plan = planned(state, both)
    assert plan.steps == (MoveReplicas("t", {0: (1,)}),)
    assert told(plan, state)[2].endswith("these partitions were left out: t-1 (broker 1 has too little free space)")


def test_no_move_of_the_plan_begins_while_a_broker_is_not_alive() -> None:
    state = replace(found(), racks={0: None, 1: None})
    plan = planned(state)
    assert (plan.steps, plan.moves.is_rebalanced) == ((), False)
    assert ("moved; the next moves begin when all brokers are ready, all replicas are in sync, and no") in told(
        plan, state
    )[2]


@pytest.mark.parametrize("silent", [0, 1])
def test_a_plan_waits_for_a_broker_that_does_not_report_its_free_space(silent: int) -> None:
    """The broker may report it again soon, and the annotation stays until then."""
    state = found()
    assert state.disks is not None
    known = {broker: contents for broker, contents in state.disks.log_dirs.items() if broker != silent}
    state = replace(state, disks=Disks(known))
    plan = planned(state, {**PLAN, "partitions": [MOVED]})
    assert (plan.steps, plan.moves.is_rebalanced) == ((), False)
    status, reason, message = told(plan, state)
    assert (status, reason) == ("True", "PlanUnderWay")
    assert message.endswith(f"; these partitions were left out: t-0 (broker {silent} does not report its free space)")


REFUSED: Mapping[str, MaintenanceJob | None] = {
    "the Cluster has no MaintenanceJob with that name": None,
    "the MaintenanceJob's job is audit, which makes no rebalance plan": run(job="audit"),
    "the MaintenanceJob's phase is Running": run(phase="Running"),
    "status.result.plan of the MaintenanceJob is not a valid plan": run("7 items; see the log of the pod"),
    "the plan of the MaintenanceJob is empty": run({**PLAN, "partitions": []}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_run_that_is_no_plan_of_this_cluster_is_refused(why: str) -> None:
    named = named_rebalance("even", REFUSED[why])
    assert named.refusal == (
        f"the annotation barnabas.dev/rebalance is even: {why}; allowed: approve, or the name of a MaintenanceJob of "
        "this Cluster with job skew that has succeeded"
    )
    plan = plan_reconcile(DesiredState(declared(), (), (), named=named), found())
    assert (plan.steps, plan.moves.is_rebalanced) == ((), False)
    assert told(plan, found()) == ("False", "PlanRefused", named.refusal)


def test_the_annotation_approve_names_no_run() -> None:
    assert (named_run(declared("approve")), named_run(declared("even"))) == (None, "even")


def test_events_report_the_start_and_the_end_of_a_plan_once() -> None:
    plan = planned(found())
    conditions = tuple(reassignment_conditions(declared(), "T", None, MovePlan(named=plan.moves.named)))
    cluster = msgspec.structs.replace(declared(), status=ClusterStatus(conditions=conditions))
    assert [(kind, reason) for kind, reason, _ in cluster_events(cluster, {})] == [("Normal", "PlanUnderWay")]
    (condition,) = (each for each in conditions if each.type == "Rebalancing")
    earlier = msgspec.structs.replace(condition, message=condition.message.replace("0 of 2", "1 of 2"))
    assert earlier != condition
    before = msgspec.to_builtins(ClusterStatus(conditions=(earlier,)))
    assert list(cluster_events(cluster, before)) == []
    state = found(((1,), (2,), (0,)))
    done = tuple(reassignment_conditions(declared(), "T", state, planned(state).moves))
    ended = msgspec.structs.replace(declared(), status=ClusterStatus(conditions=done))
    ((kind, reason, message),) = cluster_events(ended, msgspec.to_builtins(cluster.status))
    assert (kind, reason) == ("Normal", "PlanDone")
    assert message == "2 of 2 partitions of the plan of MaintenanceJob even are moved"
    assert list(cluster_events(ended, msgspec.to_builtins(ended.status))) == []


def test_an_event_reports_each_refusal_once() -> None:
    """A user who replaces a wrong name by another wrong name expects a second refusal."""

    def refused(word: str) -> Cluster:
        named = NamedProgress(word, named_rebalance(word, None).refusal)
        conditions = tuple(reassignment_conditions(declared(word), "T", None, MovePlan(named=named)))
        return msgspec.structs.replace(declared(word), status=ClusterStatus(conditions=conditions))

    before = msgspec.to_builtins(refused("evn").status)
    assert list(cluster_events(refused("evn"), before)) == []
    ((kind, reason, message),) = cluster_events(refused("eveen"), before)
    assert (kind, reason) == ("Warning", "PlanRefused")
    assert "is eveen: " in message

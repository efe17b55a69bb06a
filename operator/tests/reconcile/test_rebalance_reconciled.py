"""A rebalance over an API server and brokers in memory: proposed, approved, carried out, and ended."""

import json
from dataclasses import replace

import pytest

from barnabas_core.placement import DiskSpace
from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.kube.gather import REVISION
from barnabas_operator.planning.cluster_state import APPROVAL, LogDirContent, TopicState
from barnabas_operator.planning.topics.replica_moves import LogDirMove
from barnabas_operator.resources.kind import JsonObject
from harness.worker_world import SETTINGS, World, of_broker, resource


def uneven(here: World) -> JsonObject:
    """Return a Cluster with two brokers, of which the first has all ten partitions."""
    here.brokers.count = 2
    for number in range(2):
        here.api.put(of_broker(number))
    here.brokers.topics["flights"] = TopicState("id", ((0,),) * 10, {})
    return resource("Cluster", "one", brokers={"replicas": 2}, config={"offsets.topic.replication.factor": 1})


def approve(here: World, word: str = "approve") -> None:
    found = here.api.found("Cluster", "one")
    assert found is not None
    here.api.put({**found, "metadata": {**found["metadata"], "annotations": {APPROVAL: word, "kept": "x"}}})


def annotations(here: World) -> JsonObject:
    found = here.api.found("Cluster", "one")
    assert found is not None
    kept: JsonObject = found["metadata"].get("annotations", {})
    return kept


async def test_a_rebalance_waits_for_its_approval_and_removes_the_approval_when_it_is_done(
    here: World,
) -> None:
    here.api.put(uneven(here))
    await here.round()
    await here.round()
    status, _, message = here.said("Cluster", "one", "RebalanceProposed")
    assert (status, message.partition(",")[0]) == ("True", "broker 1 has less data than the other brokers")
    assert [reason for reason, _ in here.api.events()].count("RebalanceProposed") == 1
    assert here.brokers.topics["flights"].partitions == ((0,),) * 10
    approve(here)
    await here.round()
    assert sorted(here.brokers.topics["flights"].partitions) == [(0,)] * 5 + [(1,)] * 5
    begun = "a rebalance was approved: partitions of these topics are being reassigned: flights (5)"
    assert ("ReplicasMoving", begun) in here.api.events()
    assert annotations(here) == {APPROVAL: "approve", "kept": "x"}, "until it is seen to be done"
    await here.round()
    assert annotations(here) == {"kept": "x"}
    assert "RebalanceProposed" not in here.conditions("Cluster", "one")


async def test_a_move_that_brokers_refuse_is_reported(here: World) -> None:
    declared = uneven(here)
    here.api.put({**declared, "spec": {**declared["spec"], "rebalance": "Automatic"}})
    here.brokers.refused_move = StepRefused(42, "not now")
    await here.round()
    _, _, message = here.said("Cluster", "one", "ReplicasMoving")
    assert message.startswith(
        "partitions of these topics are being reassigned: none yet; could not move replicas of flights"
    )
    assert message.endswith(": INVALID_REQUEST (42): not now")
    here.brokers.refused_move = None
    await here.round()
    await here.round()
    assert "ReplicasMoving" not in here.conditions("Cluster", "one")


async def test_no_rebalance_begins_while_brokers_have_to_restart(here: World) -> None:
    """A restart would wait for all moves, and a broker that stops would get replicas."""
    declared = uneven(here)
    here.api.put(declared)
    await here.round()
    here.kubernetes_saw("new")
    for number, revision in enumerate(("old", "new")):
        pod = of_broker(number)
        labels = {**pod["metadata"]["labels"], REVISION: revision}
        here.api.put({**pod, "metadata": {**pod["metadata"], "labels": labels}})
    here.api.put({**declared, "spec": {**declared["spec"], "rebalance": "Automatic"}})
    await here.round()
    assert here.api.found("Pod", "one-broker-0") is None, "it restarts"
    assert here.brokers.topics["flights"].partitions == ((0,),) * 10
    here.api.put(of_broker(0))
    await here.round()
    assert sorted(here.brokers.topics["flights"].partitions) == [(0,)] * 5 + [(1,)] * 5


async def test_an_automatic_rebalance_needs_no_approval(here: World) -> None:
    declared = uneven(here)
    here.api.put({**declared, "spec": {**declared["spec"], "rebalance": "Automatic"}})
    await here.round()
    assert sorted(here.brokers.topics["flights"].partitions) == [(0,)] * 5 + [(1,)] * 5


def has_planned(here: World, *partitions: JsonObject) -> None:
    """The run `even` of the job skew has ended with a plan of these partitions, which were on broker 0."""
    planned = [{"topic": "flights", "before": [0], **each} for each in partitions]
    plan = {"version": 1, "partitions": planned, "topic_ids": {"flights": "id"}}
    run = resource("MaintenanceJob", "even", cluster="one", job="skew", options={})
    run["status"] = {"cluster": "one", "phase": "Succeeded", "result": {"plan": json.dumps(plan)}}
    here.api.put(run)


async def test_a_plan_of_the_job_skew_is_carried_out_and_reported_at_its_end(here: World) -> None:
    """A user has added a replica to partition 2 since; the operator's own plan would move five partitions."""
    here.api.put(uneven(here))
    await here.round()
    here.brokers.topics["flights"] = TopicState("id", ((0,), (0,), (0, 1), *((0,),) * 7), {})
    approve(here, "even")
    await here.round()
    assert here.said("Cluster", "one", "Rebalancing")[:2] == ("False", "PlanRefused")
    has_planned(here, *({"partition": number, "replicas": [1]} for number in (0, 2)))
    await here.round()
    assert here.brokers.topics["flights"].partitions == ((1,), (0,), (0, 1), *((0,),) * 7)
    assert annotations(here) == {APPROVAL: "even", "kept": "x"}, "until it is seen to be done"
    await here.round()
    assert annotations(here) == {"kept": "x"}
    told = [(reason, said) for reason, said in here.api.events() if reason.startswith("Plan")]
    assert [reason for reason, _ in told] == ["PlanRefused", "PlanUnderWay", "PlanDone"]
    assert told[-1][1] == (
        "1 of 2 partitions of the plan of MaintenanceJob even are moved; "
        "these partitions were left out: flights-2 (the replicas have "
        "changed since the plan was made)"
    )
    await here.round()
    assert "Rebalancing" not in here.conditions("Cluster", "one")


@pytest.mark.parametrize("here", [replace(SETTINGS, busy_s=0.01)], indirect=True)
async def test_rounds_go_on_without_events_until_a_plan_within_a_broker_is_done(here: World) -> None:
    """No event would start the next round soon."""
    here.api.put(uneven(here))
    await here.round()
    here.kubernetes_saw("new")
    first, space = TopicPartition("flights", 0), DiskSpace(1 << 40, 1 << 40)
    here.brokers.log_dirs = {"/1": LogDirContent(space, {first: 5}, {}), "/2": LogDirContent(space, {}, {})}
    has_planned(here, {"partition": 0, "replicas": [0], "log_dirs": ["/2"]})
    approve(here, "even")
    await here.round()
    for _ in range(2):
        await here.next()
        assert here.said("Cluster", "one", "Rebalancing")[:2] == ("True", "PlanUnderWay")
    assert here.brokers.begun == [LogDirMove(first, 0, "/2")], "the move was requested once"
    here.brokers.log_dirs = {"/1": LogDirContent(space, {}, {}), "/2": LogDirContent(space, {first: 5}, {})}
    await here.next()
    assert "PlanDone" in [reason for reason, _ in here.api.events()]
    assert annotations(here) == {"kept": "x"}


def carried_out(here: World) -> None:
    """Create a plan of one partition that has moved, so that the next round ends the plan."""
    here.brokers.topics["flights"] = TopicState("id", ((1,), *((0,),) * 9), {})
    has_planned(here, {"partition": 0, "replicas": [1]})
    approve(here, "even")


@pytest.mark.parametrize("failure", [KubeUnreachable("away"), KubeRefused(403, "Forbidden", "not now")])
async def test_the_end_of_a_plan_is_reported_although_the_first_write_of_the_status_failed(
    failure: Exception, here: World
) -> None:
    """Without the annotation the plan, and the partitions that were left out of it, would be forgotten."""
    here.api.put(uneven(here))
    await here.round()
    carried_out(here)
    here.api.refuse = lambda _, path, __: failure if path.endswith("clusters/one/status") else None
    await here.round()
    here.api.refuse = lambda *_: None
    await here.round()
    assert "PlanDone" in [reason for reason, _ in here.api.events()]
    assert annotations(here) == {"kept": "x"}


async def test_an_annotation_that_was_changed_meanwhile_stays(here: World) -> None:
    here.api.put(uneven(here))
    await here.round()
    carried_out(here)

    def meanwhile(_method: str, path: str, _body: object) -> None:
        if path.endswith("clusters/one/status") and annotations(here)[APPROVAL] == "even":
            approve(here, "approve")

    here.api.refuse = meanwhile
    await here.round()
    assert annotations(here) == {APPROVAL: "approve", "kept": "x"}

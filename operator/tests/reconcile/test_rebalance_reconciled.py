"""A rebalance over an API server and brokers of a few dicts: proposed, approved, carried out, and asked for no more."""

from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.kube.gather import REVISION
from barnabas_operator.planning.cluster_state import TopicState
from barnabas_operator.planning.topics.rebalance import APPROVAL
from barnabas_operator.resources.json_types import JsonObject
from harness.worker_world import Play, World, of_broker, resource


def uneven(here: World) -> JsonObject:
    """Two brokers, of which the first has all ten partitions."""
    here.brokers.count = 2
    for number in range(2):
        here.api.put(of_broker(number))
    here.brokers.topics["flights"] = TopicState("id", ((0,),) * 10, {})
    return resource("Cluster", "one", brokers={"replicas": 2}, config={"offsets.topic.replication.factor": 1})


def approve(here: World) -> None:
    found = here.api.found("Cluster", "one")
    assert found is not None
    here.api.put({**found, "metadata": {**found["metadata"], "annotations": {APPROVAL: "approve", "kept": "x"}}})


def annotations(here: World) -> JsonObject:
    found = here.api.found("Cluster", "one")
    assert found is not None
    kept: JsonObject = found["metadata"].get("annotations", {})
    return kept


def test_a_rebalance_waits_for_its_approval_is_told_once_and_takes_the_approval_away_when_it_is_done(
    play: Play,
) -> None:
    async def scenario(here: World) -> None:
        here.api.put(uneven(here))
        await here.round()
        await here.round()
        status, _, message = here.said("Cluster", "one", "RebalanceProposed")
        assert (status, message.partition(":")[0]) == ("True", "broker 1 holds less than the others")
        assert [reason for reason, _ in here.api.events()].count("RebalanceProposed") == 1
        assert here.brokers.topics["flights"].partitions == ((0,),) * 10
        approve(here)
        await here.round()
        assert sorted(here.brokers.topics["flights"].partitions) == [(0,)] * 5 + [(1,)] * 5
        assert annotations(here) == {APPROVAL: "approve", "kept": "x"}, "until it is seen to be done"
        await here.round()
        assert annotations(here) == {"kept": "x"}
        assert "RebalanceProposed" not in here.conditions("Cluster", "one")

    play(scenario)


def test_a_move_that_brokers_refuse_is_told(play: Play) -> None:
    async def scenario(here: World) -> None:
        declared = uneven(here)
        here.api.put({**declared, "spec": {**declared["spec"], "rebalance": "Automatic"}})
        here.brokers.refused_move = StepRefused(42, "not now")
        await here.round()
        _, _, message = here.said("Cluster", "one", "ReplicasMoving")
        assert message.startswith(
            "partitions are moving to other replicas: none yet; could not move replicas of flights"
        )
        assert message.endswith(": INVALID_REQUEST (42): not now")
        here.brokers.refused_move = None
        await here.round()
        await here.round()
        assert "ReplicasMoving" not in here.conditions("Cluster", "one")

    play(scenario)


def test_no_rebalance_begins_while_brokers_are_to_restart(play: Play) -> None:
    """A restart would wait for all that moves, and a broker that ends would get replicas."""

    async def scenario(here: World) -> None:
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

    play(scenario)


def test_an_automatic_rebalance_needs_no_approval(play: Play) -> None:
    async def scenario(here: World) -> None:
        declared = uneven(here)
        here.api.put({**declared, "spec": {**declared["spec"], "rebalance": "Automatic"}})
        await here.round()
        assert sorted(here.brokers.topics["flights"].partitions) == [(0,)] * 5 + [(1,)] * 5

    play(scenario)

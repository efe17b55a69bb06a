"""The status of a Cluster over several rounds: whether clients are served, and the state of claims and pods."""

from barnabas_operator.resources.kind import JsonObject
from harness.worker_world import World, claim_of, of_broker, resource

SILENT = "no broker answers the operator at brokers: nobody is there"


async def whole(here: World, brokers: int = 2) -> None:
    """Create a Cluster whose pods are all ready."""
    here.api.put(resource("Cluster", "one", brokers={"replicas": brokers}))
    await here.round()
    for number in range(brokers):
        here.api.put(of_broker(number))
    here.kubernetes_saw("new")


def ending(item: JsonObject) -> JsonObject:
    """Return the object as one that was deleted and is held by a finalizer."""
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["held"]}
    return {**item, "metadata": {**item["metadata"], **gone}}


async def test_ready_is_unknown_if_brokers_do_not_answer_although_their_pods_are_ready(here: World) -> None:
    here.brokers.count = 0
    await whole(here)
    await here.round()
    assert here.said("Cluster", "one") == ("Unknown", "BrokersUnreachable", SILENT)
    here.brokers.count = 2
    here.worker.object_event(of_broker(0), is_gone=False)
    await here.round()
    assert here.said("Cluster", "one")[0] == "True"
    here.brokers.count = 0
    await here.round()
    assert here.said("Cluster", "one")[0] == "True", "a short silence changes nothing"
    here.api.put({**of_broker(1), "status": {}})
    await here.round()
    assert here.said("Cluster", "one")[:2] == ("False", "BrokersNotReady")


async def test_a_new_cluster_starts_and_one_that_was_ready_before_is_not_ready(here: World) -> None:
    here.brokers.count = 2
    here.api.put(resource("Cluster", "one", brokers={"replicas": 2}))
    await here.round()
    assert here.said("Cluster", "one")[:2] == ("False", "BrokersStarting")
    await whole(here)
    await here.round()
    assert here.said("Cluster", "one")[0] == "True"
    here.api.put({**of_broker(1), "status": {}})
    here.worker.object_event(of_broker(1), is_gone=False)
    await here.round()
    assert here.said("Cluster", "one")[:2] == ("False", "BrokersNotReady")


async def test_a_paused_cluster_says_no_number_of_ready_brokers(here: World) -> None:
    here.brokers.count = 2
    await whole(here)
    await here.round()
    assert (here.api.found("Cluster", "one") or {})["status"]["readyBrokers"] == 2
    body = here.api.found("Cluster", "one") or {}
    here.api.put({**body, "spec": {**body["spec"], "pause": True}})
    await here.round()
    assert here.said("Cluster", "one")[:2] == ("Unknown", "Paused")
    assert "readyBrokers" not in (here.api.found("Cluster", "one") or {})["status"]


async def test_no_broker_restarts_while_a_claim_is_terminating_and_that_is_reported(here: World) -> None:
    here.brokers.count = 2
    await whole(here)
    here.api.put(ending(claim_of(0, 1)))
    here.kubernetes_saw("newer")
    await here.round()
    why = "waiting for the deletion of claim volume-0-one-broker-1 before broker 1 restarts"
    said = here.said("Cluster", "one", "Rolling")
    assert said == ("True", "Restarting", f"0 of 2 brokers run with the declared settings; {why}")
    assert here.said("Cluster", "one", "ClaimsDeleted")[:2] == ("True", "InUse")
    status, _, shown = here.said("Cluster", "one")
    assert status == "True"
    assert "claims were deleted while in use: volume-0-one-broker-1" in shown
    assert all(here.api.found("Pod", f"one-broker-{number}") for number in range(2))
    assert "ClaimsDeleted" in [reason for reason, _ in here.api.events()]


async def test_a_cluster_that_cannot_be_deleted_reports_the_overdue_pod_and_its_node(here: World) -> None:
    pod = of_broker(0)
    here.api.put(ending({**pod, "spec": {**pod["spec"], "nodeName": "node-2"}}))
    here.api.put(resource("Cluster", "one", goes=True, held=True, deletionPolicy="Delete"))
    await here.round()
    status, reason, message = here.said("Cluster", "one")
    assert (status, reason) == ("False", "PodsOverdue")
    assert message == (
        "waiting for one-broker-0 to end before disks are deleted: one-broker-0 should have ended at "
        "2026-01-01T00:00:00Z, and its node node-2 is not ready, so Kubernetes waits for the node; if the node is "
        "gone for good, run: kubectl delete node node-2"
    )

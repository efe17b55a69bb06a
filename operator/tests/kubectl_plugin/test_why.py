"""The sentence of `kubectl barnabas why POD`."""

from typing import Any

import pytest

from barnabas_kubectl.why import NoBroker, cluster_name, why

READY = {"type": "Ready", "status": "True"}
UNREADY = {"type": "Ready", "status": "False"}


def pod(name: str = "flights-broker-1", labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    meta = {"name": name, "labels": {"barnabas.dev/cluster": "flights"} if labels is None else labels}
    return {"metadata": meta, "status": {"conditions": [READY], "startTime": "2026-11-29T08:00:00Z", **status}}


def cluster(spec: dict[str, Any] | None = None, generation: int = 2, **status: Any) -> dict[str, Any]:
    return {"metadata": {"generation": 2}, "spec": spec or {}, "status": {"observedGeneration": generation, **status}}


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "broker", **state}]


CRASHING = container(
    state={"waiting": {"reason": "CrashLoopBackOff"}},
    lastState={"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": "no memory.\n"}},
)
NOT_ACTED = (
    "does not restart yet, because the operator has not acted on generation 2 of the Cluster (last: 1); "
    "check that the operator runs."
)
CASES = {
    "a broker with nothing to do": (
        pod(),
        cluster(),
        "is ready, and need not restart: it runs with the declared settings since 2026-11-29T08:00:00Z.",
    ),
    "a broker that waits in a roll": (
        pod(),
        cluster(rolling={"remaining": [0, 1], "blockedBy": "UnderReplicated", "message": "flights-3 is not in sync"}),
        "is to restart, and waits (UnderReplicated): flights-3 is not in sync.",
    ),
    "a roll whose reason is only in the condition": (
        pod(),
        cluster(rolling={"remaining": [1]}, conditions=[{"type": "Rolling", "message": "0 of 3 brokers run."}]),
        "is to restart, and waits: 0 of 3 brokers run.",
    ),
    "a broker that restarts": (
        pod(conditions=[UNREADY]),
        cluster(rolling={"restarting": [1]}),
        "is restarting, and its broker is not ready yet.",
    ),
    "a paused Cluster": (
        pod(),
        cluster({"pause": True}),
        "does not restart, because its Cluster has spec.pause: the operator changes nothing.",
    ),
    "an operator that is away": (
        pod(),
        cluster(generation=1),
        NOT_ACTED,
    ),
    "a pod without a node": (
        pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available."}]),
        cluster(),
        "has no node: 0/3 nodes are available.",
    ),
    "a container that crashes": (
        pod(conditions=[UNREADY], containerStatuses=CRASHING),
        cluster(),
        "does not start (CrashLoopBackOff): its container broker ended with OOMKilled, exit code 137: no memory.",
    ),
    "an image that cannot be pulled": (
        pod(containerStatuses=container(state={"waiting": {"reason": "ErrImagePull", "message": "not found"}})),
        cluster(),
        "does not start (ErrImagePull): not found.",
    ),
    "a container that is made": (
        pod(containerStatuses=container(state={"waiting": {"reason": "ContainerCreating"}})),
        cluster(),
        "is starting: its container broker is in ContainerCreating.",
    ),
    "a broker that has restarted before, and runs": (
        pod(containerStatuses=container(state={"running": {}}, lastState={"terminated": {"exitCode": 1}})),
        cluster(),
        "is ready, and need not restart: it runs with the declared settings since 2026-11-29T08:00:00Z.",
    ),
    "a broker that has not joined": (
        pod(conditions=[UNREADY]),
        cluster(),
        "runs, and is not ready: its broker has not joined the cluster yet; its log says what it does.",
    ),
}


@pytest.mark.parametrize(("of_pod", "of_cluster", "reason"), CASES.values(), ids=CASES)
def test_the_first_cause_is_named(of_pod: dict[str, Any], of_cluster: dict[str, Any], reason: str) -> None:
    assert why(of_pod, of_cluster) == f"flights-broker-1 {reason}"


@pytest.mark.parametrize("stranger", [pod("web-0", labels={}), pod("flights-lag-exporter-x7z")])
def test_a_pod_that_is_no_broker_is_rejected(stranger: dict[str, Any]) -> None:
    with pytest.raises(NoBroker, match="is not a broker of a Cluster"):
        cluster_name(stranger)

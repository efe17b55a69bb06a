"""The report about a broker's pod that does not run."""

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas_operator.planning.status.cluster_events import pod_trouble, runs
from barnabas_operator.resources.kind import Json

LOG = """[2026-01-01 00:00:00,000] INFO 3 topics are loaded (barnabas_broker.app)
[2026-01-01 00:00:01,000] ERROR log dir /data/0 is offline: Input/output error (barnabas_broker.storage)
[2026-01-01 00:00:01,000] INFO the log dirs are closed (barnabas_broker.storage)
"""
NO_NODE = "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) had volume node affinity conflict"
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container=broker"}}


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def pod(state: Json, last: Json | None = None, *, limit: str | None = "24Mi", **status: Any) -> dict[str, Any]:
    sidecar = {"name": "agent", "state": {"running": {}}}
    broker = {"name": "broker", "state": state, "lastState": last or {}}
    limits = {"memory": limit} if limit is not None else {}
    return {
        "metadata": {"name": "main-broker-1"},
        "spec": {"containers": [{"name": "agent"}, {"name": "broker", "resources": {"limits": limits}}]},
        "status": {"containerStatuses": [sidecar, broker], **status},
    }


def unready(since: str) -> Json:
    return {"type": "Ready", "status": "False", "lastTransitionTime": since}


def unplaced(reason: str, message: str = "") -> dict[str, Any]:
    told = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"metadata": {"name": "main-broker-1"}, "spec": {}, "status": {"phase": "Pending", "conditions": [told]}}


OUT_OF_MEMORY = (
    "main-broker-1 was OOMKilled (exit 137) at the limit of 24Mi; raise spec.brokers.resources.limits.memory"
)
NODE_WITHOUT_MEMORY = (
    "main-broker-1 was OOMKilled (exit 137): the node ran out of memory; "
    "set spec.brokers.resources.requests.memory to the memory that a broker needs"
)
CASES: Mapping[str, tuple[Json, str]] = {
    "it runs": (pod({"running": {}}), ""),
    "it runs again, and is ready": (
        pod({"running": {}}, ended(1, message=LOG), conditions=[{"type": "Ready", "status": "True"}]),
        "",
    ),
    "it runs again, and is not ready yet": (
        pod({"running": {}}, ended(137), conditions=[{"type": "Ready", "status": "False"}]),
        "main-broker-1 was killed (exit 137); the broker has restarted and is not ready yet",
    ),
    "it runs again, was ready and is so no more": (
        pod(
            {"running": {"startedAt": "2026-01-01T00:00:05Z"}}, ended(137), conditions=[unready("2026-01-03T00:00:00Z")]
        ),
        "",
    ),
    "it runs again, and was ready before it was killed only": (
        pod(
            {"running": {"startedAt": "2026-01-01T00:00:05Z"}}, ended(137), conditions=[unready("2026-01-01T00:00:05Z")]
        ),
        "main-broker-1 was killed (exit 137); the broker has restarted and is not ready yet",
    ),
    "it starts": (pod({"waiting": {"reason": "ContainerCreating"}}), ""),
    "it has ended in order": (pod(ended(0, "Completed")), ""),
    "it had too little memory": (pod(ended(137, "OOMKilled", LOG)), OUT_OF_MEMORY),
    "it had too little memory, and waits to be started again": (pod(BACK_OFF, ended(137, "OOMKilled")), OUT_OF_MEMORY),
    "its node had too little memory": (
        pod(ended(137, "OOMKilled"), limit=None),
        NODE_WITHOUT_MEMORY,
    ),
    "it was killed": (pod(ended(137, message=LOG)), "main-broker-1 was killed (exit 137)"),
    "its log tells of an error": (
        pod(BACK_OFF, ended(1, message=LOG)),
        "main-broker-1 ended (exit 1): ERROR log dir /data/0 is offline: Input/output error (barnabas_broker.storage)",
    ),
    "its log tells of none": (
        pod(ended(1, message="barnabas broker: /etc/barnabas/x: no such setting\n")),
        "main-broker-1 ended (exit 1): barnabas broker: /etc/barnabas/x: no such setting",
    ),
    "it ended without a word": (
        pod(BACK_OFF, ended(1)),
        "main-broker-1: CrashLoopBackOff: back-off 10s restarting failed container=broker",
    ),
    "its image is not there": (
        pod({"waiting": {"reason": "ErrImagePull", "message": "not found"}}, ended(1, message=LOG)),
        "main-broker-1: ErrImagePull: not found",
    ),
    "a container that goes before it does not start": (
        pod(
            {"waiting": {"reason": "PodInitializing"}},
            initContainerStatuses=[{"name": "prepare", "state": {"waiting": {"reason": "ErrImagePull"}}}],
        ),
        "main-broker-1: ErrImagePull",
    ),
    "no node takes it": (
        unplaced("Unschedulable", f"{NO_NODE}. preemption: 0/3 nodes are available."),
        f"main-broker-1 is Pending: {NO_NODE}",
    ),
    "its node has ended it": (
        {
            "metadata": {"name": "main-broker-1"},
            "spec": {},
            "status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        },
        "main-broker-1: Evicted: The node was low on resource: memory.",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_trouble_of_a_pod_is_reported_in_one_sentence(name: str) -> None:
    found, said = CASES[name]
    assert pod_trouble(found) == said
    assert runs(found) is name.startswith("it runs")

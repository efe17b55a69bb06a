"""The reasons that a real Kubernetes gives for the end of a container, as the operator reports them."""

import json
from typing import Any

from barnabas_operator.planning.status.cluster_events import pod_trouble
from e2e.pods.providers import Cluster
from local_kubernetes.images import BASE_IMAGE
from local_kubernetes.kubectl import PATIENTLY


def test_a_container_that_was_killed_or_out_of_memory_is_reported_as_such(cluster: Cluster, namespace: str) -> None:
    """The container has the name of a broker's, since a Cluster's status reports only on those."""
    _start(cluster, namespace, "greedy", "b'x' * 200_000_000")
    _start(cluster, namespace, "patient", "import time; time.sleep(600)")
    cluster.kubectl("-n", namespace, "wait", "--for=jsonpath={.status.phase}=Running", "pod/patient", PATIENTLY)
    cluster.crash(namespace, "patient")
    for pod in ("greedy", "patient"):
        cluster.kubectl("-n", namespace, "wait", "--for=jsonpath={.status.phase}=Failed", f"pod/{pod}", PATIENTLY)
    assert _status(cluster, namespace, "greedy")["state"]["terminated"]["reason"] == "OOMKilled"
    greedy, patient = (pod_trouble(_pod(cluster, namespace, pod)) for pod in ("greedy", "patient"))
    assert greedy == "greedy was OOMKilled (exit 137) at the limit of 32Mi; raise spec.brokers.resources.limits.memory"
    assert patient == "patient was killed (exit 137)"


def _start(cluster: Cluster, namespace: str, name: str, program: str) -> None:
    container = {
        "name": "broker",
        "image": cluster.image(BASE_IMAGE),
        "command": ["python3", "-c", program],
        "resources": {"limits": {"memory": "32Mi"}},
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("-n", namespace, "apply", "-f-", stdin=json.dumps(pod))


def _pod(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("-n", namespace, "get", "pod", name, "-o=json"))
    return found


def _status(cluster: Cluster, namespace: str, pod: str) -> dict[str, Any]:
    status: dict[str, Any] = _pod(cluster, namespace, pod)["status"]["containerStatuses"][0]
    return status

"""The cluster under the tests is a real one: volumes, names of pods, exec, logs, ports, accounts."""

import json
from typing import Any

from barnabas_operator.planning.status.pod_troubles import pod_trouble
from e2e.pods.providers import Cluster
from local_kubernetes.images import BASE_IMAGE
from local_kubernetes.kubectl import PATIENTLY


def test_a_container_that_is_killed_or_takes_too_much_memory_is_told_of_in_those_words(
    cluster: Cluster, namespace: str
) -> None:
    """Those of a Cluster's status, of pods whose container has the name of a broker's."""
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

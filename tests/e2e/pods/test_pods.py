"""The cluster under the tests is a real one: volumes, names of pods, exec, logs, ports, accounts."""

import json
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from barnabas_operator.planning.status.pod_troubles import pod_trouble
from e2e.pods.providers import Cluster
from harness.deadline import wait_for
from local_kubernetes.images import BASE_IMAGE
from local_kubernetes.kubectl import Kubectl

PORT = 8000
KNOWN_SECONDS_MAX = 90.0
SERVE = f"""
echo "here since $(date)" > /data/letter; echo started; cd /data; exec python3 -m http.server {PORT}
"""
READ = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"


def _manifests(image: str) -> str:
    container = {
        "name": "web",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", SERVE],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/letter", "port": PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}},
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "serviceName": "web",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [container],
                    "securityContext": {"runAsUser": 10001, "runAsGroup": 10001},
                    "terminationGracePeriodSeconds": 1,
                },
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }
    spec = {"selector": {"app": "web"}, "ports": [{"port": PORT}]}
    services = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {**spec, **more}}
        for name, more in (("web", {"clusterIP": "None"}), ("open", {"type": "NodePort"}))
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [*services, stateful_set]})


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Iterator[str]:
    """The namespace of two pods, each of which serves the letter on its volume."""
    with cluster.kubectl.namespace("web"):
        cluster.kubectl("-n", "web", "apply", "-f-", stdin=_manifests(cluster.image(BASE_IMAGE)))
        cluster.kubectl("-n", "web", "rollout", "status", "statefulset/web", "--timeout=120s")
        yield "web"


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def _read_in_pod(kubectl: Kubectl, namespace: str, url: str) -> str:
    """As soon as the cluster's DNS knows the name, and its network the service: neither is there with the pod."""
    read = partial(kubectl.ask, "-n", namespace, "exec", "web-0", "--", "python3", "-c", READ, url)
    return wait_for(read, lambda done: done.returncode == 0, KNOWN_SECONDS_MAX, pause_s=1.0).stdout


def test_pods_with_volumes_are_reached_by_name_by_service_and_from_outside(cluster: Cluster, web: str) -> None:
    kubectl = cluster.kubectl
    assert "started" in kubectl("-n", web, "logs", "web-0")
    letter = kubectl("-n", web, "exec", "web-1", "--", "cat", "/data/letter")
    url = f"http://web-1.web.{web}.svc.cluster.local:{PORT}/letter"
    by_name = _read_in_pod(kubectl, web, url)
    by_service = _read_in_pod(kubectl, web, f"http://open:{PORT}/letter")
    with kubectl.forwarded(web, "pod/web-1", PORT) as port:
        forwarded = _get(f"http://127.0.0.1:{port}/letter")
    assert letter.strip() == by_name.strip() == forwarded.strip()
    assert by_service.startswith("here since")
    node_port = kubectl("-n", web, "get", "service", "open", "-o=jsonpath={.spec.ports[0].nodePort}")
    assert _get(f"http://{cluster.node_address}:{node_port}/letter").startswith("here since")


def test_a_pod_that_is_deleted_comes_back_with_its_volume(cluster: Cluster, web: str) -> None:
    kubectl = cluster.kubectl
    kubectl("-n", web, "exec", "web-0", "--", "sh", "-c", "echo kept > /data/note")
    kubectl("-n", web, "delete", "pod", "web-0")
    kubectl("-n", web, "rollout", "status", "statefulset/web", "--timeout=120s")
    assert kubectl("-n", web, "exec", "web-0", "--", "cat", "/data/note") == "kept\n"


def test_a_pod_speaks_to_the_api_server_with_its_own_account_only(cluster: Cluster, web: str) -> None:
    ask = (
        "import ssl, urllib.error, urllib.request as r; d = '/var/run/secrets/kubernetes.io/serviceaccount/'\n"
        "t = ssl.create_default_context(cafile=d + 'ca.crt')\n"
        "q = r.Request('https://kubernetes.default.svc/api/v1/namespaces', "
        "headers={'Authorization': 'Bearer ' + open(d + 'token').read()})\n"
        "try: r.urlopen(q, context=t, timeout=5)\n"
        "except urllib.error.HTTPError as e: print(e.code, e.read().decode())"
    )
    answer = cluster.kubectl("-n", web, "exec", "web-0", "--", "python3", "-c", ask)
    assert answer.startswith("403")
    assert f"system:serviceaccount:{web}:default" in answer


def test_a_container_that_crashes_is_started_again_on_its_volume(cluster: Cluster, web: str) -> None:
    cluster.kubectl("-n", web, "exec", "web-0", "--", "sh", "-c", "echo kept > /data/note")
    starts = _status(cluster, web, "web-0")["restartCount"]
    cluster.crash(web, "web-0")
    wait_for(lambda: _status(cluster, web, "web-0")["restartCount"], lambda count: count == starts + 1, seconds_max=60)
    wait_for(lambda: _status(cluster, web, "web-0")["ready"], seconds_max=60)
    assert cluster.kubectl("-n", web, "exec", "web-0", "--", "cat", "/data/note") == "kept\n"


def test_a_container_that_is_killed_or_takes_too_much_memory_is_told_of_in_those_words(
    cluster: Cluster, namespace: str
) -> None:
    """Those of a Cluster's status, of pods whose container has the name of a broker's."""
    _start(cluster, namespace, "greedy", "b'x' * 200_000_000")
    _start(cluster, namespace, "patient", "import time; time.sleep(600)")
    cluster.kubectl("-n", namespace, "wait", "--for=jsonpath={.status.phase}=Running", "pod/patient", "--timeout=60s")
    cluster.crash(namespace, "patient")
    for pod in ("greedy", "patient"):
        cluster.kubectl("-n", namespace, "wait", "--for=jsonpath={.status.phase}=Failed", f"pod/{pod}", "--timeout=60s")
    assert _status(cluster, namespace, "greedy")["state"]["terminated"]["reason"] == "OOMKilled"
    greedy, patient = (pod_trouble(_pod(cluster, namespace, pod)) for pod in ("greedy", "patient"))
    assert greedy == "greedy was OOMKilled (exit 137) at a limit of 32Mi; raise spec.brokers.resources.limits.memory"
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

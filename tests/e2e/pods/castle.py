"""Barnabas as users install it: the chart and the manifests of `examples/kubernetes`, through helm and kubectl."""

import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from e2e.pods.chart_release import Release
from e2e.pods.providers import Cluster
from e2e.pods.reader import Reader
from harness.deadline import wait_for
from local_kubernetes.images import ROOT
from local_kubernetes.kubectl import PATIENTLY, Kubectl

NAMESPACE: Final = "castle"
NAME: Final = "flights"
BROKERS: Final = 3
READY_SECONDS_MAX: Final = 300.0
POLL_S: Final = 0.1
PATHS: Final = {
    "cluster": "apis/barnabas.dev/v1alpha1",
    "pod": "api/v1",
    "service": "api/v1",
    "topic": "apis/barnabas.dev/v1alpha1",
}
"""The API paths of the kinds that tests read again and again."""
EXAMPLES: Final = ROOT / "examples" / "kubernetes"


class Castle:
    """One Cluster; `release` is the chart if it is installed in the Cluster's own namespace."""

    def __init__(self, cluster: Cluster, name: str = NAME, brokers: int = BROKERS, namespace: str = NAMESPACE) -> None:
        self._cluster = cluster
        self._read = Reader(cluster.kubectl)
        self.release = Release(cluster, namespace)
        self.plane = cluster.plane
        self.name = name
        self.namespace = namespace
        self.brokers = brokers

    def install(self) -> None:
        """Install the chart and the first Cluster by the first commands of the README; return when all is ready."""
        self._cluster.kubectl("create", "namespace", self.namespace)
        self.release("install")
        self.kubectl("apply", "-f", str(EXAMPLES / "cluster.yaml"))
        self.kubectl("apply", "-f", str(EXAMPLES / "topics.yaml"))
        self.await_ready()

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl in the Cluster's namespace. Raises AssertionError."""
        return self._cluster.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def ask(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl, where a refusal is an answer, too."""
        return self._cluster.kubectl.ask("-n", self.namespace, *arguments, stdin=stdin)

    def barnabas(self, *words: str, about: str = "") -> str:
        """Return the output of a `barnabas` command in the operator's pod. Raises AssertionError.

        It is about the Cluster of this name, or else about the first one.
        """
        cluster = f"--cluster={self.namespace}/{about or self.name}"
        return self.kubectl("exec", "deploy/barnabas-operator", "--", "barnabas", *words, cluster)

    def metrics(self, pod: str, port: int) -> str:
        """Return the metrics of a pod; an empty text if they cannot be read."""
        return self.ask("get", "--raw", f"/api/v1/namespaces/{self.namespace}/pods/{pod}:{port}/proxy/metrics").stdout

    @property
    def cluster_kubectl(self) -> Kubectl:
        """Return a kubectl for objects without a namespace."""
        return self._cluster.kubectl

    def close(self) -> None:
        """End the reader of this Cluster."""
        self._read.close()

    def read(self, kind: str, name: str) -> dict[str, Any]:
        """Return a resource of one of the kinds in PATHS. Raises AssertionError."""
        return self._read(f"{self._path(kind)}/{name}")

    def items(self, kind: str, selector: str) -> list[dict[str, Any]]:
        """Return the resources with these labels."""
        found = self._read(self._path(kind), labelSelector=selector)
        return list(found["items"])

    def rows(self, kind: str, selector: str) -> list[dict[str, Any]]:
        """Return the same resources as the cells of `kubectl get`."""
        return self._read.rows(self._path(kind), labelSelector=selector)

    @property
    def bootstrap(self) -> str:
        """Return the address for clients outside of Kubernetes."""
        listeners = self.read("cluster", self.name)["status"]["listeners"]
        servers = {each["name"]: each["bootstrapServers"] for each in listeners}
        return str(servers["outside"])

    def pods(self) -> dict[str, str]:
        """Return the uid of each broker's pod: it changes if the pod is replaced."""
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pod_items()}

    def pod_items(self) -> list[dict[str, Any]]:
        """Return the brokers' pods."""
        return self.items("pod", f"barnabas.dev/cluster={self.name}")

    def await_new_pods(self, before: Mapping[str, str]) -> None:
        """Return when every broker has another pod than before."""
        wait_for(
            self.pods,
            lambda now: len(now) == self.brokers and not set(now.values()) & set(before.values()),
            READY_SECONDS_MAX,
            POLL_S,
        )

    def crash(self, pod: str) -> None:
        """Kill a broker with `kill -9`; return when Kubernetes has started it again."""
        before = self._starts(pod)
        self._cluster.crash(self.namespace, pod)
        wait_for(lambda: self._starts(pod), lambda now: now > before, READY_SECONDS_MAX, POLL_S)

    def evict(self, pod: str) -> bool:
        """Evict a pod as `kubectl drain` does; return whether the disruption budget allowed it."""
        meta = {"name": pod, "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        return self.ask("create", "--raw", path, "-f-", stdin=json.dumps(eviction)).returncode == 0

    def _starts(self, pod: str) -> int:
        return int(self.read("pod", pod)["status"]["containerStatuses"][0]["restartCount"])

    def operator_starts(self) -> dict[str, int]:
        """Return how often Kubernetes has restarted the operator's container, by pod."""
        found = self.items("pod", "app.kubernetes.io/name=barnabas-operator")
        return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in found}

    def patch(self, spec: Mapping[str, object]) -> None:
        """Change the Cluster, as `kubectl edit` would."""
        self.kubectl("patch", "cluster", self.name, "--type=merge", f"--patch={json.dumps({'spec': spec})}")

    def await_ready(self) -> None:
        """Return when the Cluster is as declared, and every replica in sync."""
        wait_for(self._troubles, lambda troubles: not troubles, READY_SECONDS_MAX, POLL_S)

    def condition(self, kind: str, topic: str = "") -> Mapping[str, Any]:
        """Return a condition of the Cluster, or of a Topic. Raises AssertionError if there is none of that type."""
        resource = self.read("topic", topic) if topic else self.read("cluster", self.name)
        found = resource.get("status", {}).get("conditions", ())
        told = [each for each in found if each["type"] == kind]
        assert told, f"no condition {kind} in {found}"
        return dict(told[0])

    def conditions(self) -> dict[str, str]:
        """Return the messages of the Cluster's conditions, by type."""
        found = self.read("cluster", self.name).get("status", {}).get("conditions", ())
        return {each["type"]: each.get("message", "") for each in found}

    def warnings(self, kind: str, name: str) -> list[str]:
        """Return the warnings among the Events of a resource, as reason and message."""
        of = f"type=Warning,involvedObject.kind={kind},involvedObject.name={name}"
        found = json.loads(self.kubectl("get", "events", f"--field-selector={of}", "-ojson"))["items"]
        return [f"{each['reason']}: {each.get('message', '')}" for each in found]

    def await_warning(self, pattern: str) -> None:
        """Return when the Cluster has a warning that the pattern finds, as reason and message."""
        wait_for(
            lambda: self.warnings("Cluster", self.name),
            lambda told: any(re.search(pattern, each) for each in told),
            READY_SECONDS_MAX,
        )

    def create_topic(self, name: str, partitions: int, **more: object) -> None:
        """Make a Topic with a new name, so that records of other tests are not counted; return when it is ready."""
        there = self.kubectl("get", "topic", name, "--ignore-not-found", "-oname")
        assert not there, f"{there.strip()} is there: each test has topics of its own"
        self.kubectl("apply", "-f-", stdin=topic_manifest(name, partitions, **{"cluster": self.name, **more}))
        self.kubectl("wait", "--for=condition=Ready", f"topic/{name}", PATIENTLY)

    def _troubles(self) -> str:
        """Return what is wrong with the Cluster, for the message of a failure; empty if nothing is."""
        found = self.read("cluster", self.name)
        status = found.get("status", {})
        conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
        fine = (
            conditions.get("Ready") == "True"
            and conditions.get("Rolling") == "False"
            and status.get("observedGeneration") == found["metadata"]["generation"]
            and status.get("readyBrokers") == self.brokers
            and status.get("underReplicatedPartitions") == 0
        )
        pods = {pod["metadata"]["name"]: pod["status"] for pod in self.pod_items()} if not fine else {}
        return json.dumps({**status, "pods": pods}) if not fine else ""

    def _path(self, kind: str) -> str:
        return f"{PATHS[kind]}/namespaces/{self.namespace}/{kind}s"


def topic_manifest(name: str, partitions: int, **more: object) -> str:
    """Return the manifest of a Topic of the Cluster."""
    spec = {"cluster": NAME, "partitions": partitions, "replicas": 3, **more}
    topic = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": {"name": name}, "spec": spec}
    return json.dumps(topic)

"""A namespace with a Cluster whose only broker is a process, and operators that are processes, too: no pods."""

import json
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from barnabas_operator.resources.cluster_kind import KINDS
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess, free_port
from local_kubernetes.control_plane import ControlPlane


def total(page: str, name: str, **labels: str) -> float:
    """Return the sum of the samples with these labels on a page of metrics."""
    samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())


def rounds_of(operator: ServerProcess) -> float:
    """Return the number of rounds that an operator has ended."""
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=PATIENCE_S) as answer:
        return total(answer.read().decode(), "barnabas_reconciliations_total")


def acts(operator: ServerProcess) -> bool:
    """True if an operator says that it acts; False if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=PATIENCE_S) as answer:
            return total(answer.read().decode(), "barnabas_operator_is_leader") == 1
    except OSError:
        return False


@contextmanager
def world_of_one(plane: ControlPlane, namespace: str, broker: ServerProcess, folder: Path) -> "Iterator[World]":
    """Make a namespace with the Cluster `one`; at the end delete it with everything at the broker."""
    plane.kubectl("create", "namespace", namespace)
    found = World(plane, namespace, broker, folder)
    found.apply_cluster("one")
    yield found
    for name in found.kubectl(
        "get", "topics.barnabas.dev,users.barnabas.dev", "-oname"
    ).split():  # Finalizers must not outlive the operator.
        found.kubectl("patch", name, "--type=merge", '-p={"metadata":{"finalizers":null}}')
    plane.kubectl("delete", "namespace", namespace, "--wait=false")
    for name in set(found.partitions()) - {"__consumer_offsets"}:
        found.admin.delete_topics([name])[name].result(PATIENCE_S)


def release_all_but(world: "World") -> None:
    """Release the resources of earlier tests in other namespaces: their operators are gone, and a CRD waits for all."""
    kinds = ",".join(f"{kind.plural}.barnabas.dev" for kind in KINDS.values())
    for each in json.loads(world.plane.kubectl("get", kinds, "-A", "-o=json"))["items"]:
        meta = each["metadata"]
        if meta["namespace"] != world.namespace and meta.get("finalizers"):
            patch, kind = '--patch={"metadata":{"finalizers":null}}', f"{KINDS[each['kind']].plural}.barnabas.dev"
            world.plane.kubectl("-n", meta["namespace"], "patch", kind, meta["name"], "--type=merge", patch)


class World:
    """A namespace with a Cluster whose only broker is a process."""

    def __init__(self, plane: ControlPlane, namespace: str, broker: ServerProcess, folder: Path) -> None:
        self.plane = plane
        self.namespace = namespace
        self.folder = folder
        self.bootstrap = f"127.0.0.1:{broker.port}"
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.plane.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def apply(self, name: str, **spec: object) -> None:
        """Apply a Topic."""
        meta = {"name": name, "namespace": self.namespace}
        topic = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": meta, "spec": spec}
        self.plane.requests.apply(topic)

    def topic(self, name: str) -> Mapping[str, Any] | None:
        """Return the Topic; None if it is gone."""
        return self.plane.requests.get("Topic", self.namespace, name)

    def topics(self) -> list[str]:
        """Return the names of the Topics, sorted."""
        return sorted(each["metadata"]["name"] for each in self.plane.requests.listing("Topic", self.namespace))

    def ready(self, name: str, kind: str = "Topic") -> tuple[str, str]:
        """Return status and message of the present generation's condition Ready; empty texts if it has none yet."""
        found = self.plane.requests.get(kind, self.namespace, name) or {}
        for condition in found.get("status", {}).get("conditions", ()):
            if condition["type"] == "Ready" and condition["observedGeneration"] == found["metadata"]["generation"]:
                return condition["status"], condition.get("message", "")
        return "", ""

    def await_ready(self, *names: str) -> None:
        wait_for(lambda: [self.ready(name)[0] for name in names], lambda said: set(said) == {"True"}, PATIENCE_S)

    def events(self, kind: str, name: str) -> set[tuple[str, str, str]]:
        """Return type, reason and message of each Event of a resource, found as `kubectl describe` finds them."""
        about = self.plane.requests.get(kind, self.namespace, name)
        assert about is not None, f"{kind} {name} is gone"
        fields = {"involvedObject.uid": about["metadata"]["uid"]}
        found = self.plane.requests.listing("Event", self.namespace, fields=fields)
        return {(each["type"], each["reason"], each["message"]) for each in found}

    def partitions(self) -> dict[str, int]:
        """Return the partitions that the broker has, by topic."""
        return {name: len(each.partitions) for name, each in self.admin.list_topics(timeout=PATIENCE_S).topics.items()}

    def stateful_set(self, name: str) -> str:
        """Return the uid of a StatefulSet; an empty text if there is none."""
        found = self.plane.requests.get("StatefulSet", self.namespace, name)
        return str(found["metadata"]["uid"]) if found is not None else ""

    def operator(self, **environment: str) -> ServerProcess:
        """Start an operator. The caller closes it."""
        port = free_port()
        settings = {
            "KUBECONFIG": str(self.plane.kubeconfig),
            "BOOTSTRAP": self.bootstrap,
            "WATCH_NAMESPACES": self.namespace,
            "HTTP_LISTENER": f"127.0.0.1:{port}",
            "DRIFT_SECONDS": "2",
            **environment,
        }
        command = ["env", *(f"{name}={value}" for name, value in settings.items())]
        command += [sys.executable, "-m", "barnabas", "operator"]
        process = ServerProcess(command, port, self.folder / f"operator-{port}.log")
        process.launch()
        return process

    def apply_cluster(self, name: str, **spec: object) -> None:
        """Apply a Cluster, which is open unless `spec` says otherwise."""
        meta = {"name": name, "namespace": self.namespace}
        spec = {"insecure": True, **spec}
        cluster = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": meta, "spec": spec}
        self.plane.requests.apply(cluster)

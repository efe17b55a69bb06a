"""How the operator's cost grows with many Topics, a Topic of many partitions, and many Clusters.

`python -m bench.operator_growth --topics 10000 --partitions 5000 --clusters 100` prints a table, and its progress on
stderr. The API server and the broker are real. No pods run: the one broker is a process, which every Cluster gets
as its own; this program writes the status of pods and StatefulSets.
"""

import argparse
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from barnabas_operator.planning.object_names import labels
from bench.machine import commit, load_average
from e2e.world import World
from harness.barnabas_server import peak_resident_bytes, prepare_barnabas
from harness.deadline import wait_for
from harness.server_process import ServerProcess
from local_kubernetes.apiserver import define, prepare_api_server
from local_kubernetes.control_plane import ControlPlane

API: Final = "barnabas.dev/v1alpha1"
AT_ONCE: Final = 8
POLL_S: Final = 2.0
SECONDS_MAX: Final = 1200.0
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})
READS: Final = frozenset({"GET", "LIST"})


COUNTED: Final = (
    *("topics", "clusters", "pods", "statefulsets", "services", "configmaps", "events", "nodes", "serviceaccounts"),
    *("rolebindings", "persistentvolumeclaims", "poddisruptionbudgets", "networkpolicies"),
)
"""Resources whose requests are counted."""


class Figures(NamedTuple):
    """The figures of one growth: seconds, bytes, and the operator's requests to the API server."""

    what: str
    applied_s: float
    ready_s: float
    peak_bytes: int
    writes: int
    reads: int
    longest_healthz_s: float

    def row(self) -> str:
        """Return the row of the table."""
        cells = (
            self.what,
            f"{self.applied_s:.0f} s",
            f"{self.ready_s:.0f} s",
            f"{self.peak_bytes / 2**20:.0f} MiB",
            f"{self.writes}",
            f"{self.reads}",
            f"{self.longest_healthz_s:.2f} s",
        )
        return "| " + " | ".join(cells) + " |"


HEAD: Final = (
    "| what | all applied after | all ready after | operator's peak RSS | writes | reads | slowest /healthz |\n"
    "|---|---|---|---|---|---|---|"
)


class Growth:
    """One operator over one namespace, and the number of requests that this program has sent to the API server."""

    def __init__(self, world: World, operator: ServerProcess) -> None:
        self.world = world
        self.operator = operator
        self.slowest_s = 0.0
        self._own = {"writes": 0, "reads": 0}

    def create(self, item: dict[str, Any]) -> None:
        """Create an object in the namespace."""
        self._own["writes"] += 1
        item["metadata"]["namespace"] = self.world.namespace
        self.world.plane.requests.create(item)

    def tell(self, kind: str, name: str, status: dict[str, Any]) -> None:
        """Write a status as a controller of Kubernetes does."""
        self._own["writes"] += 1
        self.world.plane.requests.merge_status(kind, self.world.namespace, name, status)

    def stateful_sets(self) -> list[dict[str, Any]]:
        """Return the StatefulSets of the namespace."""
        self._own["reads"] += 1
        return self.world.plane.requests.listing("StatefulSet", self.world.namespace)

    def ready(self, kind: str) -> int:
        """Return how many resources are ready by the operator's metrics; this costs no request to the API server."""
        page = self._page("/metrics")
        samples = (each for family in text_string_to_metric_families(page) for each in family.samples)
        return sum(
            each.value == 1 and each.labels["kind"] == kind
            for each in samples
            if each.name == "barnabas_resource_state"
        )

    def healthz(self) -> None:
        """Measure how long the kubelet would have waited for the probe."""
        began_s = time.monotonic()
        self._page("/healthz")
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)

    def requests(self) -> Mapping[str, int]:
        """Return the requests that all others have sent to the API server so far."""
        counts = {"writes": 0, "reads": 0}
        page = self.world.plane.requests.text("/metrics")
        for family in text_string_to_metric_families(page):
            for each in family.samples:
                if each.name == "apiserver_request_total" and each.labels["resource"] in COUNTED:
                    kind = "writes" if each.labels["verb"] in WRITES else "reads"
                    counts[kind] += int(each.value) if each.labels["verb"] in WRITES | READS else 0
        return {name: count - self._own[name] for name, count in counts.items()}

    def _page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.operator.port}{path}", timeout=60) as answer:
            text: str = answer.read().decode()
            return text


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=5_000, help="of one Topic")
    parser.add_argument("--clusters", type=int, default=100)
    chosen = parser.parse_args()
    print(f"commit {commit()}, load average at the start {load_average()}\n\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory() as folder, api_server(Path(folder)) as plane:
        if chosen.topics:
            print(many_topics(plane, Path(folder), chosen.topics).row(), flush=True)
        if chosen.partitions:
            print(many_partitions(plane, Path(folder), chosen.partitions).row(), flush=True)
        if chosen.clusters:
            print(many_clusters(plane, Path(folder), chosen.clusters).row(), flush=True)


@contextmanager
def api_server(folder: Path) -> Iterator[ControlPlane]:
    """Run an API server with all definitions in `helm/barnabas/crd-files`."""
    plane = prepare_api_server(folder / "kubernetes")
    try:
        plane.start_api()
        define(plane)
        yield plane
    finally:
        plane.daemons.stop_all()


@contextmanager
def growth(plane: ControlPlane, folder: Path, namespace: str) -> Iterator[Growth]:
    """Run a broker and an operator for one growth."""
    plane.kubectl("create", "namespace", namespace)
    (folder / namespace).mkdir()
    broker = prepare_barnabas(folder / namespace, {"broker.id": "0"})
    broker.launch()
    broker.await_port()
    world = World(plane, namespace, broker, folder)
    operator = world.operator(DRIFT_SECONDS="60")
    try:
        operator.await_port()
        yield Growth(world, operator)
    finally:
        operator.close()
        broker.close()


def many_topics(plane: ControlPlane, folder: Path, count: int) -> Figures:
    """Measure many Topics of one Cluster with one partition each."""
    topics = [topic(f"t{number:05d}", 1) for number in range(count)]
    with growth(plane, folder, "many-topics") as grown:
        grown.create({"apiVersion": API, "kind": "Cluster", "metadata": {"name": "one"}, "spec": {"insecure": True}})
        return measured(grown, f"{count} Topics of one Cluster", topics, "Topic")


def many_partitions(plane: ControlPlane, folder: Path, count: int) -> Figures:
    """Measure a Topic of many partitions."""
    with growth(plane, folder, "many-partitions") as grown:
        grown.create({"apiVersion": API, "kind": "Cluster", "metadata": {"name": "one"}, "spec": {"insecure": True}})
        return measured(grown, f"a Topic of {count} partitions", [topic("large", count)], "Topic")


def topic(name: str, partitions: int) -> dict[str, Any]:
    """Return the manifest of a Topic."""
    return {"apiVersion": API, "kind": "Topic", "metadata": {"name": name}, "spec": {"partitions": partitions}}


def many_clusters(plane: ControlPlane, folder: Path, count: int) -> Figures:
    """Measure many Clusters of one broker each, whose pod is ready as soon as its StatefulSet exists."""
    with growth(plane, folder, "many-clusters") as grown:
        grown.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
        clusters = [
            {
                "apiVersion": API,
                "kind": "Cluster",
                "metadata": {"name": f"c{number:03d}"},
                "spec": {"brokers": {"replicas": 1}, "insecure": True},
            }
            for number in range(count)
        ]
        return measured(grown, f"{count} Clusters of one broker", clusters, "Cluster")


def measured(grown: Growth, what: str, items: list[dict[str, Any]], kind: str) -> Figures:
    """Create the items, and wait until the operator reports all of them as ready."""
    before, began_s, seen = grown.requests(), time.monotonic(), set[str]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(grown.create, items))
    applied_s = time.monotonic() - began_s

    def look() -> int:
        grown.healthz()
        if kind == "Cluster":
            speak_for_pods(grown, seen)
        ready, peak = grown.ready(kind), peak_resident_bytes(grown.operator.pid) // 2**20
        print(f"{time.monotonic() - began_s:.0f} s: {ready} ready, {peak} MiB", file=sys.stderr, flush=True)
        return ready

    wait_for(look, lambda ready: ready == len(items), SECONDS_MAX, POLL_S)
    ready_s, after = time.monotonic() - began_s, grown.requests()
    writes, reads = (after[name] - before[name] for name in ("writes", "reads"))
    return Figures(what, applied_s, ready_s, peak_resident_bytes(grown.operator.pid), writes, reads, grown.slowest_s)


def speak_for_pods(grown: Growth, seen: set[str]) -> None:
    """Make a ready pod for each new StatefulSet, as Kubernetes would."""
    for each in grown.stateful_sets():
        name, generation = each["metadata"]["name"], each["metadata"]["generation"]
        if name in seen:
            continue
        seen.add(name)
        cluster, pod = name.removesuffix("-broker"), f"{name}-0"
        volume = {"name": "volume-0", "persistentVolumeClaim": {"claimName": f"volume-0-{pod}"}}
        spec = {"containers": [{"name": "broker", "image": "broker"}], "volumes": [volume]}
        marked = {**labels(cluster), "controller-revision-hash": "r"}
        grown.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "labels": marked}, "spec": spec})
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        grown.tell("Pod", pod, ready)
        grown.tell("StatefulSet", name, {"observedGeneration": generation, "updateRevision": "r", "replicas": 1})


if __name__ == "__main__":
    main()

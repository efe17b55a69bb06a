"""The scrape jobs of brokers, operator and lag exporter, with the labels that series have on Kubernetes."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from barnabas_operator.manifests.cluster_objects import lag_exporter_objects
from barnabas_operator.manifests.kube_object import MONITORING, NOBODY_ELSE, KubeObject, pod_monitor
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.security import LagExporter
from harness.cluster import BarnabasCluster
from harness.server_process import ServerProcess, free_port
from monitoring.prometheus_server import Job

NAMESPACE: Final = "kafka"
CLUSTER: Final = "one"


DECLARED: Final = Cluster(
    metadata=ObjectMeta(name=CLUSTER, namespace=NAMESPACE, uid="u-1"), spec=ClusterSpec(lag_exporter=LagExporter())
)


def brokers_job(cluster: BarnabasCluster) -> Job:
    """Return the job that a Cluster's PodMonitor makes: Prometheus drops the labels of pods after the relabeling."""
    targets = [
        (
            cluster.metrics_address(number),
            {"namespace": NAMESPACE, "__meta_kubernetes_pod_name": f"one-broker-{number}"},
        )
        for number in cluster.brokers
    ]
    return Job(f"{NAMESPACE}/one-broker", targets, relabelings_of(pod_monitor(DECLARED, NOBODY_ELSE)))


def exporter_job(exporter: ServerProcess) -> Job:
    """Return the job of the PodMonitor of the same Cluster's lag exporter."""
    _, monitor = lag_exporter_objects(DECLARED, "image", {MONITORING}, NOBODY_ELSE)
    targets = [(f"127.0.0.1:{exporter.port}", {"namespace": NAMESPACE})]
    return Job(f"{NAMESPACE}/one-lag-exporter", targets, relabelings_of(monitor))


def relabelings_of(monitor: KubeObject) -> Sequence[Mapping[str, Any]]:
    spec: Any = monitor["spec"]
    found: Sequence[Mapping[str, Any]] = spec["podMetricsEndpoints"][0]["relabelings"]
    return found


@contextmanager
def lag_exporter(folder: Path, bootstrap: str) -> Iterator[ServerProcess]:
    """Run a lag exporter with a round each second."""
    port = free_port()
    options = ("--bootstrap", bootstrap, "--listen-address", f"127.0.0.1:{port}", "--interval", "1")
    command = [sys.executable, "-m", "barnabas", "lag-exporter", *options]
    with closing(ServerProcess(command, port, folder / "lag-exporter.log")) as process:
        process.launch()
        process.await_port()
        yield process

"""What Prometheus reads of brokers, operator and lag exporter, with the labels that series have on Kubernetes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from barnabas_operator.manifests.neighbours import NOBODY_ELSE
from barnabas_operator.manifests.protection import pod_monitor
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.object_meta import ObjectMeta
from harness.cluster import BarnabasCluster
from harness.server_process import ServerProcess, free_port
from monitoring.prometheus_server import Job

NAMESPACE: Final = "kafka"
CLUSTER: Final = "one"


def brokers_job(cluster: BarnabasCluster) -> Job:
    """As the PodMonitor of a Cluster has it: Prometheus drops the labels of pods after they made others."""
    meta = ObjectMeta(name=CLUSTER, namespace=NAMESPACE, uid="u-1")
    monitor: Any = pod_monitor(Cluster(metadata=meta, spec=ClusterSpec()), NOBODY_ELSE)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    targets = [
        (
            cluster.metrics_address(number),
            {"namespace": NAMESPACE, "__meta_kubernetes_pod_name": f"one-broker-{number}"},
        )
        for number in cluster.brokers
    ]
    return Job(f"{NAMESPACE}/one-broker", targets, endpoint["relabelings"])


def exporter_job(exporter: ServerProcess) -> Job:
    """Of the lag exporter of the same Cluster."""
    return Job("lag", [(f"127.0.0.1:{exporter.port}", {"namespace": NAMESPACE, "cluster": CLUSTER})])


@contextmanager
def lag_exporter(folder: Path, bootstrap: str) -> Iterator[ServerProcess]:
    """Looks every second."""
    port = free_port()
    options = ("--bootstrap", bootstrap, "--listen-address", f"127.0.0.1:{port}", "--interval", "1")
    command = [sys.executable, "-m", "barnabas", "lag-exporter", *options]
    process = ServerProcess(command, port, folder / "lag-exporter.log")
    try:
        process.launch()
        process.await_port()
        yield process
    finally:
        process.close()

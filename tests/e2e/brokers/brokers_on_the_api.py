"""Runs three brokers as processes with their metadata in a real Kubernetes API."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from e2e.state_documents import define_state_documents, environment_of_broker
from harness.cluster import BarnabasCluster, prepare_cluster
from local_kubernetes.control_plane import ControlPlane

HEARTBEAT_MS: Final = 500
SESSION_MS: Final = 5000
"""The length of a session: longer than a busy machine delays a broker or the API server."""


def prepare(folder: Path, plane: ControlPlane, session_ms: int) -> BarnabasCluster:
    """Return brokers that are not started, each as if it were in a pod of its own."""
    define_state_documents(plane)
    properties = {
        "metadata.store": f"kubernetes://default/demo-{uuid4().hex[:8]}",
        "broker.heartbeat.interval.ms": str(HEARTBEAT_MS),
        "broker.session.timeout.ms": str(session_ms),
    }
    cluster = prepare_cluster(folder, brokers=3, properties=properties)
    for number, broker in cluster.brokers.items():
        broker.environment |= environment_of_broker(plane, number)
    return cluster


@contextmanager
def three_with_flights(folder: Path, plane: ControlPlane) -> Iterator[BarnabasCluster]:
    """Run them with a topic of three partitions and `min.insync.replicas` 2."""
    with closing(prepare(folder, plane, SESSION_MS)) as running:
        running.start()
        running.create_topic("flights", 3, 3, config={"min.insync.replicas": "2"})
        yield running

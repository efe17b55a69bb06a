"""Three brokers as processes whose metadata is in a real Kubernetes API, and who writes to them all the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final
from uuid import uuid4

from e2e.state_documents import define_state_documents, environment_of_broker
from harness.cluster import BarnabasCluster, prepare_cluster
from harness.stock_client import StockClient
from local_kubernetes.control_plane import ControlPlane

HEARTBEAT_MS: Final = 300
SESSION_MS: Final = 2000


def prepare(folder: Path, plane: ControlPlane, session_ms: int) -> BarnabasCluster:
    """Each broker as if it were in a pod of its own."""
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
    """They run while inside, with a topic of three partitions of which two replicas have to be in sync."""
    running = prepare(folder, plane, SESSION_MS)
    try:
        running.start()
        running.create_topic("flights", 3, 3, config={"min.insync.replicas": "2"})
        yield running
    finally:
        running.close()


class Writer:
    """Writes numbers to a partition, each when the one before is acknowledged, until it is stopped."""

    def __init__(self, client: StockClient, partition: int) -> None:
        self.acknowledged: list[bytes] = []
        self._client = client
        self._partition = partition
        self._stopping = Event()
        self._failure: Exception | None = None
        self._thread = Thread(target=self._run)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                values = [b"%d" % (len(self.acknowledged) + offset) for offset in range(100)]
                self._client.write("flights", values, self._partition)
                self.acknowledged += values
        except Exception as error:
            self._failure = error

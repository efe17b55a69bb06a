"""Runs several nodes of Apache Kafka, each broker and controller, as processes: the peer of our cluster."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.apache_kafka import COMBINED, Node, format_log_dirs
from harness.cluster import RunningCluster
from harness.server_process import HERE, Place, ServerProcess, free_port

REPLICAS_MAX = 3


class KafkaCluster(RunningCluster):
    """Nodes by their ids, each in `folder/broker-<id>`."""

    status_of_stop = 128 + signal.SIGTERM

    def __init__(self, folder: Path, brokers: Mapping[int, ServerProcess]) -> None:
        super().__init__(brokers)
        self.folder = folder

    def log_dirs(self, number: int) -> list[Path]:
        """Return a broker's log dirs."""
        return [self.folder / f"broker-{number}" / "logs"]


def prepare_kafka_cluster(
    folder: Path,
    brokers: int = 3,
    properties: Mapping[str, str] | None = None,
    heap: str = "1G",
    places: Sequence[Place] = (),
    listeners: Sequence[str] = (),
) -> KafkaCluster:
    """Return formatted nodes 0, 1, ..., not started; internal topics have as many replicas as there are nodes.

    `listeners` has one of each node, beside its PLAINTEXT.
    """
    nodes = [
        Node(folder / f"broker-{number}", number, free_port(), free_port(), place, listeners[number : number + 1])
        for number, place in enumerate(places or [HERE] * brokers)
    ]
    replicas = str(min(REPLICAS_MAX, brokers))
    internal = {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "share.coordinator.state.topic.replication.factor": replicas,
    }
    voters = [node.voter for node in nodes]
    for node in nodes:
        node.write_config(voters, {**COMBINED, **internal, **(properties or {})})
    format_log_dirs(*nodes)
    return KafkaCluster(folder, {node.number: node.process(heap) for node in nodes})

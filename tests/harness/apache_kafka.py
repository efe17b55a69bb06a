"""Runs Apache Kafka as KRaft nodes (broker and controller): the control of the client tests, the peer of the bench."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from harness.deadline import PATIENCE_S
from harness.kafka_jars import java_command
from harness.server_process import HERE, Place, ServerFailed, ServerProcess, bound_to_us, free_port

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
# What kafka-server-start.sh and kafka-run-class.sh set.
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Dlog.level=INFO",
)
COMBINED = {"process.roles": "broker,controller", "controller.listener.names": "CONTROLLER"}
SINGLE_NODE = {
    **COMBINED,
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write one `name=value` a line, as in Kafka's `server.properties`."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")


class Node(NamedTuple):
    """The place of a node: its files, its number, its ports, its machine, its listeners beside those of these ports."""

    folder: Path
    number: int
    port: int
    controller_port: int
    place: Place = HERE
    listeners: Sequence[str] = ()

    @property
    def voter(self) -> str:
        """Return the entry of this node in `controller.quorum.voters`."""
        return f"{self.number}@{self.place.host}:{self.controller_port}"

    @property
    def config(self) -> Path:
        """Return the path of its `server.properties`."""
        return self.folder / "server.properties"

    def write_config(self, voters: Sequence[str], properties: Mapping[str, str]) -> None:
        """Write the settings of the node, and these properties over them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        host = self.place.host
        listeners = (f"PLAINTEXT://{host}:{self.port}", f"CONTROLLER://{host}:{self.controller_port}", *self.listeners)
        own = {
            "node.id": str(self.number),
            "listeners": ",".join(listeners),
            "controller.quorum.voters": ",".join(voters),
            "log.dirs": str(self.folder / "logs"),
        }
        write_properties(self.config, {**own, **properties})

    def process(self, heap: str) -> ServerProcess:
        """Return the node's process, not started."""
        command = java_command("kafka.Kafka", str(self.config), options=(f"-Xmx{heap}", f"-Xms{heap}", *JVM_OPTIONS))
        return ServerProcess(command, self.port, self.folder / "server.log", place=self.place)


def prepare(
    data_dir: Path, heap: str = "1G", properties: Mapping[str, str] | None = None, listeners: Sequence[str] = ()
) -> ServerProcess:
    """Return a formatted node, not started, which has these listeners beside its PLAINTEXT.

    Its files are in `data_dir`: `logs/` is the log dir, and the output goes to `server.log`.
    """
    node = Node(data_dir, 1, free_port(), free_port(), listeners=listeners)
    node.write_config([node.voter], {**SINGLE_NODE, **(properties or {})})
    format_log_dirs(node)
    return node.process(heap)


def format_log_dirs(*nodes: Node) -> None:
    """Run `kafka-storage format` for all nodes at once: a KRaft node does not start on folders without its metadata."""
    running = [_format(node) for node in nodes]
    for process in running:
        output, _ = process.communicate(timeout=PATIENCE_S)
        if process.returncode != 0:
            raise ServerFailed(f"format failed: {output}")


def _format(node: Node) -> subprocess.Popen[str]:
    arguments = ["format", "--ignore-formatted", "--cluster-id", CLUSTER_ID, "--config", str(node.config)]
    command = java_command("kafka.tools.StorageTool", *arguments, options=("-XX:TieredStopAtLevel=1",))
    return subprocess.Popen(
        bound_to_us([*node.place.enter, *command]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@contextmanager
def apache_kafka(
    data_dir: Path, heap: str = "1G", properties: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Run a node (`.bootstrap`, `.pid`, `.log_path`), and stop it at the end."""
    server = prepare(data_dir, heap, properties)
    server.start()
    try:
        yield server
        server.stop()
    finally:
        server.close()

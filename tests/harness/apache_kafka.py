"""Apache Kafka as one KRaft node (broker and controller): the control of the client tests, the peer of the bench."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.kafka_jars import java_command
from harness.server_process import ServerFailed, ServerProcess, free_port

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
SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """One `name=value` a line, as Kafka's `server.properties`."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")


def prepare(data_dir: Path, heap: str = "1G", properties: Mapping[str, str] | None = None) -> ServerProcess:
    """A formatted node that is not running: files in `data_dir` (`logs/` is the log dir, `server.log` the output)."""
    data_dir.mkdir(parents=True, exist_ok=True)
    port, controller_port = free_port(), free_port()
    settings = {
        **SINGLE_NODE,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": str(data_dir / "logs"),
        **(properties or {}),
    }
    config = data_dir / "server.properties"
    write_properties(config, settings)
    format_log_dirs(config)
    heap_options = (f"-Xmx{heap}", f"-Xms{heap}")
    command = java_command("kafka.Kafka", str(config), options=(*heap_options, *JVM_OPTIONS))
    return ServerProcess(command, port, data_dir / "server.log")


def format_log_dirs(config: Path) -> None:
    """`kafka-storage format`: a KRaft node does not start on folders without its metadata."""
    arguments = ["format", "--ignore-formatted", "--cluster-id", CLUSTER_ID, "--config", str(config)]
    command = java_command("kafka.tools.StorageTool", *arguments, options=("-XX:TieredStopAtLevel=1",))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise ServerFailed(f"format failed: {done.stdout}{done.stderr}")


@contextmanager
def apache_kafka(
    data_dir: Path, heap: str = "1G", properties: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """A running node (`.bootstrap`, `.pid`, `.log_path`), stopped at the end."""
    server = prepare(data_dir, heap, properties)
    server.start()
    try:
        yield server
        server.stop()
    finally:
        server.close()

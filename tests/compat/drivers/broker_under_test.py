"""The broker under test: ours, or Apache Kafka as the control; and what tests say of the machine."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import apache_kafka
from harness.kafka_jars import JarsMissing
from harness.server_process import ServerProcess, free_port

BrokerWith = Callable[[dict[str, str]], ServerProcess]

# What makes tests quick; everything else is the default of both brokers.
PROPERTIES = {
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "500",
}
# For topics of records with old timestamps, which a broker deletes after a week.
KEPT_FOR_EVER = {"retention.ms": "-1"}
EXIT_STATUS = {"barnabas": 0, "kafka": 143}


def missing(reason: str) -> None:
    """A client that the machine lacks: a skip that says why; where CI is to have it, a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have every client: {reason}")
    pytest.skip(reason)


def prepare_barnabas(folder: Path, properties: dict[str, str]) -> ServerProcess:
    """A broker that is not running: files in `folder`, a log dir `logs`, output in `server.log`."""
    port = free_port()
    settings = {
        "broker.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(folder / "logs"),
        "metadata.store": f"sqlite:///{folder / 'metadata.sqlite'}",
        **properties,
    }
    apache_kafka.write_properties(folder / "server.properties", settings)
    command = [sys.executable, "-m", "barnabas", "broker", str(folder / "server.properties")]
    return ServerProcess(command, port, folder / "server.log")


def prepare_server(peer: str, folder: Path, properties: dict[str, str]) -> ServerProcess:
    """The broker named by `--peer`, not running."""
    if peer == "barnabas":
        return prepare_barnabas(folder, properties)
    try:
        return apache_kafka.prepare(folder, "512M", properties)
    except JarsMissing as reason:
        missing(str(reason))
        raise


def check_end(peer: str, server: ServerProcess) -> None:
    """Stops the broker: it must end in order and have had no failure of its own."""
    assert server.stop() == EXIT_STATUS[peer], server.log_end()
    assert peer == "kafka" or "Traceback" not in server.log_text(), server.log_text()

"""A topic without metadata, on a real API server: kubectl shows its logs, and a command restores it."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from e2e.world import World, world_of_one
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from harness.stock_client import StockClient
from local_kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.slow


@pytest.fixture
def world(defined_api_server: ControlPlane, broker: ServerProcess, tmp_path: Path) -> Iterator[World]:
    with world_of_one(defined_api_server, f"aside-{os.getpid()}", broker, tmp_path) as found:
        yield found


@pytest.fixture
def operator(world: World) -> Iterator[ServerProcess]:
    with closing(world.operator()) as process:
        yield process


def forget(folder: Path, key: str) -> None:
    """Delete a document from the store of a stopped broker."""
    with closing(sqlite3.connect(folder / "metadata.sqlite")) as database, database:
        assert database.execute("DELETE FROM documents WHERE key = ?", (key,)).rowcount == 1


def described(world: World, what: str) -> str:
    """Return the description with its Events, with runs of blanks as one."""
    return " ".join(world.kubectl("describe", *what.split()).split())


def test_the_cluster_reports_logs_without_metadata_and_the_command_that_restores_the_topic(
    world: World, broker: ServerProcess, operator: ServerProcess
) -> None:
    world.apply("flights", partitions=1)
    world.await_ready("flights")
    client, folder = StockClient(world.bootstrap), broker.log_path.parent
    client.write("flights", [b"one", b"two"])
    assert broker.stop() == 0
    forget(folder, "topics/flights")
    broker.start()
    told = wait_for(lambda: described(world, "cluster one"), lambda text: "Warning LogsSetAside" in text, PATIENCE_S)
    assert f"broker 0 {folder / 'logs' / 'flights-0'}; `barnabas restore-metadata` restores the topics" in told
    assert "Reason: UnknownTopics Status: True Type: LogsSetAside" in told
    told = wait_for(lambda: described(world, "topic flights"), lambda text: "restore-metadata" in text, PATIENCE_S)
    assert "Topic 'flights' has lost its metadata; brokers 0 keep its logs" in told
    assert "flights" not in world.partitions()
    restore = [sys.executable, "-m", "barnabas", "restore-metadata", str(folder / "server.properties"), "--execute"]
    subprocess.run(restore, check=True, env=broker.environment)
    world.await_ready("flights")
    assert client.read("flights") == [b"one", b"two"]
    wait_for(lambda: described(world, "cluster one"), lambda text: "Type: LogsSetAside" not in text, PATIENCE_S)

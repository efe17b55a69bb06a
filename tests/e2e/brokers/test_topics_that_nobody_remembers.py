"""A topic that nobody remembers on a real API server: kubectl tells of its logs, and it is back with its document."""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from e2e.world import SECONDS_MAX, World, world_of_one
from harness.deadline import wait_for
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
    process = world.operator()
    try:
        yield process
    finally:
        process.close()


def forget(folder: Path, key: str) -> Sequence[object]:
    """The row that was there; of a broker that is stopped."""
    (folder / "logs" / "metadata-copy.json").unlink()
    with closing(sqlite3.connect(folder / "metadata.sqlite")) as database, database:
        (row,) = database.execute("SELECT * FROM documents WHERE key = ?", (key,)).fetchall()
        database.execute("DELETE FROM documents WHERE key = ?", (key,))
    return tuple(row)


def put_back(folder: Path, row: Sequence[object]) -> None:
    with closing(sqlite3.connect(folder / "metadata.sqlite")) as database, database:
        database.execute("INSERT INTO documents VALUES (?, ?, ?)", row)


def described(world: World, what: str) -> str:
    """With its Events, each run of blanks as one."""
    return " ".join(world.kubectl("describe", *what.split()).split())


def test_kubectl_tells_of_logs_that_are_set_aside_and_the_topic_is_not_made_anew(
    world: World, broker: ServerProcess, operator: ServerProcess
) -> None:
    world.apply("flights", partitions=1)
    world.await_ready("flights")
    client, folder = StockClient(world.bootstrap), broker.log_path.parent
    client.write("flights", [b"one", b"two"])
    assert broker.stop() == 0
    row = forget(folder, "topics/flights")
    broker.start()
    (stray,) = wait_for(lambda: list((folder / "logs").glob("flights-0.*-stray")))
    told = wait_for(lambda: described(world, "cluster one"), lambda text: "Warning LogsSetAside" in text, SECONDS_MAX)
    assert f"broker 0 {stray}; they return with their topics' metadata" in told
    assert "Reason: UnknownTopics Status: True Type: LogsSetAside" in told
    told = wait_for(lambda: described(world, "topic flights"), lambda text: "Warning LogsSetAside" in text, SECONDS_MAX)
    assert f"its logs are set aside: broker 0 {stray}; they return with their topics' metadata" in told
    assert "Reason: LogsSetAside Status: False Type: Ready" in told
    assert "flights" not in world.partitions()
    assert broker.stop() == 0
    put_back(folder, row)
    broker.start()
    world.await_ready("flights")
    assert client.read("flights") == [b"one", b"two"]
    wait_for(lambda: described(world, "cluster one"), lambda text: "Type: LogsSetAside" not in text, SECONDS_MAX)

"""etcd is restored from a backup while brokers have their metadata in it: no record acknowledged since is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.brokers.brokers_on_the_api import three_with_flights
from harness.cluster import BarnabasCluster
from harness.writer import Writer
from local_kubernetes.apiserver import define, own_api_server
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.etcd_backup import back_up, put_back

pytestmark = pytest.mark.soak(only=True)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A separate API server, since others would lose what was written after the backup."""
    with own_api_server(tmp_path / "api-server") as own:
        define(own)
        yield own


@pytest.fixture
def cluster(tmp_path: Path, plane: ControlPlane) -> Iterator[BarnabasCluster]:
    with three_with_flights(tmp_path, plane) as running:
        yield running


def weeks_pass(cluster: BarnabasCluster, writer: Writer) -> None:
    """Restart brokers, and create a topic."""
    for number in range(3):
        writer.wait_for_more()
        cluster.kill(number)
        cluster.start(number)
        cluster.wait_until_full("flights")
    cluster.create_topic("newer", 3, 3)
    cluster.client().write("newer", [b"kept"])


def test_running_brokers_lose_no_records_when_etcd_is_restored(
    cluster: BarnabasCluster, plane: ControlPlane, tmp_path: Path
) -> None:
    back_up(plane, tmp_path / "backup")
    with Writer(cluster.client(), "flights", 0) as writer:
        weeks_pass(cluster, writer)
        put_back(plane, tmp_path / "backup", bump_revision=False)
        writer.wait_for_more()
        cluster.wait_until_full("flights", "newer")
        cluster.create_topic("after", 1, 3)
    assert set(cluster.client().read("flights", 0)) >= set(writer.acknowledged)
    assert cluster.client().read("newer") == [b"kept"]


def test_stopped_brokers_lose_no_records_when_etcd_is_restored_and_newer_topics_return(
    cluster: BarnabasCluster, plane: ControlPlane, tmp_path: Path
) -> None:
    back_up(plane, tmp_path / "backup")
    with Writer(cluster.client(), "flights", 0) as writer:
        weeks_pass(cluster, writer)
    for number in range(3):
        cluster.stop(number)
    put_back(plane, tmp_path / "backup")
    cluster.start(0, 1, 2)
    cluster.wait_until_full("flights")
    assert "Restored 1 topics." in cluster.command("restore-metadata", "--execute")
    cluster.wait_until_full("newer")
    with Writer(cluster.client(), "flights", 1) as other:
        other.wait_for_more()
    assert set(cluster.client().read("flights", 0)) >= set(writer.acknowledged)
    assert cluster.client().read("newer") == [b"kept"]

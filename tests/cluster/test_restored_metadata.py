"""An older copy of the metadata is restored, while the logs are newer: replication recovers, and no record is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for

FAST = {"broker.heartbeat.interval.ms": "250", "min.insync.replicas": "2"}
BEFORE = [b"before %d" % number for number in range(20)]
AFTER = [b"after %d" % number for number in range(20)]
AT_LAST = [b"at last"]
PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=3, properties=FAST) as running:
        yield running


def databases(folder: Path) -> list[Path]:
    return sorted(folder.glob("metadata.sqlite*"))


def stop_all(cluster: BarnabasCluster) -> None:
    for number in list(cluster.running):
        assert cluster.stop(number) == 0


def write_to_all(cluster: BarnabasCluster, values: list[bytes]) -> None:
    for partition in range(PARTITIONS):
        cluster.client().write("t", values, partition)


@pytest.mark.soak(only=True)
def test_brokers_use_epochs_above_those_in_the_logs_after_old_metadata_is_restored(
    cluster: BarnabasCluster, tmp_path: Path
) -> None:
    cluster.create_topic("t", PARTITIONS, assignment=[[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    write_to_all(cluster, BEFORE)
    stop_all(cluster)
    copies = {path: path.read_bytes() for path in databases(tmp_path)}
    assert copies
    cluster.start(0, 1, 2)
    cluster.wait_until_joined()
    for number in range(3):
        wait_for(lambda: all(each.is_full for each in cluster.describe("t")), bool)
        cluster.kill(number)
        cluster.start(number)
        cluster.wait_until_joined()
    cluster.wait_until_full("t")
    write_to_all(cluster, AFTER)
    stop_all(cluster)
    for path in databases(tmp_path):
        path.unlink()
    for path, content in copies.items():
        path.write_bytes(content)
    cluster.start(0, 1, 2)
    cluster.wait_until_joined()
    write_to_all(cluster, AT_LAST)
    for partition in range(PARTITIONS):
        assert cluster.client().read("t", partition) == BEFORE + AFTER + AT_LAST
    cluster.wait_until_full("t")

"""Records that no replica has any more are reported by status, log and metrics; one command accepts the loss."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.command_here import barnabas_here
from harness.deadline import wait_for

FAST = {"broker.heartbeat.interval.ms": "250"}
LACKING = "barnabas_partitions_lacking_records"
VALUES = [b"value %d" % number for number in range(30)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=2, properties=FAST) as running:
        yield running


def lose_disks(cluster: BarnabasCluster) -> None:
    """Stop all brokers, and start them with empty log dirs."""
    for number in (1, 0):
        assert cluster.stop(number) == 0
    for number in (0, 1):
        shutil.rmtree(cluster.log_dirs(number)[0])
    cluster.start(0, 1)
    cluster.wait_until_joined()


def test_a_loss_of_records_is_reported_until_it_is_accepted(cluster: BarnabasCluster) -> None:
    cluster.create_topic("orders", assignment=[[0, 1]])
    cluster.client().write("orders", VALUES)
    cluster.wait_until_full("orders")
    lose_disks(cluster)
    wait_for(lambda: cluster.partition("orders", 0, as_told_by=0).leader, lambda leader: leader == -1)
    # The log ends are reported soon after the partition has lost its leader.
    what = "the last known log end is 30, the log of broker 0 ends at 0, the log of broker 1 ends at 0"
    status = wait_for(
        lambda: barnabas_here("status", "--bootstrap", cluster.bootstrap), lambda told: what in told.stdout
    )
    assert f"orders-0 is offline because every replica lacks committed records: {what}" in status.stdout
    assert "barnabas accept-loss" in status.stdout
    report = json.loads(barnabas_here("status", "--bootstrap", cluster.bootstrap, "-o", "json").stdout)
    (partition,) = next(topic["partitions"] for topic in report["topics"] if topic["name"] == "orders")
    assert (partition["state"], partition["lost"]) == ("offline", what)
    wait_for(lambda: cluster.metric(0, LACKING), lambda count: count == 1)
    told = [
        cluster.logs_text([broker]).count("orders-0 is offline because every replica lacks committed records")
        for broker in (0, 1)
    ]
    assert sorted(told) in ([0, 1], [1, 1])  # Each controller logs it once, and the controller may have changed.
    wrong = barnabas_here("accept-loss", "--bootstrap", cluster.bootstrap, "--topic", "orders", "--partition", "7")
    assert (wrong.returncode, "nothing to accept" in wrong.stdout) == (1, True)
    accepted = barnabas_here("accept-loss", "--bootstrap", cluster.bootstrap, "--topic", "orders")
    assert accepted.returncode == 0, accepted.stdout
    assert what in accepted.stdout
    wait_for(lambda: cluster.partition("orders", 0, as_told_by=0).is_full, bool)
    cluster.client().write("orders", VALUES[:5])
    assert cluster.client().read("orders") == VALUES[:5]
    wait_for(lambda: cluster.metric(0, LACKING), lambda count: count == 0)
    assert (
        "every replica lacks committed records" not in barnabas_here("status", "--bootstrap", cluster.bootstrap).stdout
    )

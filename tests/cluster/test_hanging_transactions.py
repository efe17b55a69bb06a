"""A transaction that its coordinator no longer knows is shown with its effects, and ended by one command."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.command_here import barnabas_here
from harness.deadline import PATIENCE_S, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=1) as running:
        running.create_topic("to")
        yield running


@pytest.fixture
def producer(cluster: BarnabasCluster) -> Producer:
    """A producer with an open transaction of two records, after one other record and before another."""
    cluster.client().write("to", [b"before"])
    made = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "pay", "transaction.timeout.ms": 900_000}
    )
    made.init_transactions(PATIENCE_S)
    made.begin_transaction()
    for _ in range(2):
        made.produce("to", b"undecided")
    assert made.flush(PATIENCE_S) == 0
    cluster.client().write("to", [b"after"])
    return made


def barnabas(name: str, cluster: BarnabasCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return barnabas_here(name, "--bootstrap", cluster.bootstrap, *arguments)


def abort(cluster: BarnabasCluster, *which: str) -> subprocess.CompletedProcess[str]:
    return barnabas("abort-transaction", cluster, "--topic", "to", "--partition", "0", *which)


def stable_offset(cluster: BarnabasCluster) -> int:
    """Return the offset at which consumers of committed records stop."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = {TopicPartition("to", 0): OffsetSpec.latest()}
    (asked,) = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED).values()
    return int(asked.result().offset)


def test_open_transactions_are_shown_and_only_a_hanging_one_is_aborted(
    cluster: BarnabasCluster, producer: Producer
) -> None:
    report = json.loads(barnabas("status", cluster, "--transactions", "-o", "json").stdout)
    (transaction,), (open_one,) = report["transactions"], report["open"]
    assert (transaction["transactional_id"], transaction["state"]) == ("pay", "Ongoing")
    assert transaction["partitions"] == [["to", 0]]
    assert (open_one["start_offset"], open_one["held_back"], open_one["transactional_id"]) == (1, 3, "pay")
    known = abort(cluster, "--start-offset", "1")
    assert (known.returncode, "the transactional id pay" in known.stdout) == (1, True), known.stdout

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["__transaction_state"])["__transaction_state"].result(PATIENCE_S)
    text = wait_for(lambda: barnabas("status", cluster, "--transactions").stdout, lambda text: "it hangs" in text)
    assert "barnabas abort-transaction --topic to --partition 0 --start-offset 1" in text
    assert stable_offset(cluster) == 1

    wrong = abort(cluster, "--start-offset", "2")
    assert (wrong.returncode, "; open transactions: from offset 1" in wrong.stdout) == (1, True), wrong.stdout
    ended = abort(cluster, "--producer-id", str(open_one["producer_id"]))
    assert ended.returncode == 0, ended.stdout
    assert stable_offset(cluster) == 5
    assert "no transaction is open" in barnabas("status", cluster, "--transactions").stdout
    again = abort(cluster, "--start-offset", "1")
    assert (again.returncode, "to-0 has no open transaction" in again.stdout) == (1, True), again.stdout
    del producer

"""A group is scaled to 0 replicas when all is read, and up again for records in a partition without a commit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_kafka.connection import connected_client
from barnabas_operator.kafka.group_admin import GroupReader
from barnabas_operator.planning.groups.group_status import demand_of
from barnabas_operator.planning.groups.reset_plan import NOT_FOUND
from barnabas_operator.planning.groups.scaling import WINDOW_S, Memory, decide
from barnabas_operator.resources.consumer_group import ScaleTarget, Scaling
from harness.cluster import RunningCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.manual_clock import ManualClock
from harness.stock_client import records_given

POLL_S = 15.0
READERS = "readers"
SCALING = Scaling(target=ScaleTarget(name=READERS), lag_threshold=1_000, min=0, max=4)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with barnabas_cluster(tmp_path, brokers=1) as running:
        running.create_topic("flights", 4)
        yield running


@pytest.fixture
def connection(cluster: RunningCluster) -> Iterator[Any]:
    client = connected_client(cluster.bootstrap, PATIENCE_S, "tests")
    yield client
    client.close()


class Target:
    """The workload of the group's consumers: lag from real brokers sets its replicas, on the test's clock."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.clock = ManualClock()
        self.looks = GroupReader(60.0, self.clock)
        self.replicas = 1
        self.memory: Memory | None = None

    def look(self) -> int:
        self.clock.pass_time(POLL_S)
        seen = self.looks.read(lambda: self.connection, [READERS]).groups[READERS]
        decided = decide(SCALING, demand_of(seen), self.replicas, self.memory, self.clock.monotonic_s())
        self.replicas, self.memory = decided.replicas, decided.memory
        return self.replicas

    def after_the_window(self) -> int:
        return [self.look() for _ in range(int(WINDOW_S / POLL_S) + 2)][-1]


def read_all(cluster: RunningCluster, count: int) -> None:
    """Read the records, and commit only partitions with records, as librdkafka does by itself."""
    consumer, found = cluster.client().consumer(READERS), list[Any]()
    consumer.subscribe(["flights"])

    def is_read() -> bool:
        found.extend(records_given(consumer, 1.0))
        return len(found) >= count

    wait_for(is_read)
    consumer.commit(asynchronous=False)
    consumer.close()


def test_a_group_at_zero_replicas_scales_up_for_records_without_a_commit(
    cluster: RunningCluster, connection: Any
) -> None:
    client, target = cluster.client(), Target(connection)
    client.write("flights", [b"x"] * 10, 0)
    read_all(cluster, 10)
    assert target.after_the_window() == 0
    client.write("flights", [b"x"] * 2_500, 3)
    assert target.look() == 3
    read_all(cluster, 2_500)
    assert target.after_the_window() in {1, 2}, "a step down may halve the replicas at most"
    wait_for(target.look, lambda replicas: replicas == 0, pause_s=0.0)


def test_a_group_that_never_existed_is_always_reported_as_not_found(cluster: RunningCluster, connection: Any) -> None:
    looks = GroupReader(60.0, ManualClock())
    for _ in range(3):
        assert looks.read(lambda: connection, ["nobody"]).groups["nobody"].state == NOT_FOUND

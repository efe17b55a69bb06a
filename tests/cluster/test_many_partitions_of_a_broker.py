"""A broker with many partitions has no long turn of its event loop. `-s` shows the figures."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.server_process import TURN_CPU_SECONDS_MAX
from harness.soak import size, took

COUNT: Final = size(1_000, 5_000)
"""The partitions of each of the two topics."""
SECONDS_MAX: Final = 120.0
LONGEST: Final = re.compile(r'^barnabas_loop_longest_turn_(cpu_)?seconds\{what="([^"]*)"\} (\S+)$', re.MULTILINE)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=1, properties={"offsets.topic.num.partitions": "1"}) as running:
        yield running


def directories(cluster: BarnabasCluster, topic: str) -> int:
    """Return the number of logs in use."""
    (log_dir,) = cluster.log_dirs(0)
    return len([path for path in log_dir.glob(f"{topic}-*") if "." not in path.name])


class Stages:
    """The time that each stage took, and the longest turn of the event loop in it."""

    def __init__(self, cluster: BarnabasCluster) -> None:
        self._cluster = cluster
        self._began_s = time.monotonic()
        self.longest_cpu_s: list[float] = []

    def ended(self, what: str) -> None:
        """End a stage, and read the longest turn of the last minute from the broker's metrics."""
        took_s = time.monotonic() - self._began_s
        status, text = self._cluster.page(0, "/metrics")
        assert status == 200
        found = {kind: (name, float(value)) for kind, name, value in LONGEST.findall(text)}
        (name, seconds), (_, cpu_s) = found[""], found["cpu_"]
        self.longest_cpu_s.append(cpu_s)
        print(f"{what}: {took_s:.1f} s; longest turn {seconds * 1000:.0f} ms ({name}), {cpu_s * 1000:.0f} ms of CPU")
        self._began_s = time.monotonic()


@pytest.mark.soak(only=True)
@pytest.mark.timeout(600)
def test_no_turn_is_long_while_many_partitions_are_created_deleted_and_loaded(
    cluster: BarnabasCluster,
) -> None:
    stages, client = Stages(cluster), cluster.client()
    for topic in ("kept", "doomed"):
        client.create_topic(topic, COUNT, replication_factor=1)
    wait_for(
        lambda: directories(cluster, "kept") + directories(cluster, "doomed"),
        lambda found: found == 2 * COUNT,
        SECONDS_MAX,
        0.2,
    )
    client.write("kept", [b"before"], COUNT - 1)
    stages.ended(f"{2 * COUNT} made")
    client.admin.delete_topics(["doomed"])["doomed"].result(SECONDS_MAX)
    client.write("kept", [b"meanwhile"], COUNT - 1)
    wait_for(lambda: directories(cluster, "doomed"), lambda found: found == 0, SECONDS_MAX, 0.2)
    stages.ended(f"{COUNT} deleted")
    cluster.restart(0)
    wait_for(lambda: cluster.page(0, "/readyz")[0], lambda found: found == 200, SECONDS_MAX, 0.2)
    assert client.read("kept", COUNT - 1) == [b"before", b"meanwhile"]
    assert (directories(cluster, "kept"), directories(cluster, "doomed")) == (COUNT, 0)
    stages.ended(f"started again with {COUNT}")
    took("the longest turn", max(stages.longest_cpu_s), TURN_CPU_SECONDS_MAX)
    assert cluster.stop(0) == 0

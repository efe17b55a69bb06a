"""Thousands of partitions on a new cluster: the costs to create them, to rest with them, and to start with them."""

import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from bench.clients.job import NotRun
from bench.clusters import Cluster
from bench.metrics import Measurement
from bench.processes import cpu_seconds, rss_mb
from bench.raw_requests import wait_for_acknowledgement
from bench.scenarios.stand import Stand, pids
from bench.topics import create

# Apache Kafka needs minutes for 9,000 replicas on two cores.
READY_SECONDS_MAX: Final = 300.0
# Each check asks every broker for all partitions, which costs them some ms of CPU.
POLL_S: Final = 0.1


@contextmanager
def _fresh(stand: Stand, peer: str) -> Iterator[Cluster]:
    cluster, folder = stand.clusters.fresh(peer)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class ManyPartitions:
    """Topics with the same number of partitions, assigned by the brokers themselves."""

    topics: int
    partitions: int
    replication_factor: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Wait after creation and restart until every broker names leader and in-sync replicas of every partition."""
        names = [f"many-{number}" for number in range(self.topics)]
        with _fresh(stand, peer) as cluster:
            begun_s = time.monotonic()
            create(cluster.bootstrap, names, self.partitions, self.replication_factor)
            self._await_ready(cluster, names)
            create_s = time.monotonic() - begun_s
            time.sleep(stand.limits.settle_s)
            brokers = pids(cluster)
            idle_cpu_s = -cpu_seconds(*brokers)
            time.sleep(stand.limits.idle_s)
            idle_cpu_s += cpu_seconds(*brokers)
            resident_mb = rss_mb(*brokers)
            start_s = self._restart(cluster, names)
            return {
                "create_s": create_s,
                "start_s": start_s,
                "rss_mb": resident_mb,
                "idle_cpu_percent": idle_cpu_s / stand.limits.idle_s * 100,
            }

    def _restart(self, cluster: Cluster, names: Collection[str]) -> float:
        """Kill the last broker: a KRaft node does not shut down without the majority of its controllers."""
        *first, last = cluster.brokers
        for number in first:
            cluster.stop(number)
        cluster.kill(last)
        begun_s = time.monotonic()
        for broker in cluster.brokers.values():
            broker.launch()
        self._await_ready(cluster, names)
        name = max(names)
        port = cluster.brokers[cluster.leader(name)].port
        acknowledged_s = wait_for_acknowledgement(port, name, READY_SECONDS_MAX)
        if acknowledged_s is None:
            raise NotRun(f"no record acknowledged within {READY_SECONDS_MAX:.0f} s of the start")
        return acknowledged_s - begun_s

    def _await_ready(self, cluster: Cluster, names: Collection[str]) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        waiting = list(cluster.brokers)
        while waiting:
            if time.monotonic() > deadline:
                raise NotRun(f"replicas not in sync after {READY_SECONDS_MAX:.0f} s")
            if self._is_ready(cluster, waiting[0], names):
                del waiting[0]
            else:
                time.sleep(POLL_S)

    def _is_ready(self, cluster: Cluster, told_by: int, names: Collection[str]) -> bool:
        with suppress(OSError):
            views = [view for view in cluster.describe(as_told_by=told_by) if view.topic in names]
            return len(views) == len(names) * self.partitions and all(view.is_full for view in views)
        return False

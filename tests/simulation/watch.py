"""Looks into all brokers while they run: what must hold at every moment, whatever is broken."""

import asyncio

from barnabas_broker.replication.partition import Partition
from simulation.cluster import SimulatedCluster
from simulation.history import History

LOOK_S = 0.05


class Watch:
    """Notes violations in the history."""

    def __init__(self, cluster: SimulatedCluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._led_by: dict[tuple[str, int, int], int] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            for broker in self._cluster.brokers:
                for partition in broker.partitions():
                    self._look(broker.broker_id, partition)
            await asyncio.sleep(LOOK_S)

    def _look(self, broker_id: int, partition: Partition) -> None:
        topic, number = partition.topic_partition
        log = partition.log
        if partition.high_watermark > log.log_end_offset:
            self._history.violation(f"{topic}-{number} on {broker_id}: the high watermark is beyond the log's end")
        if partition.is_leader:
            known = self._led_by.setdefault((topic, number, partition.leader_epoch), broker_id)
            if known != broker_id:
                self._history.violation(
                    f"{topic}-{number}: {known} and {broker_id} both led in epoch {partition.leader_epoch}"
                )

    def check_replicas(self) -> None:
        """At the end all replicas hold the same bytes."""
        logs: dict[tuple[str, int], dict[int, bytes]] = {}
        for broker in self._cluster.brokers:
            for partition in broker.partitions():
                logs.setdefault(tuple(partition.topic_partition), {})[broker.broker_id] = _bytes_of(partition)
        for (topic, number), replicas in logs.items():
            if len(set(replicas.values())) > 1:
                sizes = {broker_id: len(data) for broker_id, data in replicas.items()}
                self._history.violation(f"the replicas of {topic}-{number} differ: bytes by broker {sizes}")


def _bytes_of(partition: Partition) -> bytes:
    return b"".join(segment.file.read_at(0, segment.size_bytes) for segment in partition.log.segments)

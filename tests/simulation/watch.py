"""Looks into all brokers while they run: what must hold at every moment, whatever is broken."""

import asyncio
from uuid import UUID

from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.record_batch import HEADER_BYTES, parse_header
from barnabas_core.topic_partition import TopicPartition
from simulation.cluster import SimulatedCluster
from simulation.history import History

LOOK_S = 0.05


class Watch:
    """Notes violations in the history."""

    def __init__(self, cluster: SimulatedCluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._led_by: dict[tuple[UUID, int, int], int] = {}

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
            known = self._led_by.setdefault((partition.topic_id, number, partition.leader_epoch), broker_id)
            if known != broker_id:
                self._history.violation(
                    f"{topic}-{number}: {known} and {broker_id} both led in epoch {partition.leader_epoch}"
                )

    def check_replicas(self) -> None:
        """At the end all replicas hold the same bytes, of what none of them has deleted."""
        logs: dict[TopicPartition, list[tuple[int, Partition]]] = {}
        for broker in self._cluster.brokers:
            for partition in broker.partitions():
                logs.setdefault(partition.topic_partition, []).append((broker.broker_id, partition))
        for topic_partition, replicas in logs.items():
            start = max(partition.log_start_offset for _, partition in replicas)
            contents = {broker_id: _bytes_from(partition, start) for broker_id, partition in replicas}
            if len(set(contents.values())) > 1:
                sizes = {broker_id: len(data) for broker_id, data in contents.items()}
                self._history.violation(f"the replicas of {topic_partition} differ: bytes by broker {sizes}")


def _bytes_from(partition: Partition, offset: int) -> bytes:
    """All batches that reach to `offset` or beyond."""
    kept = bytearray()
    for segment in partition.log.segments:
        data = segment.file.read_at(0, segment.size_bytes)
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = parse_header(data, position)
            if header.last_offset >= offset:
                kept += data[position : position + header.size_bytes]
            position += header.size_bytes
    return bytes(kept)

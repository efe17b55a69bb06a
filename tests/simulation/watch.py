"""Checks of all brokers while they run: invariants that hold at every moment during any faults."""

import asyncio
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from barnabas_broker.metadata.documents import AnyDocument, decode, joined, topic_key
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.record_batch import HEADER_BYTES, parse_header
from barnabas_core.topic_partition import TopicPartition
from simulation.cluster import SimulatedCluster
from simulation.compaction import COMPACTED, WILD, Latest, latest_by_key
from simulation.history import History
from simulation.loop import Host
from simulation.store import StoreState
from simulation.stored_epochs import StoredEpochs
from simulation.versions import StoredVersions

POLL_S: Final = 0.05
TOPICS: Final = topic_key("")


class StoredTopics:
    """The topics as the store has them, which no broker may know yet."""

    def __init__(self, store: StoreState) -> None:
        self._store = store
        self._decoded: dict[str, tuple[int, AnyDocument | None]] = {}
        self._revision = -1
        self._by_id: Mapping[UUID, TopicDocument] = {}

    def by_id(self) -> Mapping[UUID, TopicDocument]:
        """Return all topics except those with a missing part."""
        if self._revision != self._store.revision:
            self._revision = self._store.revision
            heads = [self._decode(key) for key in self._store.documents if key.startswith(TOPICS)]
            found = [joined(head, self._decode, None)[0] for head in heads if isinstance(head, TopicDocument)]
            self._by_id = {document.topic_id: document for document in found if document is not None}
        return self._by_id

    def _decode(self, key: str) -> AnyDocument | None:
        found = self._store.documents.get(key)
        if found is None:
            return None
        version, decoded = self._decoded.get(key, (-1, None))
        if version != found.version:
            decoded = decode(key, found.value)
            self._decoded[key] = found.version, decoded
        return decoded


class Watch:
    """Notes violations of invariants in the history."""

    def __init__(self, cluster: SimulatedCluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._led_by: dict[tuple[UUID, int, int], int] = {}
        self._led: dict[tuple[UUID, int], tuple[int, int]] = {}
        """The last epoch in which a broker was seen leading, and its high watermark."""
        self._epochs: dict[tuple[Host | None, UUID, int], int] = {}
        self._committed: dict[tuple[UUID, int], int] = {}
        """The highest high watermark that any leader had."""
        self._documents = StoredTopics(cluster.store)
        self._stored_epochs = StoredEpochs(cluster.store)
        self._stored_versions = StoredVersions(cluster.store)

    async def run(self) -> None:
        """Check until this is cancelled."""
        while True:
            self.look()
            await asyncio.sleep(POLL_S)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget what was committed in the partition: its loss was accepted."""
        for document in self._documents.by_id().values():
            if document.name == topic_partition.topic:
                self._committed.pop((document.topic_id, topic_partition.partition), None)

    def look(self) -> None:
        """Check everything once."""
        for what in (*self._stored_epochs.written_over(), *self._stored_versions.violations()):
            self._cluster.note(what)
            self._history.violation(what)
        here = [
            (broker.broker_id, broker.host, partition)
            for broker in self._cluster.brokers
            for partition in broker.partitions()
            if partition.failure is None
        ]
        for broker_id, host, partition in here:
            self._look_at_epochs(broker_id, host, partition)
        documents = self._documents.by_id()
        for broker_id, _, partition in here:
            document, number = documents.get(partition.topic_id), partition.topic_partition.partition
            if document is not None and number < len(document.partitions):
                self._look_at_records(broker_id, partition, document.partitions[number])

    def _look_at_epochs(self, broker_id: int, host: Host | None, partition: Partition) -> None:
        number, topic_id, epoch = partition.topic_partition.partition, partition.topic_id, partition.leader_epoch
        key = topic_id, number
        if partition.log.high_watermark > partition.log.log_end_offset:
            self._say(partition, broker_id, "the high watermark is beyond the log's end")
        if self._epochs.setdefault((host, topic_id, number), epoch) > epoch:
            self._say(partition, broker_id, f"its leader epoch goes back to {epoch}")
        self._epochs[host, topic_id, number] = epoch
        if partition.leader is None:
            return
        known = self._led_by.setdefault((topic_id, number, epoch), broker_id)
        if known != broker_id:
            self._say(partition, broker_id, f"{known} led in epoch {epoch}, too")
        last_epoch, last_high_watermark = self._led.get(key, (-1, 0))
        if last_epoch == epoch and partition.log.high_watermark < last_high_watermark:
            self._say(partition, broker_id, f"its high watermark goes back in epoch {epoch}")
        if last_epoch <= epoch:
            self._led[key] = epoch, partition.log.high_watermark
        self._committed[key] = max(self._committed.get(key, 0), partition.log.high_watermark)

    def _look_at_records(self, broker_id: int, partition: Partition, state: PartitionState) -> None:
        """Check that every in-sync replica and the current leader have all committed records."""
        if partition.topic_partition.topic == WILD:
            return
        if broker_id not in state.isr or partition.log.log_end_offset >= self._committed_end(partition):
            return
        committed, end = self._committed_end(partition), partition.log.log_end_offset
        self._say(partition, broker_id, f"it is in the ISR and ends at {end}; {committed} is committed: {state}")

    def _committed_end(self, partition: Partition) -> int:
        told = self._history.told_end_offset(*partition.topic_partition)
        return max(told, self._committed.get((partition.topic_id, partition.topic_partition.partition), 0))

    def _say(self, partition: Partition, broker_id: int, what: str) -> None:
        violation = f"{partition.topic_partition} on {broker_id}: {what}"
        if violation not in self._history.violations:
            self._cluster.note(violation)
            self._history.violation(violation)

    def replicas_end_alike(self) -> bool:
        """True if no replica has still to fetch records: the offsets of a group may be written at any time."""
        ends: dict[TopicPartition, set[int]] = {}
        for broker in self._cluster.brokers:
            for partition in broker.partitions():
                ends.setdefault(partition.topic_partition, set()).add(partition.log.log_end_offset)
        return all(len(found) == 1 for found in ends.values())

    def check_replicas(self) -> None:
        """Check at the end that all replicas have the same bytes above the latest log start, or the same values."""
        logs: dict[TopicPartition, list[tuple[int, Partition]]] = {}
        for broker in self._cluster.brokers:
            for partition in broker.partitions():
                logs.setdefault(partition.topic_partition, []).append((broker.broker_id, partition))
        for topic_partition, replicas in logs.items():
            if self._cluster.compacts and topic_partition.topic in COMPACTED:
                self._check_values(topic_partition, replicas)
            else:
                self._check_bytes(topic_partition, replicas)

    def _check_bytes(self, topic_partition: TopicPartition, replicas: list[tuple[int, Partition]]) -> None:
        start = max(partition.log.log_start_offset for _, partition in replicas)
        contents = {broker_id: _bytes_from(partition, start) for broker_id, partition in replicas}
        if len(set(contents.values())) > 1:
            sizes = {broker_id: len(data) for broker_id, data in contents.items()}
            self._history.violation(f"the replicas of {topic_partition} differ: bytes by broker {sizes}")

    def _check_values(self, topic_partition: TopicPartition, replicas: list[tuple[int, Partition]]) -> None:
        """Check the values: each replica compacts, and removes tombstones, at its own time."""
        if topic_partition in self._history.led_with_gaps:
            return
        (one_id, one), *others = replicas
        expected = _values(one)
        for other_id, other in others:
            found = _values(other)
            for key in sorted(key for key in {*expected, *found} if expected.get(key) != found.get(key)):
                what = f"{one_id} has {expected.get(key)}, {other_id} has {found.get(key)}"
                self._history.violation(f"the replicas of {topic_partition} differ: of {key!r} {what}")


def _values(partition: Partition) -> dict[bytes, Latest]:
    return {key: latest for key, latest in latest_by_key(partition).items() if latest.value is not None}


def _bytes_from(partition: Partition, offset: int) -> bytes:
    """Return all batches that reach to `offset` or beyond."""
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

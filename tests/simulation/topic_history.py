"""The responses to an administrator and writers about changing topics, and the checks at the end."""

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.record_batch import HEADER_BYTES, parse_header
from barnabas_broker.wire.records import decode_batch
from barnabas_core.topic_partition import TopicPartition
from simulation.cluster import SimulatedBroker
from simulation.history import History

MIN_ISR: Final = "min.insync.replicas"


class Written(NamedTuple):
    """An acknowledged value, with the id of its topic, which no other topic of that name has."""

    topic_id: UUID
    partition: int
    offset: int
    value: bytes


class TopicHistory:
    """The history of topics; violations are passed on."""

    def __init__(self, history: History) -> None:
        self.created: dict[UUID, str] = {}
        self.asked_to_delete: set[UUID] = set()
        self.deleted: set[UUID] = set()
        self.grown: dict[str, int] = {}
        """The least number of partitions of a topic that is never deleted."""
        self.trimmed: dict[TopicPartition, int] = {}
        """The offset below which the deletion of records was requested."""
        self.settings: dict[str, set[str | None]] = {}
        """The values that `min.insync.replicas` may have: the last acknowledged one, and those in doubt."""
        self._history = history
        self._written: list[Written] = []

    def violation(self, what: str) -> None:
        """Note a violation."""
        self._history.violation(f"topics: {what}")

    def wrote(self, written: Written) -> None:
        """Note an acknowledged value."""
        self._written.append(written)

    def check_image(self, broker: str, image: MetadataImage) -> None:
        """Check the image of one broker when all faults are healed."""
        there = {document.topic_id: document for document in image.topics.values()}
        for topic_id in self.deleted & there.keys():
            self.violation(f"{broker} knows {there[topic_id].name}, whose deletion was acknowledged")
        for topic_id in self.created.keys() - self.asked_to_delete - there.keys():
            self.violation(f"{broker} does not know {self.created[topic_id]}, which nobody has deleted")
        for name, count in self.grown.items():
            if len(image.topics[name].partitions) < count:
                self.violation(f"{broker} knows too few partitions of {name}; it was made to have {count}")
        for name, allowed in self.settings.items():
            if (found := image.topics[name].configs.get(MIN_ISR)) not in allowed:
                self.violation(f"{broker} has {name} with {MIN_ISR}={found}; {allowed} was set")

    def check_broker(self, broker: SimulatedBroker, image: MetadataImage) -> None:
        """Check that the broker has the replicas of the image, and nothing of deleted topics."""
        assigned = dict(_assigned(image, broker.broker_id))
        served = {partition.topic_partition: partition for partition in broker.partitions()}
        if served.keys() != assigned.keys():
            self.violation(f"{broker.name} serves {sorted(served)}; it should {sorted(assigned)}")
        for key, partition in served.items():
            document = assigned.get(key)
            if document is not None and partition.topic_id != document.topic_id:
                self.violation(f"{broker.name} serves {key} of another topic of that name")
            inherited = 0 if broker.node is None else broker.node.config.min_insync_replicas
            if document is not None and partition.log.config.min_insync_replicas != int(
                document.configs.get(MIN_ISR, inherited)
            ):
                self.violation(f"{broker.name} has {key} with {partition.log.config.min_insync_replicas} in sync")
        for directory, topic_partition in broker.logs_on_disk():
            if topic_partition not in assigned:
                self.violation(f"{broker.name} has {directory} which it should not have")

    def check_records(self, leader: Partition) -> None:
        """Check that a leader's log has all values acknowledged to this topic, and none of another one."""
        topic, number = key = leader.topic_partition
        records = dict(_records(leader))
        own = leader.topic_id.hex.encode()
        for offset, value in records.items():
            if not value.startswith(own):
                self.violation(f"{topic}-{number} of {own.decode()} holds {value!r} at {offset}")
        start = self.trimmed.get(key, 0)
        if leader.log.log_start_offset > start:
            self.violation(
                f"{topic}-{number} begins at {leader.log.log_start_offset}, and {start} is the most that was asked"
            )
        for written in () if self._history.is_told_lost(topic, number) else self._written:
            if (written.topic_id, written.partition) != (leader.topic_id, number) or written.offset < start:
                continue
            if records.get(written.offset) != written.value:
                self.violation(f"lost: {topic}-{number} {written}; {records.get(written.offset)!r} is there")


def _assigned(image: MetadataImage, broker_id: int) -> Iterator[tuple[TopicPartition, TopicDocument]]:
    for document in image.topics.values():
        for number, state in enumerate(document.partitions):
            if broker_id in state.replicas:
                yield TopicPartition(document.name, number), document


def _records(partition: Partition) -> Iterator[tuple[int, bytes]]:
    """Yield the records by offset, from the log start on."""
    for segment in partition.log.segments:
        data = segment.file.read_at(0, segment.size_bytes)
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = parse_header(data, position)
            for record in decode_batch(data, position, header, 1 << 20):
                offset = header.base_offset + record.offset_delta
                if offset >= partition.log.log_start_offset:
                    yield offset, bytes(record.value or b"")
            position += header.size_bytes

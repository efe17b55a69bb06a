"""A metadata image whose topics, tombstones and reports a test writes and deletes."""

from uuid import UUID

from barnabas_broker.metadata.documents import AnyDocument, encode, log_ends_key, tombstone_key, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import LogEndsDocument, PartitionState, TombstoneDocument, TopicDocument
from barnabas_broker.metadata.store.metadata_store import Change, Changes


class PlacedTopics:
    """An image of topics with one replica for each partition, on its leader."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._epoch = 0

    def lead(self, topic: str, *leaders: int, topic_id: int = 1) -> None:
        """Write a topic; `leaders` has the leader of each partition, or -1."""
        self._epoch += 1
        states = tuple(
            PartitionState((abs(each),), each, self._epoch, (abs(each),), partition_epoch=self._epoch)
            for each in leaders
        )
        self._write({topic_key(topic): TopicDocument(topic, UUID(int=topic_id), states)})

    def delete(self, topic: str, partitions: int, topic_id: int = 1) -> None:
        """Delete a topic: write its tombstone, and delete its document."""
        stone = TombstoneDocument(topic, UUID(int=topic_id), 0, partitions)
        self._write({tombstone_key(stone.topic_id): stone, topic_key(topic): None})

    def lose(self, topic: str) -> None:
        """Forget a topic as a broker does that starts after its metadata was lost."""
        before = self.image
        self.image = MetadataImage()
        self.image._listeners = before._listeners
        for key in (*before.tombstones,):
            stone = before.tombstones[key]
            self._write({tombstone_key(stone.topic_id): stone})
        for document in before.topics.values():
            if document.name != topic:
                self._write({topic_key(document.name): document})

    def report_stray(self, topic: str, topic_id: int) -> None:
        """Report a log of a topic that the metadata lacks."""
        self._write({log_ends_key(1, 0): LogEndsDocument(1, {}, {UUID(int=topic_id): topic})})

    def _write(self, documents: dict[str, AnyDocument | None]) -> None:
        revision = self.image.revision + 1
        changes = [
            Change(revision, key, None if document is None else encode(document)) for key, document in documents.items()
        ]
        self.image.apply_changes(Changes(revision, changes))

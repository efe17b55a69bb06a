"""The whereabouts of the partitions of a transaction: the leaders, and the partitions that were deleted.

A partition that the metadata image lacks need not be deleted. The metadata may be lost, or restored from an older
backup, and the image may be seconds behind the metadata store. Only a tombstone shows that a topic was deleted.
"""

from barnabas_broker.metadata.documents import topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import reported_ends, stray_topics
from barnabas_broker.metadata.model import PartitionState, TombstoneDocument
from barnabas_core.topic_partition import TopicPartition


def state_of(image: MetadataImage, partition: TopicPartition) -> PartitionState | None:
    """Return the state of the partition in the image, or None if the image lacks the partition."""
    document = image.topics.get(partition.topic)
    if document is None or not 0 <= partition.partition < len(document.partitions):
        return None
    return document.partitions[partition.partition]


class Deleted:
    """The partitions that were deleted, as a metadata image shows them now.

    The image must be at least as new as the transactions in question: an older image may have the tombstone of a topic,
    and lack the next topic of the same name, which the transaction has written to.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._tombstones: dict[str, list[TombstoneDocument]] = {}
        for tombstone in image.tombstones.values():
            self._tombstones.setdefault(tombstone.name, []).append(tombstone)
        self._strays = {each.name for each in stray_topics(image)}

    def has(self, partition: TopicPartition) -> bool:
        """True if the partition was deleted: a topic of that name with such a partition has a tombstone.

        The partition may exist if the metadata of a topic of that name, or of the partition itself, may be lost.
        """
        topic, number = partition
        held = any(each.partitions > number or not each.partitions for each in self._tombstones.get(topic, ()))
        return held and state_of(self._image, partition) is None and not self._may_be_lost(topic, number)

    def _may_be_lost(self, topic: str, number: int) -> bool:
        image, document = self._image, self._image.topics.get(topic)
        if document is not None:
            return number in reported_ends(image).get(document.topic_id, {})
        return topic in self._strays or topic in image.incomplete or topic_key(topic) in image.unreadable

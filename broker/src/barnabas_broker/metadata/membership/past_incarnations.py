"""The revisions since which brokers are away, and the partitions that were written since.

A broker that decides on a partition writes it by compare-and-set, and its image has everything that was written before
the partition was. So no broker that can still write a partition as it is takes one for alive that was out before that.
"""

from barnabas_broker.metadata.documents import broker_key, topic_key
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.metadata.topic_layout import key_of


class PastIncarnations:
    """The past incarnations, as far as this broker has followed the image; earlier times count as just now."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._out_since: dict[int, int] = {}
        """The revision at which each broker was fenced or shutting down; none for brokers that may join an ISR."""

    def start(self) -> None:
        """Follows the image from now on."""
        self._see(ImageChange(brokers=frozenset(self._image.brokers)))
        self._image.subscribe(self._see)

    def _see(self, change: ImageChange) -> None:
        for broker_id in change.brokers:
            found = self._image.brokers.get(broker_id)
            if found is not None and (found.fenced or found.is_shutting_down):
                version = self._image.version(broker_key(broker_id)) or self._image.revision
                if broker_id in change.seen_alive:
                    self._out_since.pop(broker_id, None)
                self._out_since.setdefault(broker_id, version)
            else:
                self._out_since.pop(broker_id, None)

    def is_past(self, broker_id: int, topic: TopicDocument, partition: int) -> bool:
        """True if the partition was written when the broker was already out, and is in the store as it is here."""
        since = self._out_since.get(broker_id)
        if since is None or topic_key(topic.name) in self._image.lost:
            return False
        return self._image.version(key_of(topic, partition)) > since

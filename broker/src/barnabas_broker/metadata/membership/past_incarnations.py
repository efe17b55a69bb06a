"""Since when brokers that are away have been so, and which partitions were written since.

Who decides on a partition writes it by compare-and-set, and its image has everything that was written before the
partition was. So nobody who can still write a partition as it is takes a broker for alive that was out before that.
"""

from barnabas_broker.metadata.documents import broker_key, topic_key
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.metadata.topic_layout import key_of


class PastIncarnations:
    """As far as this broker has followed the image; what was before that counts as just now."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._out_since: dict[int, int] = {}
        """By broker, the revision at which it was fenced or shutting down; none of those that may join an ISR."""

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
        """Whether the partition was written when the broker was out already, and is in the store as it is here."""
        since = self._out_since.get(broker_id)
        if since is None or topic_key(topic.name) in self._image.lost:
            return False
        return self._image.version(key_of(topic, partition)) > since

"""The partitions that were written after a broker was fenced or began to shut down.

A writer changes a partition by compare-and-set, so its image must have the latest state of the partition, and
everything that was written before. Therefore every broker that changes such a partition afterwards knows that the
broker was fenced or began to shut down.
"""

from barnabas_broker.metadata.documents import broker_key, topic_key
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.metadata.topic_layout import key_of


class PastIncarnations:
    """The revisions since which brokers are fenced or shutting down, from the changes of the image since `start`."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._out_since: dict[int, int] = {}
        """The revision since which a broker has been fenced or shutting down, by broker id."""

    def start(self) -> None:
        """Begin to listen to changes of the metadata image."""
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
        """True if the partition was written after the broker was fenced or began to shut down.

        False for a partition whose documents are lost, because the store may have been put back.
        """
        since = self._out_since.get(broker_id)
        if since is None or topic_key(topic.name) in self._image.lost:
            return False
        return self._image.version(key_of(topic, partition)) > since

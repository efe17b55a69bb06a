"""The check whether the metadata of a partition was written after a broker was fenced or began to shut down.

If so, the next writer of the partition's metadata knows of the fencing or the shutdown. The metadata is changed by
compare-and-set, so a writer must have seen the latest state of the partition and all metadata that was written before
that state.
"""

from barnabas_broker.metadata.documents import broker_key, topic_key
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.metadata.topic_layout import key_of


class PastIncarnations:
    """The brokers that are fenced or shutting down, each with the metadata revision at which this began.

    The brokers are tracked from the call of `start` on.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._out_since: dict[int, int] = {}
        """The revision at which a broker was fenced or began to shut down, by broker id."""

    def start(self) -> None:
        """Begin to listen to changes of the metadata image."""
        self._see(ImageChange(brokers=set(self._image.brokers)))
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
        """True if the metadata of the partition was written after the broker was last fenced or began to shut down.

        The result is False if the broker is alive, or if the topic document is lost. In the second case, the store may
        be a restored older copy, whose versions cannot be compared with earlier versions.
        """
        since = self._out_since.get(broker_id)
        if since is None or topic_key(topic.name) in self._image.lost:
            return False
        return self._image.version(key_of(topic, partition)) > since

"""Ties the group coordinator to its topic: elected where this broker leads a partition of it, resigned where not."""

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument
from barnabas_core.topic_name import CONSUMER_OFFSETS


def follow_offsets_topic(groups: GroupCoordinator, broker_id: int, image: MetadataImage) -> None:
    """Elect for what the image holds, and go on with its changes. Called when the partitions are hosted."""

    def lead(document: TopicDocument) -> None:
        groups.runtime.partition_count = len(document.partitions)
        for index, state in enumerate(document.partitions):
            if state.leader == broker_id:
                groups.runtime.elect(index, state.leader_epoch)
            else:
                groups.runtime.resign(index)

    def changed(change: ImageChange) -> None:
        deleted = {document.topic_id: document.name for document in change.deleted}
        if CONSUMER_OFFSETS in deleted.values():
            groups.runtime.resign_all()
        elif deleted:
            groups.on_topics_deleted(deleted)
        for document in (*change.created, *change.changed):
            if document.name == CONSUMER_OFFSETS:
                lead(document)

    if CONSUMER_OFFSETS in image.topics:
        lead(image.topics[CONSUMER_OFFSETS])
    image.subscribe(changed)

"""Ties the group coordinator to its topic: elected where this broker leads a partition of it, resigned where not."""

from typing import Final

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument

OFFSETS_TOPIC: Final = "__consumer_offsets"


def follow_offsets_topic(groups: GroupCoordinator, broker_id: int, image: MetadataImage) -> None:
    """Elect for what the image holds, and go on with its changes. Called when the partitions are hosted."""

    def lead(document: TopicDocument) -> None:
        groups.partition_count = len(document.partitions)
        for index, state in enumerate(document.partitions):
            if state.leader == broker_id:
                groups.on_elected(index, state.leader_epoch)
            else:
                groups.on_resigned(index)

    def changed(change: ImageChange) -> None:
        deleted = {document.topic_id: document.name for document in change.deleted}
        if OFFSETS_TOPIC in deleted.values():
            groups.resign_all()
        elif deleted:
            groups.on_topics_deleted(deleted)
        for document in (*change.created, *change.changed):
            if document.name == OFFSETS_TOPIC:
                lead(document)

    if OFFSETS_TOPIC in image.topics:
        lead(image.topics[OFFSETS_TOPIC])
    image.subscribe(changed)

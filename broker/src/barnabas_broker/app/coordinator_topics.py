"""The election and resignation of coordinators when the leaders of the coordinators' partitions change."""

from typing import Any

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.runtime.runtime import Runtime
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument


def follow_topic(topic: str, runtime: Runtime[Any], broker_id: int, image: MetadataImage) -> None:
    """Make `runtime` load the partitions of the topic that this broker leads, and close all other partitions.

    `runtime` does this now, and again after each change of the topic.
    """

    def lead(document: TopicDocument) -> None:
        runtime.partition_count = len(document.partitions)
        for index, state in enumerate(document.partitions):
            if state.leader == broker_id:
                runtime.elect(index, state.leader_epoch)
            else:
                runtime.resign(index)

    def changed(change: ImageChange) -> None:
        if topic in [document.name for document in change.deleted]:
            runtime.resign_all()
        for document in (*change.created, *change.changed):
            if document.name == topic:
                lead(document)

    if topic in image.topics:
        lead(image.topics[topic])
    image.subscribe(changed)


def forget_deleted_topics(groups: GroupCoordinator, image: MetadataImage) -> None:
    """Subscribe to deletions of topics, so that the committed offsets of deleted topics are removed."""

    def changed(change: ImageChange) -> None:
        if change.deleted:
            groups.on_topics_deleted({document.topic_id: document.name for document in change.deleted})

    image.subscribe(changed)

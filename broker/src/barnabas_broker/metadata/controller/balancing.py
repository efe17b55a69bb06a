"""The search for partitions whose preferred replica could lead, but does not."""

from barnabas_broker.metadata.controller.decisions.balance import unbalanced
from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_core.fair_turns import FairTurn
from barnabas_core.topic_partition import TopicPartition


async def all_unbalanced(image: MetadataImage, turn: FairTurn) -> list[TopicPartition]:
    """Return the partitions of all topics whose preferred replica could lead the partition, but does not.

    Other tasks run during the search, so the caller must check each partition again before changing it.
    """
    found: list[TopicPartition] = []
    async for name in turn.over(image.topics):
        topic = image.topics.get(name)
        if topic is not None:
            found += unbalanced([topic], Rules(image.brokers))
    return found

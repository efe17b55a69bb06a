"""The search in all topics for partitions that are not led by their preferred replica."""

from barnabas_broker.metadata.controller.decisions.balance import unbalanced
from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_core.fair_turns import FairTurn
from barnabas_core.topic_partition import TopicPartition


async def all_unbalanced(image: MetadataImage, turn: FairTurn) -> list[TopicPartition]:
    """Return the unbalanced partitions, some topics a turn of the loop, each as it is when its turn comes.

    The caller must check them again before it changes them.
    """
    found: list[TopicPartition] = []
    async for name in turn.over(image.topics):
        topic = image.topics.get(name)
        if topic is not None:
            found += unbalanced([topic], Rules(image.brokers))
    return found

"""Topics with so many partitions that they have several documents, and images of them."""

import json
from collections.abc import Sequence

from metadata_cluster import Node

from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.controller.decisions.fencing import IsrChange
from barnabas_broker.metadata.documents import FEATURES_KEY, encode
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import (
    ELR,
    FeaturesDocument,
    PartitionState,
    TopicDocument,
)
from barnabas_broker.metadata.store.metadata_store import Change, Changes
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from barnabas_core.conventions import METADATA_LEVEL
from barnabas_core.topic_partition import TopicPartition

STATE = PartitionState((0,), 0, 0, (0,))


async def finalize(node: Node, level: int) -> None:
    levels = FeaturesDocument({METADATA_LEVEL: level, ELR: 1})
    await node.image.reached(await node.store.put(FEATURES_KEY, encode(levels)))


async def a_large_topic(node: Node, partitions: int = 250) -> TopicDocument:
    await finalize(node, 2)
    assert isinstance((await node.writer.create_topics([NewTopic("t", partitions)]))["t"], TopicDocument)
    return node.image.topics["t"]


async def stored(node: Node) -> dict[str, dict[str, object]]:
    documents = (await node.store.listing()).documents
    return {each.key: json.loads(each.value) for each in documents if each.key.startswith(("topics/", "partitions/"))}


async def image_of(store: SqliteStore) -> MetadataImage:
    image = MetadataImage()
    image.apply_listing(await store.listing())
    return image


def changes_of(documents: Sequence[tuple[str, bytes]]) -> Changes:
    return Changes(len(documents), [Change(n + 1, key, value) for n, (key, value) in enumerate(documents)])


def with_level_2(image: MetadataImage) -> MetadataImage:
    image.apply_changes(changes_of([(FEATURES_KEY, encode(FeaturesDocument({METADATA_LEVEL: 2, ELR: 1})))]))
    return image


def a_change(topic: TopicDocument, number: int) -> IsrChange:
    state = topic.partitions[number]
    where = TopicPartition(topic.name, number)
    return IsrChange(where, topic.topic_id, state.leader_epoch, state.partition_epoch, {0: -1})

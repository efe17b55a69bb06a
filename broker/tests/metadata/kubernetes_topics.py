"""Topics in a store on Kubernetes."""

from uuid import UUID

from barnabas_broker.metadata.documents import encode, topic_key
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.metadata.store.metadata_store import (
    MetadataStore,
)


def id_of(name: str) -> UUID:
    return UUID(int=int.from_bytes(name.encode()))


async def a_topic(store: MetadataStore, name: str, leader: int = 0) -> int:
    partition = PartitionState(replicas=(0, 1, 2), leader=leader, leader_epoch=0, isr=(0, 1, 2))
    document = TopicDocument(name=name, topic_id=id_of(name), partitions=(partition, partition))
    return await store.put(topic_key(name), encode(document))

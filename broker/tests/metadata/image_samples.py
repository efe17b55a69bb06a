"""Sample topics and changes for tests of images."""

from uuid import UUID

from barnabas_broker.metadata.documents import (
    AnyDocument,
    encode,
    tombstone_key,
)
from barnabas_broker.metadata.model import (
    PartitionState,
    TombstoneDocument,
    TopicDocument,
)
from barnabas_broker.metadata.store.metadata_store import (
    Change,
    Changes,
)


def a_topic(name: str, number: int, partitions: int = 1) -> TopicDocument:
    return TopicDocument(name, UUID(int=number), (PartitionState((0,), 0, 0, (0,)),) * partitions)


def changes(*documents: tuple[str, AnyDocument | None], begin: int = 1) -> Changes:
    numbered = [
        Change(begin + n, key, None if document is None else encode(document))
        for n, (key, document) in enumerate(documents)
    ]
    return Changes(numbered[-1].revision, numbered)


def a_tombstone(name: str, number: int) -> tuple[str, TombstoneDocument]:
    topic_id = UUID(int=number)
    return tombstone_key(topic_id), TombstoneDocument(name, topic_id, 5, 1)

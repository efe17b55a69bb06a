"""Checks of writes to the store: no broker may overwrite what another one decided in between."""

from collections.abc import Iterator

from barnabas_broker.metadata.documents import decode, topic_key, topic_part_key
from barnabas_broker.metadata.model import PartitionState, TopicDocument, TopicPartDocument
from simulation.store import StoreState

TOPICS = (topic_key(""), "partitions/")


class StoredEpochs:
    """Checks that each change of a partition raises its partition epoch, and none lowers its leader epoch.

    A part counts once the topic's head names it: a broker that wrote it before, and did not get to name it, may
    decide the same again.
    """

    def __init__(self, store: StoreState) -> None:
        self._store = store
        self._seen = 0
        self._known: dict[str, TopicDocument | TopicPartDocument] = {}

    def written_over(self) -> Iterator[str]:
        """Yield the partitions whose state was overwritten since the last look."""
        news, self._seen = self._store.changes[self._seen :], len(self._store.changes)
        for change in news:
            if change.key.startswith(TOPICS):
                before = self._known.pop(change.key, None)
                if change.value is not None:
                    after = decode(change.key, change.value)
                    assert isinstance(after, TopicDocument | TopicPartDocument), change.key
                    self._known[change.key] = after
                    if self._is_named(change.key, after):
                        yield from _differences(before, after)

    def _is_named(self, key: str, document: TopicDocument | TopicPartDocument) -> bool:
        """True if the previous head names the document; the head itself always counts."""
        head = self._known.get(topic_key(document.name))
        parts = head.parts if isinstance(head, TopicDocument) else ()
        return isinstance(document, TopicDocument) or key in (topic_part_key(document.name, part) for part in parts)


def _differences(
    before: TopicDocument | TopicPartDocument | None, after: TopicDocument | TopicPartDocument
) -> Iterator[str]:
    if before is None or before.topic_id != after.topic_id:
        return
    for number, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=False)):
        if old != new and not _follows(old, new):
            yield f"{after.name}-{number} is written over: {old} by {new}"
    if _count(after) < _count(before):
        yield f"{after.name} is written over: it had {_count(before)} partitions, not {_count(after)}"


def _count(document: TopicDocument | TopicPartDocument) -> int:
    """Return the number of partitions, with those in documents of their own if the topic was split."""
    parts = document.parts if isinstance(document, TopicDocument) else ()
    return len(document.partitions) + sum(part.count for part in parts)


def _follows(old: PartitionState, new: PartitionState) -> bool:
    return new.partition_epoch > old.partition_epoch and new.leader_epoch >= old.leader_epoch

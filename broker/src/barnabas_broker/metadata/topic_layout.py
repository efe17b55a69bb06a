"""The documents of a topic in the store: the topic document, and a topic part for each further 100 partitions.

A change of one partition therefore writes a small document. The documents of a topic may be written one after the
other, because each partition is in exactly one document and does not depend on other partitions. The topic document
(`head`) alone decides which parts belong to the topic. To create or extend a topic, new parts are written first, under
keys that no other writer uses, and then the topic document. If the topic document is not written, no topic refers to
the parts, and the controller removes them later.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import sha256
from typing import Final

import msgspec

from barnabas_broker.metadata.documents import AnyDocument, encode, topic_key, topic_part_key
from barnabas_broker.metadata.model import PartitionState, PartReference, TopicDocument, TopicPartDocument

PARTITIONS_MAX: Final = 100
"""The maximum number of partitions in one stored document; a full document has 4 to 7 kB."""

Stored = Callable[[str], AnyDocument | None]
"""A function that returns the metadata object that this broker last saw under a key of the metadata store, or None."""


def laid_out(topic: TopicDocument, *, splits: bool, partitions_max: int = PARTITIONS_MAX) -> TopicDocument:
    """Return the topic with references to its topic parts, the documents for its later partitions.

    The topic document has the first partitions. New documents have at most `partitions_max` partitions. If the topic
    already has topic parts, added partitions go into new topic parts, and all other partitions stay where they are. The
    caller has to store new topic parts. If `splits` is False, the topic has no topic parts, and the topic document has
    all partitions.
    """
    if not splits:
        return topic if not topic.parts else msgspec.structs.replace(topic, parts=())
    begin = _covered(topic) if topic.parts else partitions_max
    added = tuple(_new_parts(topic, begin, partitions_max))
    return topic if not added else msgspec.structs.replace(topic, parts=topic.parts + added)


def _new_parts(topic: TopicDocument, begin: int, partitions_max: int) -> Iterator[PartReference]:
    for first in range(begin, len(topic.partitions), partitions_max):
        states = topic.partitions[first : first + partitions_max]
        content = encode(TopicPartDocument(topic.name, topic.topic_id, first, states))
        yield PartReference(first, len(states), sha256(content).hexdigest()[:16])


def documents_of(topic: TopicDocument, stored: Stored) -> dict[str, TopicDocument | TopicPartDocument]:
    """Return the documents to store for a topic, by key: first every TopicPartDocument, then the TopicDocument."""
    found: dict[str, TopicDocument | TopicPartDocument] = {}
    for part in topic.parts:
        key, states = topic_part_key(topic.name, part), topic.partitions[part.first : part.first + part.count]
        known = stored(key)
        found[key] = (
            msgspec.structs.replace(known, partitions=states)  # Fields of a newer version are kept.
            if isinstance(known, TopicPartDocument)
            else TopicPartDocument(topic.name, topic.topic_id, part.first, states)
        )
    found[topic_key(topic.name)] = head_of(topic)
    return found


def head_of(topic: TopicDocument) -> TopicDocument:
    """Return the TopicDocument as it is stored: without the partitions that a TopicPartDocument contains."""
    if not topic.parts:
        return topic
    return msgspec.structs.replace(topic, partitions=topic.partitions[: topic.parts[0].first])


def pieces_of(topic: TopicDocument) -> list[range]:
    """Return the ranges of partitions that are stored under one key each, in the order of the partitions.

    The first range is stored under the topic's own key. Partitions that have no key yet form the last range.
    """
    begins = [0, *(part.first for part in topic.parts), *([_covered(topic)] if topic.parts else ())]
    ends = [*begins[1:], len(topic.partitions)]
    return [range(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]


def _covered(topic: TopicDocument) -> int:
    """Return the partition number that follows the last number in `topic.parts`."""
    return topic.parts[-1].first + topic.parts[-1].count


def part_with(topic: TopicDocument, numbers: Collection[int], stored: Stored) -> str | None:
    """Return the key of the topic part (a document with further partitions of a topic) that has all of `numbers`.

    Return None if the store has no such topic part.
    """
    first, last = min(numbers, default=0), max(numbers, default=0)
    for part in topic.parts:
        if part.first <= first and last < part.first + part.count:
            key = topic_part_key(topic.name, part)
            return key if isinstance(stored(key), TopicPartDocument) else None
    return None


def key_of(topic: TopicDocument, partition: int) -> str:
    """Return the key in the metadata store under which the state of a partition is stored."""
    number = bisect_right(topic.parts, partition, key=lambda part: part.first) - 1
    return topic_key(topic.name) if number < 0 else topic_part_key(topic.name, topic.parts[number])


def part_keys(topic: TopicDocument) -> list[str]:
    """Return the keys of the TopicPartDocuments to which a large topic refers in `parts`."""
    return [topic_part_key(topic.name, part) for part in topic.parts]


def joined(head: TopicDocument, stored: Stored, known: TopicDocument | None) -> tuple[TopicDocument | None, bool]:
    """Assemble a topic from its topic document `head` and its topic parts; also return True if no part is missing.

    The partitions of a missing part come from `known`, the last known state of the topic. If `known` lacks these
    partitions, too, None is returned instead of the topic.
    """
    if not head.parts:
        return head, True
    pieces, is_complete = [], True
    for first, count, states in _stored_pieces(head, stored):
        if len(states) < count:
            is_complete = False
            states = known.partitions[first : first + count] if known is not None else ()
        if len(states) < count:
            return None, False
        pieces.append(states[:count])
    partitions = tuple(state for piece in pieces for state in piece)
    return msgspec.structs.replace(head, partitions=partitions), is_complete


def _stored_pieces(head: TopicDocument, stored: Stored) -> Iterator[tuple[int, int, tuple[PartitionState, ...]]]:
    """Yield the first partition, the number of partitions, and the partition states of each document of a topic.

    The documents are the topic document and the topic parts. If a topic part is missing in the store, its states are
    empty.
    """
    yield 0, head.parts[0].first, head.partitions
    for part in head.parts:
        document = stored(topic_part_key(head.name, part))
        yield part.first, part.count, document.partitions if isinstance(document, TopicPartDocument) else ()


def with_part(topic: TopicDocument, part: TopicPartDocument) -> TopicDocument:
    """Return the topic, with the partition states in `part` in place of the earlier states of these partitions.

    If `part` belongs to another topic, return the topic unchanged.
    """
    if part.topic_id != topic.topic_id:
        return topic
    end = part.first + len(part.partitions)
    partitions = topic.partitions[: part.first] + part.partitions + topic.partitions[end:]
    return msgspec.structs.replace(topic, partitions=partitions)


def changed(wanted: Mapping[str, TopicDocument | TopicPartDocument], stored: Stored) -> tuple[list[str], list[str]]:
    """Return the keys of new topic parts, and the keys of the other changed documents of the topic.

    New topic parts must be written first, so that the topic document never refers to a missing topic part.
    """
    differing = [key for key, document in wanted.items() if stored(key) != document]
    is_new = {key for key in differing if isinstance(wanted[key], TopicPartDocument) and stored(key) is None}
    return [key for key in differing if key in is_new], [key for key in differing if key not in is_new]

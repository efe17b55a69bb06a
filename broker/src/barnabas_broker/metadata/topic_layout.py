"""The documents of a topic in the store: one, or, for many partitions, a head and a document for each 100 more.

So a change of one partition writes a small document. Each partition is in one document, and its state stands by itself:
that the documents of a topic are written one after the other does no harm. What has to be one decision is the head's
alone: a part counts once the head names it. So a topic is made, or given more partitions, by writing new parts first,
under keys that are nobody else's, and then the head; if that is not written, nobody names the parts, and the controller
removes them later.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import sha256
from typing import Final

import msgspec

from barnabas_broker.metadata.documents import AnyDocument, encode, topic_key, topic_part_key
from barnabas_broker.metadata.model import PartitionState, PartReference, TopicDocument, TopicPartDocument

PARTITIONS_MAX: Final = 100
"""The partitions in one document: 4 to 7 kB."""

Stored = Callable[[str], AnyDocument | None]
"""The document that the store has under a key, as far as is known."""


def laid_out(topic: TopicDocument, *, splits: bool, partitions_max: int = PARTITIONS_MAX) -> TopicDocument:
    """Return a whole topic with references to its parts, new ones included; with none unless topics may be split.

    A new document gets at most `partitions_max` partitions. Parts never change their bounds: partitions that are
    added get parts of their own, or room in the head.
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
    """Return the documents that the store should hold of a topic with parts, by key: the parts, then the head."""
    found: dict[str, TopicDocument | TopicPartDocument] = {}
    for part in topic.parts:
        key, states = topic_part_key(topic.name, part), topic.partitions[part.first : part.first + part.count]
        known = stored(key)
        found[key] = (
            msgspec.structs.replace(known, partitions=states)  # This keeps the fields of a newer version.
            if isinstance(known, TopicPartDocument)
            else TopicPartDocument(topic.name, topic.topic_id, part.first, states)
        )
    found[topic_key(topic.name)] = head_of(topic)
    return found


def head_of(topic: TopicDocument) -> TopicDocument:
    """Return the head of a whole topic with parts: the document under the topic's own key."""
    if not topic.parts:
        return topic
    return msgspec.structs.replace(topic, partitions=topic.partitions[: topic.parts[0].first])


def pieces_of(topic: TopicDocument) -> list[range]:
    """Return the ranges of partitions that are in one document each, the head's first."""
    begins = [0, *(part.first for part in topic.parts), *([_covered(topic)] if topic.parts else ())]
    ends = [*begins[1:], len(topic.partitions)]
    return [range(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]


def _covered(topic: TopicDocument) -> int:
    """The number of the first partition that is not in the store yet."""
    return topic.parts[-1].first + topic.parts[-1].count


def part_with(topic: TopicDocument, numbers: Collection[int], stored: Stored) -> str | None:
    """The key of the part that has all of these partitions in the store; None where there is no one part that has."""
    first, last = min(numbers, default=0), max(numbers, default=0)
    for part in topic.parts:
        if part.first <= first and last < part.first + part.count:
            key = topic_part_key(topic.name, part)
            return key if isinstance(stored(key), TopicPartDocument) else None
    return None


def key_of(topic: TopicDocument, partition: int) -> str:
    """Return the key of the document that has the partition."""
    number = bisect_right(topic.parts, partition, key=lambda part: part.first) - 1
    return topic_key(topic.name) if number < 0 else topic_part_key(topic.name, topic.parts[number])


def part_keys(topic: TopicDocument) -> list[str]:
    """Return the keys of the parts that a head, or a whole topic, names."""
    return [topic_part_key(topic.name, part) for part in topic.parts]


def joined(head: TopicDocument, stored: Stored, known: TopicDocument | None) -> tuple[TopicDocument | None, bool]:
    """Return the whole topic of a stored head, and whether all its documents are complete.

    Missing partitions come from `known`, the last known state of the topic; None if that lacks some, too.
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
    """Yield for each document its first partition, the number it should have, and the partitions that it has."""
    yield 0, head.parts[0].first, head.partitions
    for part in head.parts:
        document = stored(topic_part_key(head.name, part))
        yield part.first, part.count, document.partitions if isinstance(document, TopicPartDocument) else ()


def with_part(topic: TopicDocument, part: TopicPartDocument) -> TopicDocument:
    """Return a whole topic with the partitions of a part; unchanged if the part belongs to another topic."""
    if part.topic_id != topic.topic_id:
        return topic
    end = part.first + len(part.partitions)
    partitions = topic.partitions[: part.first] + part.partitions + topic.partitions[end:]
    return msgspec.structs.replace(topic, partitions=partitions)


def changed(wanted: Mapping[str, TopicDocument | TopicPartDocument], stored: Stored) -> tuple[list[str], list[str]]:
    """Return the keys to write first, of parts that no document refers to yet, and the keys to write then."""
    differing = [key for key, document in wanted.items() if stored(key) != document]
    is_new = {key for key in differing if isinstance(wanted[key], TopicPartDocument) and stored(key) is None}
    return [key for key in differing if key in is_new], [key for key in differing if key not in is_new]

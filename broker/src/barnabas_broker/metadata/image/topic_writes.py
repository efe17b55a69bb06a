"""The writes that store or delete one metadata object, or a topic that is split over several keys of the store."""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import NamedTuple

from barnabas_broker.metadata.documents import AnyDocument, encode, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.metadata.store.metadata_store import MetadataStore, VersionConflict, Write
from barnabas_broker.metadata.topic_layout import changed, documents_of, laid_out, part_keys


class DocumentWrites(NamedTuple):
    """The writes of one metadata document or topic.

    `new_parts` has new documents with partitions of a topic. They must be written before `rest`, which refers to them.
    """

    new_parts: tuple[Write, ...]
    rest: tuple[Write, ...]

    def keys(self) -> Set[str]:
        """Return the keys of all metadata objects that are to be written to the store."""
        return {write.key for write in (*self.new_parts, *self.rest)}


def writes_of(key: str, document: AnyDocument | None, image: MetadataImage) -> DocumentWrites:
    """Return the compare-and-set writes that store a document, or that delete the key if `document` is None.

    For a topic, documents that the store has already are not written again. The deletion of a topic deletes all its
    documents.
    """
    if isinstance(document, TopicDocument):
        return _writes_of_topic(document, image)
    keys = [key]
    if document is None and key.startswith(topic_key("")):
        buried = image.buried.get(key.removeprefix(topic_key("")))
        keys += [part for part in part_keys(buried) if part in image.parts] if buried is not None else []
    value = None if document is None else encode(document)
    return DocumentWrites((), tuple(Write(each, value, image.version(each)) for each in keys))


def _writes_of_topic(topic: TopicDocument, image: MetadataImage) -> DocumentWrites:
    wanted = documents_of(
        laid_out(topic, splits=image.splits_topics, partitions_max=image.document_partitions_max), image.stored
    )
    first, then = changed(wanted, image.stored)
    new_parts, rest = (
        tuple(Write(key, encode(wanted[key]), image.version(key)) for key in keys) for keys in (first, then)
    )
    return DocumentWrites(new_parts, rest)


async def write_in_order(plans: Collection[DocumentWrites], store: MetadataStore) -> dict[str, int | VersionConflict]:
    """Write the values in `plans` to the metadata store; return the new version or the conflict of each key.

    The `new_parts` of all plans are written first. If one of these writes conflicts, the `rest` of its plan is not
    written. Raises StoreUnavailable.
    """
    new_parts = [write for plan in plans for write in plan.new_parts]
    results = await _written(new_parts, store) if new_parts else {}
    rest = [write for plan in plans if not _conflicts(plan.new_parts, results) for write in plan.rest]
    return results | (await _written(rest, store) if rest else {})


async def _written(writes: Sequence[Write], store: MetadataStore) -> dict[str, int | VersionConflict]:
    return {write.key: outcome for write, outcome in zip(writes, await store.write(writes), strict=True)}


def _conflicts(writes: Collection[Write], results: Mapping[str, int | VersionConflict]) -> bool:
    return any(isinstance(results[write.key], VersionConflict) for write in writes)

"""What a broker remembers of the metadata over its restart, and what it writes anew of that where the store knows less.

The store may have lost documents, or an older copy of it was put back, while the broker was down.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from barnabas_broker.metadata.documents import (
    CLUSTER_KEY,
    FEATURES_KEY,
    PRODUCER_IDS_KEY,
    AnyDocument,
    MalformedDocument,
    broker_configs_key,
    decode,
    encode,
    topic_key,
)
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.image.restoration import compared, unled
from barnabas_broker.metadata.image.topic_writes import write_in_order, writes_of
from barnabas_broker.metadata.model import (
    ClusterDocument,
    ConfigDocument,
    FeaturesDocument,
    ProducerIdsDocument,
    TopicDocument,
)
from barnabas_broker.metadata.store.metadata_store import ABSENT, MetadataStore, StoreUnavailable
from barnabas_broker.metadata.topic_layout import head_of, joined

ATTEMPTS_MAX: Final = 20
AT_ONCE_MAX: Final = 100
PRODUCER_IDS_MARGIN: Final = 1_000_000
"""As many may have been given out since the last was remembered."""

log = logging.getLogger(__name__)


class MetadataCopy(msgspec.Struct, frozen=True):
    """`documents` by key, as the store has them: the topics with replicas here, and what concerns all brokers."""

    written_ms: int
    documents: dict[str, msgspec.Raw]


_COPIES: Final = msgspec.json.Decoder(MetadataCopy)


def encode_copy(documents: Mapping[str, AnyDocument], written_ms: int) -> bytes:
    """As a file. It takes long for many topics: for a thread."""
    raw = {key: msgspec.Raw(encode(document)) for key, document in documents.items()}
    return msgspec.json.encode(MetadataCopy(written_ms, raw))


def newest_copy(files: Iterable[bytes]) -> dict[str, AnyDocument]:
    """The documents of the file that was written last; one that cannot be read is left out."""
    copies = [copy for each in files if (copy := _decode_copy(each)) is not None]
    newest = max(copies, key=lambda copy: copy.written_ms, default=None)
    return {} if newest is None else dict(_decode_documents(newest))


def _decode_copy(file: bytes) -> MetadataCopy | None:
    try:
        return _COPIES.decode(file)
    except msgspec.MsgspecError as error:
        log.error("what this broker remembered of the metadata cannot be read, and is not used: %s", error)
        return None


def _decode_documents(copy: MetadataCopy) -> Iterator[tuple[str, AnyDocument]]:
    for key, value in copy.documents.items():
        try:
            document = decode(key, bytes(value))
        except MalformedDocument as error:
            log.error("what this broker remembered cannot be read: %s", error)
        else:
            if document is not None:
                yield key, document


async def restore(
    remembered: Mapping[str, AnyDocument], image: MetadataImage, store: MetadataStore, broker_id: int
) -> int:
    """Brings the store up to what is remembered, and `image`, which was loaded, with it: how many documents it wrote.

    Raises StoreUnavailable.
    """
    written: set[str] = set()
    for _ in range(ATTEMPTS_MAX):
        missing = newer_documents(remembered, image, broker_id)
        if not missing:
            break
        in_order = sorted(missing, key=lambda key: key == CLUSTER_KEY)  # While that is missing, the rest may be, too.
        for begin in range(0, len(in_order), AT_ONCE_MAX):
            plans = {key: writes_of(key, missing[key], image) for key in in_order[begin : begin + AT_ONCE_MAX]}
            results = await write_in_order(plans.values(), store)
            failed = {key for key, result in results.items() if not isinstance(result, int)}
            written.update(key for key, plan in plans.items() if failed.isdisjoint(plan.keys()))
        await image_feed.load(image, store)
    else:
        raise StoreUnavailable(f"others changed the same {ATTEMPTS_MAX} times, while it was compared")
    if written:
        image.restored_total += len(written)
        log.error(
            "the metadata store lacked %d documents of those that this broker remembers, or had them older; "
            "written anew: %s",
            len(written),
            ", ".join(sorted(written)),
        )
    return len(written)


def newer_documents(
    remembered: Mapping[str, AnyDocument], image: MetadataImage, broker_id: int
) -> dict[str, AnyDocument]:
    """What the store should have in place of what it has."""
    if not _is_of_this_cluster(remembered.get(CLUSTER_KEY), image, broker_id):
        return {}
    found: dict[str, AnyDocument] = {}
    for key, document in remembered.items():
        newer = _newer(key, document, image, broker_id)
        if newer is not None:
            found[key] = newer
    return found


def _is_of_this_cluster(cluster: AnyDocument | None, image: MetadataImage, broker_id: int) -> bool:
    """Not of another one, and nobody has unregistered this broker since: then topics may have been deleted, too.

    Where the store was empty since, it knows only those brokers that have started since.
    """
    if not isinstance(cluster, ClusterDocument):
        return False
    found = image.document(CLUSTER_KEY)
    if not isinstance(found, ClusterDocument):
        return True
    was_empty = found.restored_ms != cluster.restored_ms
    return found.cluster_id == cluster.cluster_id and (was_empty or broker_id in image.brokers)


def _newer(key: str, document: AnyDocument, image: MetadataImage, broker_id: int) -> AnyDocument | None:
    match document:
        case TopicDocument():
            return _newer_topic(document, image, broker_id)
        case ProducerIdsDocument(next_producer_id=next_id) if next_id > image.next_producer_id:
            return msgspec.structs.replace(document, next_producer_id=next_id + PRODUCER_IDS_MARGIN)
        case ConfigDocument() | ClusterDocument() | FeaturesDocument() if image.version(key) == ABSENT:
            return document
    return None


def _newer_topic(remembered: TopicDocument, image: MetadataImage, broker_id: int) -> TopicDocument | None:
    found, head = image.topics.get(remembered.name), image.incomplete.get(remembered.name)
    if remembered.topic_id in image.tombstones:
        return None
    if head is not None or found is None or found.topic_id in image.tombstones:
        return _completed(remembered, head, image, broker_id)
    if found.topic_id != remembered.topic_id:
        return None
    after = compared(remembered, found, broker_id)
    return None if after is found else after


def _completed(
    remembered: TopicDocument, head: TopicDocument | None, image: MetadataImage, broker_id: int
) -> TopicDocument | None:
    """Of a topic that lacks documents: what is left of it counts as ever, only the rest is as it is remembered."""
    whole = unled(remembered, broker_id)
    if head is not None and head.topic_id != remembered.topic_id:
        return None
    found, _ = joined(head or head_of(whole), image.stored, whole)
    return None if found is None else compared(remembered, found, broker_id)


class Remembered:
    """The documents that are worth remembering, kept as the image changes; `changed` until they are taken."""

    def __init__(self, image: MetadataImage, broker_id: int) -> None:
        self._image = image
        self._broker_id = broker_id
        self._topics: dict[str, TopicDocument] = {}
        """By key."""
        self.changed = False

    def start(self) -> None:
        """Takes a loaded image, and follows its changes from now on."""
        self._see(self._image.topics.values())
        self.changed = True
        self._image.subscribe(lambda change: self._hear(change.deleted, (*change.created, *change.changed)))

    def _hear(self, gone: Iterable[TopicDocument], here: Iterable[TopicDocument]) -> None:
        for topic in gone:
            self._topics.pop(topic_key(topic.name), None)
        self._see(here)
        self.changed = True

    def _see(self, topics: Iterable[TopicDocument]) -> None:
        for topic in topics:
            if any(self._broker_id in state.replicas for state in topic.partitions):
                self._topics[topic_key(topic.name)] = topic
            else:
                self._topics.pop(topic_key(topic.name), None)

    def take(self) -> dict[str, AnyDocument]:
        """All of them, by key."""
        self.changed = False
        image = self._image
        configs = (broker_configs_key(owner) for owner in image.broker_configs)
        known = {key: image.document(key) for key in (CLUSTER_KEY, FEATURES_KEY, *configs)}
        general: dict[str, AnyDocument] = {key: document for key, document in known.items() if document is not None}
        ids = image.document(PRODUCER_IDS_KEY) or ProducerIdsDocument(0)
        general[PRODUCER_IDS_KEY] = msgspec.structs.replace(ids, next_producer_id=image.next_producer_id)
        return {**general, **self._topics}

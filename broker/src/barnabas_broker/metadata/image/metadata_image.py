"""The image of the cluster's metadata in memory, which all parts of the broker read.

`image_feed` keeps the image current. Topics with a tombstone, and brokers that were unregistered, leave the image. If
any other value in the metadata store vanishes, or goes back to an older version (as after the restoration of a backup),
the image keeps the last known state. `lost` contains this state until `restorations` has written it to the store again.
The image is used only on the event loop's thread.

The merge of topics in an older, restored copy of the metadata with the newer state that a broker knows. Every
change of a partition raises its partition epoch, so of two states the one with the higher partition epoch is newer.
Brokers that kept running know every change.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_broker.metadata.documents import (
    FEATURES_KEY,
    PARTITIONS_MAX,
    AnyDocument,
    ImageChange,
    MalformedDocument,
    Pending,
    ShownDocuments,
    changed,
    decode,
    documents_of,
    encode,
    head_of,
    joined,
    laid_out,
    part_keys,
    topic_key,
    what_to_do,
    with_part,
)
from barnabas_broker.metadata.model import (
    FIRST_LEVELS,
    SPLIT_TOPICS_LEVEL,
    AclsDocument,
    BrokerRegistration,
    ClientQuotasDocument,
    FeaturesDocument,
    GroupConfigDocument,
    LogEndsDocument,
    PartitionState,
    ProducerIdsDocument,
    TombstoneDocument,
    TopicDocument,
    TopicPartDocument,
)
from barnabas_broker.metadata.store.metadata_store import (
    ABSENT,
    Changes,
    Document,
    Listing,
    MetadataStore,
    VersionConflict,
    Write,
)
from barnabas_core.conventions import METADATA_LEVEL
from barnabas_core.loop_turns import timed


class ImageWaiters:
    """The callers that wait until a metadata image reaches a state; used only on the event loop's thread."""

    def __init__(self) -> None:
        self._for_revisions: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._for_conditions: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    async def reached(self, revision: int) -> None:
        """Wait until `wake` is called with `revision` or a later revision."""
        waiter = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._for_revisions, (revision, self._count, waiter))
        await waiter

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a call of `wake` finds `condition` true."""
        waiter = asyncio.get_running_loop().create_future()
        self._for_conditions.append((condition, waiter))
        await waiter

    def wake(self, revision: int, *, is_put_back: bool) -> None:
        """Wake the callers that wait for `revision` or an earlier one, and the callers whose condition is now true.

        `is_put_back` is True if an older copy of the store was restored. Then the revisions have gone back, so all
        callers that wait for any revision are woken.
        """
        while self._for_revisions and (is_put_back or self._for_revisions[0][0] <= revision):
            waiter = heapq.heappop(self._for_revisions)[2]
            if not waiter.done():
                waiter.set_result(None)
        for _, waiter in [each for each in self._for_conditions if not each[1].done() and each[0]()]:
            waiter.set_result(None)
        self._for_conditions = [each for each in self._for_conditions if not each[1].done()]


def with_newer_partitions(known: TopicDocument, found: TopicDocument) -> TopicDocument:
    """Return `found`, with the partitions and the configs of `known` where those of `known` are newer.

    Both arguments are states of the same topic. Return `found` itself if nothing in `known` is newer. If a newer
    partition in `known` has a lower leader epoch than the same partition in `found`, the result has a leader epoch
    above both.
    """
    if not is_older(known, found):
        return found
    pairs = zip(known.partitions, found.partitions, strict=False)
    partitions = tuple(_newer(before, now) for before, now in pairs)
    longest = max(known.partitions, found.partitions, key=len)
    return _with_newer_configs(
        known, msgspec.structs.replace(found, partitions=partitions + longest[len(partitions) :])
    )


def _with_newer_configs(known: TopicDocument, found: TopicDocument) -> TopicDocument:
    if known.configs_epoch <= found.configs_epoch:
        return found
    return msgspec.structs.replace(found, configs=known.configs, configs_epoch=known.configs_epoch)


def is_older(known: TopicDocument, found: TopicDocument) -> bool:
    """True if the state of a topic in the store (`found`) lacks a change that this broker knows (`known`)."""
    if len(found.partitions) < len(known.partitions) or found.configs_epoch < known.configs_epoch:
        return True
    pairs = zip(known.partitions, found.partitions, strict=False)
    return any(now.partition_epoch < before.partition_epoch for before, now in pairs)


def _newer(known: PartitionState, found: PartitionState) -> PartitionState:
    if found.partition_epoch >= known.partition_epoch:
        return found
    after = known
    if found.leader_epoch > after.leader_epoch:
        after = msgspec.structs.replace(after, leader_epoch=found.leader_epoch + 1)
    if found.partition_epoch >= after.partition_epoch:
        after = msgspec.structs.replace(after, partition_epoch=found.partition_epoch + 1)
    return after


NO_CONFIGS: Final[Mapping[str, str]] = {}

log = logging.getLogger(__name__)


ImageListener = Callable[[ImageChange], object]


class _Stored(msgspec.Struct):
    """The decoded value of a key in the metadata store (None if unreadable), its version, and a hash of its text."""

    document: AnyDocument | None
    version: int
    text_hash: int


class MetadataImage(ShownDocuments):
    """The image of the cluster's metadata. Readers must not change its attributes."""

    def __init__(self, document_partitions_max: int = PARTITIONS_MAX) -> None:
        self.document_partitions_max = document_partitions_max
        """The maximum number of partitions in one stored document; larger topics are split into several documents."""
        super().__init__()
        self.revision = 0
        self.topics: dict[str, TopicDocument] = {}
        self.live: frozenset[int] = frozenset()
        """The ids of the brokers that are not fenced."""
        self.deleting: dict[str, TopicDocument] = {}
        """The deleted topics, by name: they have a tombstone, but the store still has some of their metadata."""
        self.lost: dict[str, AnyDocument] = {}
        """The metadata that the store has lost and that must be written again, by key in the store.

        If part of a topic's metadata is lost, the whole topic is included.
        """
        self.incomplete: dict[str, TopicDocument] = {}
        """The topics, by name, for which neither the store nor this broker has the metadata of all partitions."""
        self.unreadable: dict[str, str] = {}
        """The reasons why values in the metadata store are unreadable, by key."""
        self.parts: dict[str, TopicPartDocument] = {}
        """The topic parts (documents with further partitions of a large topic) in the store, by key.

        Parts that no topic document refers to are included.
        """
        self.restored_total = 0
        """The number of lost metadata documents that this broker has written again."""
        self._names: dict[UUID, str] = {}
        self._stored: dict[str, _Stored] = {}
        self._listeners: list[ImageListener] = []
        self._waiters = ImageWaiters()

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._names.get(topic_id)

    @property
    def features(self) -> Mapping[str, int]:
        """The finalized levels of features, by name."""
        found = self.document(FEATURES_KEY)
        return found.levels if isinstance(found, FeaturesDocument) else FIRST_LEVELS

    @property
    def splits_topics(self) -> bool:
        """True if the metadata of a topic with many partitions may be split over several keys of the metadata store."""
        return self.features.get(METADATA_LEVEL, 0) >= SPLIT_TOPICS_LEVEL

    def version(self, key: str) -> int:
        """Return the version of the value under a key, for a compare-and-set; ABSENT if the store lacks the key."""
        stored = self._stored.get(key)
        return ABSENT if stored is None else stored.version

    def has(self, document: Document) -> bool:
        """True if the image has exactly this stored document.

        The text is compared as well as the version, because a store that was restored from a backup assigns the same
        versions again.
        """
        stored = self._stored.get(document.key)
        return stored is not None and (stored.version, stored.text_hash) == (document.version, hash(document.value))

    def document(self, key: str) -> AnyDocument | None:
        """Return the metadata object under a key; return the last known object if the store has lost the key."""
        stored = self.stored(key)
        return self.lost.get(key) if stored is None else stored

    def configs_of_broker(self, broker: str) -> Mapping[str, str]:
        """Return the dynamic configs of one broker (its id as text), or the defaults for all brokers (ALL_BROKERS)."""
        return self.broker_configs.get(broker, NO_CONFIGS)

    def registered_epoch(self, broker_id: int) -> int | None:
        """Return the broker epoch that a broker last registered with, or None if the broker is not registered."""
        found = self.brokers.get(broker_id)
        return None if found is None else found.broker_epoch

    def live_brokers(self) -> list[int]:
        """Return the ids of the brokers that are not fenced, in order."""
        return sorted(self.live)

    def subscribe(self, listener: ImageListener) -> None:
        """Call `listener` on the event loop after each change, once the image holds the change."""
        self._listeners.append(listener)

    async def reached(self, revision: int) -> None:
        """Wait until the image holds all changes up to `revision`."""
        if self.revision < revision:
            await self._waiters.reached(revision)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; the condition is checked after each change."""
        if not condition():
            await self._waiters.until(condition)

    @timed("metadata image")
    def apply_listing(self, listing: Listing) -> None:
        """Apply the whole state of the store, and pass the differences to the listeners."""
        pending = Pending()
        present = {document.key for document in listing.documents}
        for document in listing.documents:
            if not self.has(document):
                self._put(*document, pending)
        pending.change.seen_alive |= pending.change.brokers
        # Keys are removed after the tombstones in the listing were applied, because the tombstones tell whether a topic
        # that is missing in the listing was deleted or lost.
        for key in [key for key in self._stored if key not in present]:
            self._remove(key, pending)
        self._finish(listing.revision, pending)

    @timed("metadata image")
    def apply_listed(self, documents: Iterable[Document]) -> None:
        """Apply some documents of a listing of the store.

        The caller calls `apply_listing` afterwards, which removes the documents that are not in the listing.
        """
        pending = Pending()
        for key, value, version in documents:
            self._put(key, value, version, pending)
        pending.change.seen_alive |= pending.change.brokers
        self._finish(self.revision, pending)

    @timed("metadata image")
    def apply_changes(self, changes: Changes) -> None:
        """Apply the next changes of the watch."""
        pending = Pending()
        for change in changes.changes:
            if change.value is None:
                self._remove(change.key, pending)
            else:
                self._put(change.key, change.value, change.revision, pending)
        self._finish(changes.revision, pending)

    def vanished(self, key: str) -> None:
        """Remove a document that is missing in the store, although the watch has not reported a deletion."""
        pending = Pending()
        self._remove(key, pending)
        self._finish(self.revision, pending)

    def wrote(self, document: AnyDocument | None) -> None:
        """Mark a topic as lost if the image has an older state of the topic than this broker has just written.

        The caller waits until the image has caught up with the write, so an older state means that an older copy of the
        store was restored.
        """
        if isinstance(document, TopicPartDocument) and document.name in self.topics:
            topic, end = self.topics[document.name], document.first + len(document.partitions)
            if topic.partitions[document.first : end] == document.partitions:  # The image shows the write.
                return
            document = with_part(topic, document)
        if not isinstance(document, TopicDocument):
            return
        known = self.topics.get(document.name, self.incomplete.get(document.name))
        if known is None or known.topic_id != document.topic_id or not is_older(document, known):
            return
        pending = Pending(ImageChange(lost=True))
        self.lost[topic_key(document.name)] = newest = with_newer_partitions(document, known)
        self._show_topic(newest, pending)
        self._finish(self.revision, pending)

    def stored(self, key: str) -> AnyDocument | None:
        """Return the document that the store has under `key`, or None if there is none or it is unreadable."""
        found = self._stored.get(key)
        return None if found is None else found.document

    def _put(self, key: str, value: bytes, version: int, pending: Pending) -> None:
        try:
            document = decode(key, value)
        except MalformedDocument as error:
            self._put_unreadable(key, _Stored(None, version, hash(value)), str(error), pending)
            return
        if document is None:
            return
        self.unreadable.pop(key, None)
        if isinstance(document, TopicDocument | TopicPartDocument):
            self._touch(key, document.name, pending)
        self._stored[key] = _Stored(document, version, hash(value))
        if isinstance(document, TopicPartDocument):
            self.parts[key] = document
        if isinstance(document, TopicDocument | TopicPartDocument):
            return
        self.lost.pop(key, None)
        pending.change.quotas |= isinstance(document, ClientQuotasDocument)
        if isinstance(document, ProducerIdsDocument) and document.next_producer_id < self.next_producer_id:
            document = msgspec.structs.replace(document, next_producer_id=self.next_producer_id)
            self.lost[key] = document
            pending.change.lost = True
        self.show(key, document, pending)

    def _put_unreadable(self, key: str, stored: _Stored, why: str, pending: Pending) -> None:
        """Treat an unreadable document as lost, so that a broker writes the last known content again."""
        log.error(
            "a value in the metadata store cannot be read: %s; if a running broker knows the value, the broker writes "
            "the value again; otherwise %s",
            why,
            what_to_do(key),
        )
        self._remove(key, pending)
        self._stored[key], self.unreadable[key] = stored, why

    def _touch(self, key: str, name: str, pending: Pending) -> None:
        if key in pending.touched_keys:
            self._observe_topics(pending)
        pending.touched_keys.add(key)
        pending.touched[name] = None

    def _observe_topics(self, pending: Pending) -> None:
        """Update the topics whose stored metadata or tombstone has changed since the last call."""
        touched, pending.touched, pending.touched_keys = pending.touched, {}, set()
        for name in touched:
            head = self.stored(topic_key(name))
            if isinstance(head, TopicDocument):
                self._observe_head(head, pending)
            else:
                self._observe_absence(name, pending)

    def _observe_head(self, head: TopicDocument, pending: Pending) -> None:
        key, before = topic_key(head.name), self.topics.get(head.name)
        self.lost.pop(key, None)
        self.incomplete.pop(head.name, None)
        if head.topic_id in self.tombstones:
            self._observe_deleting(head, before, pending)
            return
        known = before if before is not None and before.topic_id == head.topic_id else None
        found, is_complete = joined(head, self.stored, known)
        if found is None:
            log.error(
                "the metadata of some partitions of topic %s is missing: brokers do not serve the topic until "
                "`barnabas restore-metadata` is run",
                head.name,
            )
            self.incomplete[head.name] = head
            return
        newest = found if known is None else with_newer_partitions(known, found)
        if newest is not found or not is_complete:
            self.lost[key], pending.change.lost = newest, True
        self._show_topic(newest, pending)

    def _observe_deleting(self, head: TopicDocument, before: TopicDocument | None, pending: Pending) -> None:
        """Hide a deleted topic, unless an older backup has put it back in place of a later topic of the same name."""
        if before is not None and before.topic_id not in self.tombstones:
            self.lost[topic_key(head.name)], pending.change.lost = before, True
            return
        self._hide_topic(head.name, pending)
        self.deleting[head.name] = head

    def _observe_absence(self, name: str, pending: Pending) -> None:
        """Remove a topic whose topic document is missing if there is a tombstone; otherwise mark the topic as lost."""
        self.incomplete.pop(name, None)
        self.deleting.pop(name, None)
        known = self.topics.get(name)
        if known is None:
            return
        if known.topic_id in self.tombstones:
            self.lost.pop(topic_key(name), None)
            self._hide_topic(name, pending)
        else:
            found, _ = joined(head_of(known), self.stored, known)
            newest = known if found is None else with_newer_partitions(known, found)
            self.lost[topic_key(name)], pending.change.lost = newest, True
            if newest != known:
                self._show_topic(newest, pending)

    def _show_topic(self, document: TopicDocument, pending: Pending) -> None:
        previous = self.topics.get(document.name)
        if previous is not None:
            self._names.pop(previous.topic_id, None)
        pending.topics.setdefault(document.name, previous)
        self.deleting.pop(document.name, None)
        self.incomplete.pop(document.name, None)
        self.topics[document.name] = document
        self._names[document.topic_id] = document.name

    def _hide_topic(self, name: str, pending: Pending) -> None:
        previous = self.topics.pop(name, None)
        pending.topics.setdefault(name, previous)
        if previous is not None:
            self._names.pop(previous.topic_id, None)

    def _remove(self, key: str, pending: Pending) -> None:
        document = self.stored(key)
        self.unreadable.pop(key, None)
        if document is None:
            self._stored.pop(key, None)
            return
        if isinstance(document, TopicDocument | TopicPartDocument):
            self._touch(key, document.name, pending)
        self._stored.pop(key)
        self.log_ends.pop(key, None)
        self.parts.pop(key, None)
        if isinstance(document, TopicDocument | TopicPartDocument):
            return
        if isinstance(document, TombstoneDocument):
            # Update the topics before the tombstone is removed: the tombstone proves that its topic was deleted.
            self._observe_topics(pending)
        if self._is_deleted(document):
            self.lost.pop(key, None)
            self.hide(key, document, pending)
        else:
            self.lost.setdefault(key, document)
            pending.change.lost = True

    def _is_deleted(self, document: AnyDocument) -> bool:
        """True if a document that is missing in the store was deleted on purpose, False if the document was lost."""
        if isinstance(document, BrokerRegistration):
            return document.is_unregistered
        if isinstance(document, AclsDocument):
            return not document.acls
        if isinstance(document, GroupConfigDocument):
            return not document.configs
        if isinstance(document, TombstoneDocument):
            # A topic's tombstone is deleted after the topic's other metadata; if that remains, the tombstone was lost.
            head = self.stored(topic_key(document.name))
            return not isinstance(head, TopicDocument) or head.topic_id != document.topic_id
        # Missing log ends need no restoration, because their broker writes them again.
        return isinstance(document, LogEndsDocument)

    def _finish(self, revision: int, pending: Pending) -> None:
        self._observe_topics(pending)
        is_put_back, self.revision = revision < self.revision, revision
        if pending.change.brokers:
            self.live = frozenset(broker for broker, found in self.brokers.items() if not found.fenced)
        change = pending.finished(self.topics)
        if change != ImageChange():
            for listener in self._listeners:
                listener(change)
        self._waiters.wake(revision, is_put_back=is_put_back)


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
        deleting = image.deleting.get(key.removeprefix(topic_key("")))
        keys += [part for part in part_keys(deleting) if part in image.parts] if deleting is not None else []
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

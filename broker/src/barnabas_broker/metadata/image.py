"""The cluster's metadata in memory: what a broker reads, always current up to `revision`.

It holds what the store holds; `image_feed` keeps it so. What somebody deletes goes: a topic with a tombstone, a broker
that was unregistered. What vanishes otherwise, or is put back to an older state, stays as it was known, and is `lost`
until somebody has written it anew (`restorations`). Everything here runs on the event loop's thread.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from barnabas_broker.metadata.decisions.restoration import is_older, with_newer_partitions
from barnabas_broker.metadata.documents import (
    ALL_BROKERS,
    FEATURES_KEY,
    AnyDocument,
    MalformedDocument,
    broker_configs_key,
    decode,
    topic_key,
)
from barnabas_broker.metadata.features import FIRST_LEVELS
from barnabas_broker.metadata.model import (
    BrokerRegistration,
    ClusterDocument,
    ConfigDocument,
    ControllerDocument,
    FeaturesDocument,
    LogEndsDocument,
    ProducerIdsDocument,
    TombstoneDocument,
    TopicDocument,
)
from barnabas_broker.metadata.store import ABSENT, Changes, Listing
from barnabas_core.loop_turns import timed

NO_CONTROLLER: Final = -1
NO_CONFIGS: Final[Mapping[str, str]] = {}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ImageChange:
    """What became different. A topic that was deleted and made again is in both `deleted` and `created`."""

    created: tuple[TopicDocument, ...] = ()
    changed: tuple[TopicDocument, ...] = ()
    deleted: tuple[TopicDocument, ...] = ()
    brokers: frozenset[int] = frozenset()
    configs: frozenset[str] = frozenset()
    """Brokers, as text, whose dynamic configs changed; "" stands for those of all brokers."""
    controller: bool = False
    """Another broker is the controller, or the same one anew."""
    buried: frozenset[UUID] = frozenset()
    """Ids of topics whose tombstones came."""
    lost: bool = False
    """Something has to be written anew."""


Listener = Callable[[ImageChange], object]


@dataclass(slots=True)
class _Stored:
    """A document as it is in the store, for compare-and-set."""

    document: AnyDocument
    version: int


@dataclass(slots=True)
class _Pending:
    """What a batch of changes touched, with what was there before."""

    topics: dict[str, TopicDocument | None] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)
    configs: set[str] = field(default_factory=set)
    controller: bool = False
    buried: set[UUID] = field(default_factory=set)
    lost: bool = False


class MetadataImage:
    """Read `topics`, `brokers` and the rest freely; they are replaced by nobody but the feed, between two turns."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self.revision = 0
        self.topics: dict[str, TopicDocument] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.live: frozenset[int] = frozenset()
        """Brokers that are not fenced."""
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        self.tombstones: dict[UUID, TombstoneDocument] = {}
        self.buried: dict[str, TopicDocument] = {}
        """By name, topics that have a tombstone and whose documents are still in the store. They are nowhere else."""
        self.next_producer_id = 0
        """The highest that was ever known."""
        self.lost: dict[str, AnyDocument] = {}
        """By key, what is to be written anew."""
        self.restored_total = 0
        """Documents that this broker wrote anew."""
        self.log_ends: dict[str, LogEndsDocument] = {}
        """By key; `log_ends.find` looks into them. Nobody is told of their changes."""
        self._names: dict[UUID, str] = {}
        self._stored: dict[str, _Stored] = {}
        self._listeners: list[Listener] = []
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiter_count = 0
        self._conditions: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of the topic with this id."""
        return self._names.get(topic_id)

    @property
    def features(self) -> Mapping[str, int]:
        """Levels of features that are finalized, by name."""
        stored = self._stored.get(FEATURES_KEY)
        found = None if stored is None else stored.document
        return found.levels if isinstance(found, FeaturesDocument) else FIRST_LEVELS

    def version(self, key: str) -> int:
        """The version of a document, to expect when writing it; ABSENT where there is none."""
        stored = self._stored.get(key)
        return ABSENT if stored is None else stored.version

    def document(self, key: str) -> AnyDocument | None:
        """As the store has it, or had it before it vanished."""
        stored = self._stored.get(key)
        return self.lost.get(key) if stored is None else stored.document

    def configs_of_broker(self, broker: str) -> Mapping[str, str]:
        """The dynamic configs of a broker id, or of all brokers (ALL_BROKERS)."""
        return self.broker_configs.get(broker, NO_CONFIGS)

    def registered_epoch(self, broker_id: int) -> int | None:
        """The broker epoch of the life of a broker that registered last; None where it is not registered."""
        found = self.brokers.get(broker_id)
        return None if found is None else found.broker_epoch

    def live_brokers(self) -> list[int]:
        """Brokers that are not fenced, in order."""
        return sorted(self.live)

    def subscribe(self, listener: Listener) -> None:
        """Calls `listener` after each change, on the loop, once the image holds it."""
        self._listeners.append(listener)

    async def reached(self, revision: int) -> None:
        """Returns when the image holds everything up to `revision`."""
        if self.revision >= revision:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiter_count += 1
        heapq.heappush(self._waiters, (revision, self._waiter_count, waiter))
        await waiter

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when the image is such that `condition` holds; it is asked after each change."""
        if condition():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._conditions.append((condition, waiter))
        await waiter

    @timed("metadata image")
    def apply_listing(self, listing: Listing) -> None:
        """Takes over the whole state of the store; listeners hear of the differences."""
        pending = _Pending()
        present = {document.key for document in listing.documents}
        for key, value, version in listing.documents:
            if self.version(key) != version:
                self._put(key, value, version, pending)
        for key in [key for key in self._stored if key not in present]:  # The tombstones are known by now.
            self._remove(key, pending)
        self._finish(listing.revision, pending)

    @timed("metadata image")
    def apply_changes(self, changes: Changes) -> None:
        """Takes over the next changes."""
        pending = _Pending()
        for change in changes.changes:
            if change.value is None:
                self._remove(change.key, pending)
            else:
                self._put(change.key, change.value, change.revision, pending)
        self._finish(changes.revision, pending)

    def vanished(self, key: str) -> None:
        """The store has no such document any more, though no watch has told so: its file was edited by hand."""
        pending = _Pending()
        self._remove(key, pending)
        self._finish(self.revision, pending)

    def wrote(self, key: str, document: AnyDocument | None) -> None:
        """This broker has written it, and the image has caught up; a listing lacks it where it has vanished since."""
        if not isinstance(document, TopicDocument):
            return
        known = self.topics.get(document.name)
        if known is None or known.topic_id != document.topic_id or not is_older(document, known):
            return
        pending = _Pending(lost=True)
        self.lost[key] = newest = with_newer_partitions(document, known)
        self._show(key, newest, pending)
        self._finish(self.revision, pending)

    def _put(self, key: str, value: bytes, version: int, pending: _Pending) -> None:
        try:
            document = decode(key, value)
        except MalformedDocument as error:
            log.error("the metadata store holds a document that cannot be read; what was there before stays: %s", error)
            return
        if document is None:
            return
        self.lost.pop(key, None)
        self._stored[key] = _Stored(document, version)
        newest = self._newest(document)
        if newest is not document:
            self.lost[key], pending.lost = newest, True
        self._show(key, newest, pending)

    def _newest(self, document: AnyDocument) -> AnyDocument:
        """`document`, or what is known better."""
        match document:
            case TopicDocument(name=name, topic_id=topic_id):
                known = self.topics.get(name)
                is_known = known is not None and known.topic_id == topic_id
                return with_newer_partitions(known, document) if is_known and known is not None else document
            case ProducerIdsDocument(next_producer_id=found) if found < self.next_producer_id:
                return ProducerIdsDocument(self.next_producer_id)
        return document

    def _show(self, key: str, document: AnyDocument, pending: _Pending) -> None:
        match document:
            case TopicDocument():
                self._show_topic(document, pending)
            case BrokerRegistration():
                self.brokers[document.broker_id] = document
                pending.brokers.add(document.broker_id)
            case LogEndsDocument():
                self.log_ends[key] = document
            case ConfigDocument():
                self.broker_configs[_config_owner(key)] = document.configs
                pending.configs.add(_config_owner(key))
            case ClusterDocument():
                self.cluster_id = document.cluster_id
            case ControllerDocument():
                self.controller_id, self.controller_epoch = document.broker_id, document.epoch
                pending.controller = True
            case ProducerIdsDocument():
                self.next_producer_id = document.next_producer_id
            case TombstoneDocument():
                self.tombstones[document.topic_id] = document
                pending.buried.add(document.topic_id)
                self._bury(document, pending)

    def _show_topic(self, document: TopicDocument, pending: _Pending) -> None:
        previous = self.topics.get(document.name)
        if previous is not None:
            pending.topics.setdefault(document.name, previous)
            self._names.pop(previous.topic_id, None)
        if document.topic_id in self.tombstones:
            self.buried[document.name] = document
            self.topics.pop(document.name, None)
            return
        pending.topics.setdefault(document.name, previous)
        self.buried.pop(document.name, None)
        self.topics[document.name] = document
        self._names[document.topic_id] = document.name

    def _bury(self, tombstone: TombstoneDocument, pending: _Pending) -> None:
        """The topic is gone from now on, whether its document has vanished before or goes next."""
        key, known = topic_key(tombstone.name), self.topics.get(tombstone.name)
        if known is None or known.topic_id != tombstone.topic_id:
            return
        self.lost.pop(key, None)
        self._hide(known, pending)
        if key in self._stored:
            self.buried[known.name] = known

    def _remove(self, key: str, pending: _Pending) -> None:
        stored = self._stored.pop(key, None)
        self.log_ends.pop(key, None)
        if stored is None:
            return
        if self._is_deleted(stored.document):
            self.lost.pop(key, None)
            self._hide(stored.document, pending)
        else:
            self.lost.setdefault(key, stored.document)
            pending.lost = True

    def _is_deleted(self, document: AnyDocument) -> bool:
        """Whether somebody has said so."""
        match document:
            case TopicDocument(topic_id=topic_id):
                return topic_id in self.tombstones
            case BrokerRegistration(is_unregistered=is_unregistered):
                return is_unregistered
        return isinstance(document, TombstoneDocument | LogEndsDocument)  # Its broker writes the latter again.

    def _hide(self, document: AnyDocument, pending: _Pending) -> None:
        match document:
            case TopicDocument(name=name, topic_id=topic_id):
                self.buried.pop(name, None)
                pending.topics.setdefault(name, self.topics.pop(name, None))
                self._names.pop(topic_id, None)
            case BrokerRegistration(broker_id=broker_id):
                self.brokers.pop(broker_id, None)
                pending.brokers.add(broker_id)
            case TombstoneDocument(topic_id=topic_id):
                self.tombstones.pop(topic_id, None)

    def _finish(self, revision: int, pending: _Pending) -> None:
        is_put_back, self.revision = revision < self.revision, revision
        if pending.brokers:
            self.live = frozenset(broker for broker, found in self.brokers.items() if not found.fenced)
        change = self._difference(pending)
        if change != ImageChange():
            for listener in self._listeners:
                listener(change)
        while self._waiters and (is_put_back or self._waiters[0][0] <= revision):
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)
        for _, waiter in [each for each in self._conditions if not each[1].done() and each[0]()]:
            waiter.set_result(None)
        self._conditions = [each for each in self._conditions if not each[1].done()]

    def _difference(self, pending: _Pending) -> ImageChange:
        pairs = [(before, self.topics.get(name)) for name, before in pending.topics.items()]
        return ImageChange(
            created=tuple(now for before, now in pairs if now is not None and not _same_topic(before, now)),
            changed=tuple(now for before, now in pairs if now is not None and _same_topic(before, now)),
            deleted=tuple(was for was, now in pairs if was is not None and not _same_topic(was, now)),
            brokers=frozenset(pending.brokers),
            configs=frozenset(pending.configs),
            controller=pending.controller,
            buried=frozenset(pending.buried),
            lost=pending.lost,
        )


def _same_topic(before: TopicDocument | None, now: TopicDocument | None) -> bool:
    return before is not None and now is not None and before.topic_id == now.topic_id


def _config_owner(key: str) -> str:
    return ALL_BROKERS if key == broker_configs_key(ALL_BROKERS) else key.partition("/")[2]

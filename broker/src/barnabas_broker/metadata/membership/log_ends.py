"""The log end offsets that brokers report, from which a leader can be chosen after every replica has lost records.

A broker reports its log ends at each start before it is unfenced, every few minutes, and at a clean shutdown.

The check whether the metadata of a partition was written after a broker was fenced or began to shut down. If so,
the next writer of the partition's metadata knows of the fencing or the shutdown. The metadata is changed by
compare-and-set, so a writer must have seen the latest state of the partition and all metadata that was written
before that state.

The stray topics: topics with logs on brokers, but with neither metadata nor a tombstone in the metadata store.
Brokers do not serve a stray topic, and no new topic can have its name. `barnabas restore-metadata` restores the
metadata of the topic from the logs; `barnabas forget-topic` writes a tombstone. A broker lists its stray topics in
its LogEndsDocuments.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from barnabas_broker.metadata.documents import (
    ImageChange,
    broker_key,
    encode,
    key_of,
    log_ends_key,
    log_ends_owner,
    topic_key,
)
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER, BrokerRegistration, LogEnd, LogEndsDocument, TopicDocument
from barnabas_broker.metadata.store.metadata_store import MetadataStore, Write
from barnabas_broker.storage.log_dirs.log_dir import Kept
from barnabas_core import kafka_uuid
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import REPORTED_LOGS

PARTS: Final = 32
"""The number of values in the metadata store over which the log ends of a broker are split.

With 30,000 partitions, each value stays below 100 kB.
"""
PARTITIONS_TOGETHER: Final = 500
"""The number of consecutive partitions of a topic whose log ends are stored in the same value."""
NO_LOG: Final = -1
"""The offset that a broker reports if the broker no longer has the log."""

_ENDS: Final = msgspec.json.Decoder(tuple[LogEnd, ...])
_ENCODER: Final = msgspec.json.Encoder()

Thing = TypeVar("Thing")


class HeldLog(NamedTuple):
    """A log of a broker with its current end.

    `kept` says whether the log still has all acknowledged records, all synced records, or only some records.
    """

    topic: str
    topic_id: UUID
    partition: int
    epoch: int
    offset: int
    kept: Kept


def lacks_records(held: HeldLog, reported: LogEnd | None) -> bool:
    """True if a log may lack acknowledged records when the broker starts.

    A log that acknowledged only synced records lacks records only if its disk was replaced by an older copy. The log
    then ends below `reported`, the log end that was reported earlier.
    """
    known_end = reported.known if reported is not None else 0
    return held.kept is Kept.SOME or (held.kept is Kept.SYNCED and held.offset < known_end)


def part_of(topic_id: UUID, partition: int) -> int:
    """Return the number of the stored value that contains a partition's log end.

    The log ends of a broker are split over PARTS values in the metadata store, with the numbers 0 to PARTS - 1.
    """
    return (topic_id.int + partition // PARTITIONS_TOGETHER) % PARTS


class KnownEnds:
    """The log end offsets that all brokers have reported, from the current metadata image.

    The log ends of a topic in a LogEndsDocument are decoded only once.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._decoded: dict[tuple[str, UUID], Mapping[int, LogEnd]] = {}

    def find(self, broker_id: int, topic_id: UUID, partition: int) -> LogEnd | None:
        """Return the log end that a broker has reported for a partition, or None if there is no such report."""
        key = log_ends_key(broker_id, part_of(topic_id, partition))
        if (key, topic_id) not in self._decoded:
            self._decoded[key, topic_id] = _entries(self._image.log_ends.get(key), topic_id)
        return self._decoded[key, topic_id].get(partition)

    def of_replicas(self, topic_id: UUID, partition: int, replicas: Iterable[int]) -> dict[int, LogEnd]:
        """Return the reported log ends of these replicas, without replicas that have not reported."""
        found = {broker_id: self.find(broker_id, topic_id, partition) for broker_id in replicas}
        return {broker_id: end for broker_id, end in found.items() if end is not None}

    def latest_epoch(self, topic_id: UUID, partition: int, replicas: Iterable[int]) -> int:
        """Return the latest leader epoch of the logs that these replicas have ever reported, or -1."""
        return max((end.epoch for end in self.of_replicas(topic_id, partition, replicas).values()), default=-1)

    def of_incarnations(self, topic_id: UUID, partition: int, replicas: Iterable[int]) -> dict[int, LogEnd]:
        """Return the log ends that these replicas have reported with their current broker epochs."""
        registered = self._image.brokers
        found = {
            each: self._of_incarnation(registered[each], topic_id, partition) for each in replicas if each in registered
        }
        return {broker_id: end for broker_id, end in found.items() if end is not None}

    def _of_incarnation(self, registration: BrokerRegistration, topic_id: UUID, partition: int) -> LogEnd | None:
        key = log_ends_key(registration.broker_id, part_of(topic_id, partition))
        document = self._image.log_ends.get(key)
        if document is None or document.broker_epoch != registration.broker_epoch:
            return None
        return self.find(registration.broker_id, topic_id, partition)

    def lost_by_a_start(self, registration: BrokerRegistration, topic_id: UUID, partition: int) -> bool:
        """True if a broker may have lost records of a partition at its last start (`incarnations.may_lack_records`).

        A log that the broker did not find at the start counts as lost, unless a log directory was unavailable: the log
        may be in this directory.
        """
        if not registration.may_lack_records:
            return False
        entry = self._of_incarnation(registration, topic_id, partition)
        is_gone = entry is None or entry.offset == NO_LOG
        return not registration.dirs_away if is_gone or entry is None else entry.lacks


def _entries(document: LogEndsDocument | None, topic_id: UUID) -> Mapping[int, LogEnd]:
    raw = document.topics.get(topic_id) if document is not None else None
    return {} if raw is None else {each.partition: each for each in _decoded(raw)}


def _decoded(raw: msgspec.Raw) -> tuple[LogEnd, ...]:
    """Return the decoded log ends, or none if the JSON is unreadable; the broker with the logs writes them again."""
    try:
        return _ENDS.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def reported_ends(image: MetadataImage) -> dict[UUID, dict[int, dict[int, LogEnd]]]:
    """Return the log ends that registered brokers have reported, by topic id, partition and broker id.

    Entries that report a missing log (NO_LOG) are left out.
    """
    found: dict[UUID, dict[int, dict[int, LogEnd]]] = {}
    for key, document in image.log_ends.items():
        broker_id = log_ends_owner(key)
        for topic_id in document.topics if broker_id in image.brokers else ():
            for end in _entries(document, topic_id).values():
                if end.offset != NO_LOG:
                    found.setdefault(topic_id, {}).setdefault(end.partition, {})[broker_id] = end
    return found


class LogEnds:
    """The writer of one broker's log end offsets to the metadata store.

    `logs` returns the logs of the broker, and `pause` lets other tasks run.
    """

    def __init__(
        self,
        broker_id: int,
        store: MetadataStore,
        image: MetadataImage,
        logs: Callable[[], Iterable[HeldLog]],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._image = image
        self._logs = logs
        self._pause = pause
        self._broker_epoch = -1
        self._lacking: set[tuple[UUID, int]] = set()
        """The partitions whose logs lacked records when this broker started, until the metadata shows the losses."""
        self._unknown_topics: dict[UUID, str] = {}
        """The topics with logs but without metadata, by id, including topics whose log directory has gone offline."""
        self._turns = asyncio.Lock()

    async def begin_incarnation(self, broker_epoch: int, *, undealt_epoch: int | None) -> None:
        """Report the log ends, and which logs lack records, before the broker registers. Raises StoreUnavailable.

        `undealt_epoch` is the broker epoch of the previous incarnation if that incarnation lost records and the
        controller has not yet processed the loss; otherwise None.
        """
        if self._broker_epoch < 0:
            known = KnownEnds(self._image)
            self._lacking = {
                (each.topic_id, each.partition)
                async for each in self._in_turns(self._logs())
                if lacks_records(each, known.find(self._broker_id, each.topic_id, each.partition))
                or (undealt_epoch is not None and self._lacked(known, each, undealt_epoch))
            }
        self._broker_epoch = broker_epoch
        await self._report(starts=True)

    def _lacked(self, known: KnownEnds, held: HeldLog, undealt_epoch: int) -> bool:
        """True if an earlier incarnation reported that a log lacks records and the metadata does not show the loss.

        `undealt_epoch` is the broker epoch of the broker's last registration, which says that records may be lost. A
        report with a later broker epoch counts, too, because a broker process may report its logs and die before it
        registers.
        """
        document = self._image.log_ends.get(log_ends_key(self._broker_id, part_of(held.topic_id, held.partition)))
        if document is None or document.broker_epoch < undealt_epoch:
            return False
        entry = known.find(self._broker_id, held.topic_id, held.partition)
        return entry is None or entry.lacks

    def admitted(self) -> None:
        """Forget the losses that were found when this broker started, because the metadata shows them now."""
        self._lacking.clear()

    async def report(self) -> None:
        """Write the log ends that differ from the stored ones. Raises StoreUnavailable.

        Does nothing before `begin_incarnation`.
        """
        if self._broker_epoch >= 0:
            await self._report(starts=False)

    async def _report(self, *, starts: bool) -> None:
        async with self._turns:
            parts = await self._collected(starts=starts)
            writes: list[Write] = []
            for part in range(PARTS):
                await self._pause()
                news = self._news(part, parts.get(part, {}))
                writes += [] if news is None else [news]
            if writes:
                await self._store.write(writes)

    def _news(self, part: int, topics: Mapping[UUID, list[LogEnd]]) -> Write | None:
        """Return the write of part `part` of this broker's log ends, or None if the stored part is the same."""
        key = log_ends_key(self._broker_id, part)
        known = self._image.log_ends.get(key)
        unknown = {each: name for each, name in self._unknown_topics.items() if part_of(each, 0) == part}
        for ends in topics.values():
            ends.sort(key=attrgetter("partition"))
        if known is None and not topics and not unknown:
            return None
        if (
            known is not None
            and known.broker_epoch == self._broker_epoch
            and (known.topics.keys(), known.unknown_topics) == (topics.keys(), unknown)
            and all(_decoded(known.topics[each]) == tuple(ends) for each, ends in topics.items())
        ):
            return None
        encoded = {topic_id: msgspec.Raw(_ENCODER.encode(ends)) for topic_id, ends in topics.items()}
        document = LogEndsDocument(self._broker_epoch, encoded, unknown)
        return Write(key, encode(document) if topics or unknown else None)

    async def _collected(self, *, starts: bool) -> dict[int, dict[UUID, list[LogEnd]]]:
        """Return unsorted lists of log ends, by the part that stores them (see `part_of`) and by topic id."""
        known = KnownEnds(self._image)
        found: dict[tuple[UUID, int], LogEnd] = {}
        async for topic in self._in_turns(list(self._image.topics.values())):
            found |= {(topic.topic_id, end.partition): end for end in self._not_found_again(topic, known)}
        self._unknown_topics = {each: name for each, name in self._unknown_topics.items() if self._is_unknown(each)}
        async for held in self._in_turns(self._logs()):
            if self._is_unknown(held.topic_id):
                self._unknown_topics[held.topic_id] = held.topic
            known_end = held.offset
            if starts or not self._is_in_sync(held):
                earlier = known.find(self._broker_id, held.topic_id, held.partition)
                known_end = max(known_end, earlier.known if earlier is not None else 0)
            where = held.topic_id, held.partition
            found[where] = LogEnd(held.partition, held.epoch, held.offset, known_end, where in self._lacking)
        parts: dict[int, dict[UUID, list[LogEnd]]] = {}
        async for (topic_id, partition), end in self._in_turns(found.items()):
            parts.setdefault(part_of(topic_id, partition), {}).setdefault(topic_id, []).append(end)
        return parts

    def _is_unknown(self, topic_id: UUID) -> bool:
        return self._image.topic_name(topic_id) is None and topic_id not in self._image.tombstones

    async def _in_turns(self, things: Iterable[Thing]) -> AsyncIterator[Thing]:
        """Yield the items, with pauses in which other tasks run."""
        for number, thing in enumerate(things):
            if number % REPORTED_LOGS == REPORTED_LOGS - 1:
                await self._pause()
            yield thing

    def _not_found_again(self, topic: TopicDocument, known: KnownEnds) -> Iterator[LogEnd]:
        """Yield a report of a missing log (NO_LOG) for each partition that this broker has reported earlier.

        The caller replaces the report if the log still exists.
        """
        for number, state in enumerate(topic.partitions):
            end = known.find(self._broker_id, topic.topic_id, number) if self._broker_id in state.replicas else None
            if end is not None:
                yield LogEnd(number, -1, NO_LOG, end.known)

    def _is_in_sync(self, held: HeldLog) -> bool:
        topic = self._image.topics.get(held.topic)
        if topic is None or topic.topic_id != held.topic_id or held.partition >= len(topic.partitions):
            return False
        state = topic.partitions[held.partition]
        return state.leader != NO_LEADER and self._broker_id in state.isr


class PastIncarnations:
    """The brokers that are fenced or shutting down, each with the metadata revision at which this began.

    The brokers are tracked from the call of `start` on.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._out_since: dict[int, int] = {}
        """The revision at which a broker was fenced or began to shut down, by broker id."""

    def start(self) -> None:
        """Begin to listen to changes of the metadata image."""
        self._see(ImageChange(brokers=set(self._image.brokers)))
        self._image.subscribe(self._see)

    def _see(self, change: ImageChange) -> None:
        for broker_id in change.brokers:
            found = self._image.brokers.get(broker_id)
            if found is not None and (found.fenced or found.is_shutting_down):
                version = self._image.version(broker_key(broker_id)) or self._image.revision
                if broker_id in change.seen_alive:
                    self._out_since.pop(broker_id, None)
                self._out_since.setdefault(broker_id, version)
            else:
                self._out_since.pop(broker_id, None)

    def is_past(self, broker_id: int, topic: TopicDocument, partition: int) -> bool:
        """True if the metadata of the partition was written after the broker was last fenced or began to shut down.

        The result is False if the broker is alive, or if the topic document is lost. In the second case, the store may
        be a restored older copy, whose versions cannot be compared with earlier versions.
        """
        since = self._out_since.get(broker_id)
        if since is None or topic_key(topic.name) in self._image.lost:
            return False
        return self._image.version(key_of(topic, partition)) > since


class StrayTopic(NamedTuple):
    """A topic without metadata, and the brokers that have reported logs of the topic."""

    name: str
    topic_id: UUID
    brokers: tuple[int, ...]


def stray_topics(image: MetadataImage) -> list[StrayTopic]:
    """Return all stray topics, sorted by name."""
    brokers: dict[tuple[str, UUID], set[int]] = {}
    for key, document in image.log_ends.items():
        for topic_id, name in document.unknown_topics.items():
            if image.topic_name(topic_id) is None and topic_id not in image.tombstones:
                brokers.setdefault((name, topic_id), set()).add(log_ends_owner(key))
    return [StrayTopic(name, topic_id, tuple(sorted(of))) for (name, topic_id), of in sorted(brokers.items())]


def refusals(image: MetadataImage, names: Collection[str]) -> dict[str, TopicDocument | ApiError]:
    """Return an error for each name in `names` that belongs to a topic with lost or unreadable metadata."""
    found: dict[str, TopicDocument | ApiError] = {
        each.name: _logs_are_kept(each) for each in stray_topics(image) if each.name in names
    }
    incomplete = [name for name in names if name in image.incomplete or topic_key(name) in image.unreadable]
    return found | {name: _is_incomplete(name, image) for name in incomplete}


def _logs_are_kept(stray: StrayTopic) -> ApiError:
    topic_id, brokers = kafka_uuid.to_text(stray.topic_id), ", ".join(map(str, stray.brokers))
    message = (
        f"Topic '{stray.name}' has lost its metadata; brokers {brokers} keep its logs (topic id {topic_id}): "
        f"`barnabas restore-metadata` restores the topic, `barnabas forget-topic {topic_id}` deletes the logs."
    )
    return ApiError(ErrorCode.POLICY_VIOLATION, message)


def _is_incomplete(name: str, image: MetadataImage) -> ApiError:
    """Return the error for the name of a topic whose stored metadata is partly missing or unreadable."""
    unreadable = image.unreadable.get(topic_key(name))
    why = f"cannot be read ({unreadable})" if unreadable else "is incomplete in the metadata store"
    message = (
        f"Topic '{name}' exists, but its metadata {why}: `barnabas restore-metadata` restores the topic from the "
        f"logs, `barnabas forget-topic {name}` deletes the topic."
    )
    return ApiError(ErrorCode.POLICY_VIOLATION, message)

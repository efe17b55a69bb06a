"""Dead letters (KIP-1191): which topic takes them, and what they contain.

A dead letter has six headers that name its record, then the headers of the record itself, which Apache Kafka 4.4 drops.
Key, value and headers of the record are copied only if the group's setting says so.

A record stays archiving until its dead letter is committed, or can never be written. One task for each share partition
writes them in order. A passing error is tried again for as long as this broker
leads, with pauses of 1 s to 30 s. Before it writes for records that an earlier leader has left, and after each error,
the task looks in the partition for dead letters, so that one failover writes none twice.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.runtime.peer_requests import Exchange, LinkEnvironment, PeerRequests
from barnabas_broker.coordinators.share_delivery.led_partition import LedPartition, Life
from barnabas_broker.coordinators.share_delivery.reading import READ_BYTES_MAX, read_batches
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.logs.offset_lookup import offset_for_timestamp
from barnabas_broker.wire.framing import FileSlice
from barnabas_broker.wire.messages import FetchRequest, ListOffsetsRequest, ProduceRequest
from barnabas_broker.wire.record_batch import HEADER_BYTES, LOG_APPEND_TIME_BIT, BatchHeader, parse_header
from barnabas_broker.wire.records import BrokenRecords, Header, Record, encode_batch, iterate_records
from barnabas_core.clock import Clock
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn

GROUP_ENABLE: Final = "errors.deadletterqueue.group.enable"
_PREFIX: Final = "__dlq.errors."
_INTERNAL: Final = "__"
REJECTED: Final = "Offset rejected by client."
TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."
RECORD_OVERHEAD_BYTES: Final = 64
"""An upper limit of the bytes of a record's lengths, and of those of a header; batches are cut by it."""
UNPACKED_BYTES_MAX: Final = 64 << 20
"""The largest decompressed size of a batch of the source or of dead letters; what is larger is not read."""


class BrokenSetting(Exception):
    """The reason why a group's records can have no dead letters."""


class Missing(msgspec.Struct, frozen=True):
    """A topic for dead letters that does not exist yet, and may be created."""

    name: str


class Destination(msgspec.Struct, frozen=True):
    """The partition of the topic that takes the dead letters of a partition."""

    topic: str
    topic_id: UUID
    partition: int
    leader: int
    """The broker id of the leader; -1 if there is none."""


class SourcePartition(NamedTuple):
    """The partition of the records, as dead letters name it."""

    topic: str
    partition: int
    group_id: str


class DeadLetter(msgspec.Struct, frozen=True):
    """A record without acknowledgement."""

    offset: int
    delivery_count: int
    is_rejected: bool


def destination(
    name: str, source: SourcePartition, image: MetadataImage, config: BrokerConfig
) -> Destination | Missing:
    """Return the partition for dead letters, or the topic to create. Raises BrokenSetting."""
    if not name:
        raise BrokenSetting("errors.deadletterqueue.topic.name is empty")
    if name.startswith(_INTERNAL):
        raise BrokenSetting(f"the name {name} of the topic begins with {_INTERNAL}, as internal topics do")
    if name == source.topic:
        raise BrokenSetting(f"the topic {name} is the source of the records itself")
    topic = image.topics.get(name)
    if topic is None:
        prefix = str(config.value("errors.deadletterqueue.topic.name.prefix"))
        if not config.value("errors.deadletterqueue.auto.create.topics.enable") or not name.startswith(prefix):
            raise BrokenSetting(f"the topic {name} does not exist, and is not created by itself")
        return Missing(name)
    if topic.configs.get(GROUP_ENABLE, "false") != "true":
        raise BrokenSetting(f"the topic {name} does not have {GROUP_ENABLE}=true")
    index = source.partition % len(topic.partitions)
    return Destination(name, topic.topic_id, index, topic.partitions[index].leader)


def headers_of(source: SourcePartition, letter: DeadLetter) -> list[Header]:
    """Return the headers that name the record."""
    values = {
        "topic": source.topic,
        "partition": str(source.partition),
        "offset": str(letter.offset),
        "group": source.group_id,
        "delivery.count": str(letter.delivery_count),
        "message": REJECTED if letter.is_rejected else TOO_OFTEN,
    }
    return [Header(_PREFIX + name, value.encode()) for name, value in values.items()]


def records_of(
    source: SourcePartition, letters: Iterable[DeadLetter], copies: Mapping[int, Record], now_ms: int
) -> Iterator[Record]:
    """Yield the records of dead letters; `copies` has records of the source by offset.

    A record that is a dead letter itself keeps the headers that say so, but only once for each topic and group:
    otherwise it would grow with each turn in a circle of groups, until its topic takes it no longer.
    """
    for letter in letters:
        copy, headers = copies.get(letter.offset), headers_of(source, letter)
        if copy is None:
            yield Record(0, now_ms, None, None, headers)
        else:
            turns = (each for each in earlier_letters(copy) if each[:4:3] == headers[:4:3])
            gone = {id(header) for turn in turns for header in turn}
            own = [header for header in copy.headers if id(header) not in gone]
            yield Record(0, now_ms, copy.key, copy.value, [*headers, *own])


def earlier_letters(record: Record) -> list[list[Header]]:
    """Return the headers of all dead letters that a record has been, the latest first."""
    found: list[list[Header]] = []
    for each in record.headers:
        if each.key == _PREFIX + "topic":
            found.append([])
        if found and each.key.startswith(_PREFIX):
            found[-1].append(each)
    return found


def comes_round(record: Record, topic: str) -> bool:
    """True if the record is a dead letter of one of `topic`, so a dead letter in this topic would close a circle."""
    return any(each[0].value == topic.encode() for each in earlier_letters(record))


def size_of(record: Record) -> int:
    """Return an upper limit of the size of a record in a batch."""
    headers = sum(len(key.encode(errors="surrogateescape")) + len(value or b"") for key, value in record.headers)
    overhead = RECORD_OVERHEAD_BYTES * (1 + len(record.headers))
    return len(record.key or b"") + len(record.value or b"") + headers + overhead


def in_batches(records: Iterable[Record], bytes_max: int) -> Iterator[Sequence[Record]]:
    """Yield records in batches of at most `bytes_max`; a record that is larger alone loses key, value and own headers.

    Its dead letter still names it.
    """
    batch: list[Record] = []
    size = HEADER_BYTES
    for each in records:
        record = each
        if HEADER_BYTES + size_of(record) > bytes_max:
            own = [header for header in record.headers if header.key.startswith(_PREFIX)]
            record = Record(0, record.timestamp_ms, None, None, own)
        if batch and size + size_of(record) > bytes_max:
            yield batch
            batch, size = [], HEADER_BYTES
        batch.append(record._replace(offset_delta=len(batch)))
        size += size_of(record)
    if batch:
        yield batch


def decoded(data: memoryview, first: int, last: int) -> dict[int, Record]:
    """Return the records of batches from offset `first` to `last`; batches that cannot be read are left out."""
    found: dict[int, Record] = {}
    for position, header in _batches(data):
        if header.base_offset > last or header.last_offset < first or header.is_control:
            continue
        try:
            for record in iterate_records(data, position, header, UNPACKED_BYTES_MAX):
                offset = header.base_offset + record.offset_delta
                if first <= offset <= last:
                    found[offset] = record
        except BrokenRecords:
            continue
    return found


def _batches(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    position = 0
    while position + HEADER_BYTES <= len(data):
        header = parse_header(data, position)
        if position + header.size_bytes > len(data):
            return
        yield position, header
        position += header.size_bytes


def named_offsets(data: memoryview, source: SourcePartition) -> tuple[set[int], int | None]:
    """Return the offsets of `source` that dead letters in `data` name, and the offset after the last whole batch."""
    wanted = {"topic": source.topic, "partition": str(source.partition), "group": source.group_id}
    expected = {_PREFIX + name: value.encode() for name, value in wanted.items()}
    found: set[int] = set()
    following = None
    for position, header in _batches(data):
        following = header.last_offset + 1
        if header.is_control:
            continue
        try:
            for record in iterate_records(data, position, header, UNPACKED_BYTES_MAX):
                first_headers = dict(reversed(record.headers[:6]))
                if all(first_headers.get(name) == value for name, value in expected.items()):
                    found.add(int(first_headers.get(_PREFIX + "offset") or b"-1"))
        except (BrokenRecords, ValueError):
            continue
    return found, following


PRODUCE: Final = Exchange("ProduceResponse", 13)
FETCH: Final = Exchange("FetchResponse", 17)
LIST_OFFSETS: Final = Exchange("ListOffsetsResponse", 8)
EARLIEST: Final = -2
TIMEOUT_MS: Final = 30_000
ALL_REPLICAS: Final = -1


class PartitionClient:
    """A client that appends to, and reads from, partitions led by any broker, this one included.

    It has at most one request of each type in flight to each other broker.
    """

    def __init__(
        self,
        broker_id: int,
        replicas: ReplicaManager,
        clock: Clock,
        links: LinkEnvironment,
        is_cached: Callable[[FileSlice], bool],
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._clock = clock
        self._produces = PeerRequests(links, PRODUCE)
        self._fetches = PeerRequests(links, FETCH)
        self._offsets = PeerRequests(links, LIST_OFFSETS)
        self._is_cached = is_cached
        self._turns: defaultdict[tuple[int, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    def close(self) -> None:
        """Close the connections to other brokers."""
        self._produces.close()
        self._fetches.close()
        self._offsets.close()

    async def append(self, place: Destination, batch: bytearray) -> None:
        """Append a batch with acks=all. Raises ApiError, also if the batch may have been appended."""
        if place.leader == self._broker_id:
            await self._append_here(place, batch)
            return
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=TIMEOUT_MS,
            topic_data=[_topic_data(place, batch)],
        )
        response = await self._ask(self._produces, place.leader, request)
        if response is None:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"broker {place.leader} did not answer")
        result = response.responses[0].partition_responses[0]
        if result.error_code:
            raise ApiError(ErrorCode(result.error_code), f"broker {place.leader} did not confirm a dead letter")

    async def _append_here(self, place: Destination, batch: bytearray) -> None:
        done: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        with self._replicas.failures.using(place.topic, place.partition) as hosted:
            hosted.check_writable(all_replicas=True)
            now_ms = self._clock.now_ms()
            appended = hosted.append_as_leader(memoryview(batch), parse_header(batch, 0), now_ms)
        hosted.waits.wait(appended.end_offset, partial(end, done), hosted.log.high_watermark)
        error = await done
        if error is not None:
            raise error

    async def read(self, place: Destination, offset: int) -> tuple[memoryview, int]:
        """Return batches from `offset` on, perhaps with earlier records of the first one, and the high watermark.

        An offset below the start of the log means the start. Raises ApiError.
        """
        if place.leader == self._broker_id:
            return await self._read_here(place, offset)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=READ_BYTES_MAX, topics=[_fetch_topic(place, offset)]
        )
        response = await self._ask(self._fetches, place.leader, request)
        if response is None:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"broker {place.leader} did not answer")
        result = response.responses[0].partitions[0]
        if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not offset:
            return await self.read(place, max(await self._listed(place, EARLIEST), 1))
        if result.error_code:
            raise ApiError(ErrorCode(result.error_code), f"broker {place.leader} refused a read of dead letters")
        return memoryview(result.records or b""), result.high_watermark

    async def _read_here(self, place: Destination, offset: int) -> tuple[memoryview, int]:
        with self._replicas.failures.using(place.topic, place.partition) as hosted:
            hosted.check_readable(-1)
            hosted.check_caught_up()
            start = max(offset, hosted.log.log_start_offset)
            batches = await read_batches(
                hosted, start, READ_BYTES_MAX, self._is_cached, at_least_one=True, is_committed=False
            )
            return memoryview(b"") if batches is None else batches.data, hosted.log.high_watermark

    async def offset_since(self, place: Destination, timestamp_ms: int) -> int | None:
        """Return the offset of the first record with the timestamp or a later one; None if there is none.

        Raises ApiError.
        """
        if place.leader != self._broker_id:
            offset = await self._listed(place, timestamp_ms)
            return None if offset < 0 else offset
        with self._replicas.failures.using(place.topic, place.partition) as hosted:
            hosted.check_readable(-1)
            hosted.check_caught_up()
            end, turn = hosted.log.high_watermark, FairTurn(self._clock)
            found = await offset_for_timestamp(hosted.log, timestamp_ms, end, turn)
        return None if found is None else found.offset

    async def _listed(self, place: Destination, timestamp_ms: int) -> int:
        """Return the offset for a timestamp, or for EARLIEST; -1 if there is none. Raises ApiError."""
        kind = ListOffsetsRequest.ListOffsetsTopic
        wanted = kind.ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp_ms)
        request = ListOffsetsRequest(replica_id=-1, topics=[kind(name=place.topic, partitions=[wanted])])
        response = await self._ask(self._offsets, place.leader, request)
        result = None if response is None else response.topics[0].partitions[0]
        if result is None or result.error_code:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"broker {place.leader} did not list the offset of a time")
        return int(result.offset)

    async def _ask(self, requests: PeerRequests, broker_id: int, request: Any) -> Any:
        async with self._turns[broker_id, type(request).__name__]:
            return await requests.ask(broker_id, request)


def end(done: asyncio.Future[ApiError | None], error: ApiError | None) -> None:
    """Set the outcome of what a task waits for."""
    if not done.done():  # The future is done if its task was cancelled.
        done.set_result(error)


def _topic_data(place: Destination, batch: bytearray) -> ProduceRequest.TopicProduceData:
    kind = ProduceRequest.TopicProduceData
    partition = kind.PartitionProduceData(index=place.partition, records=bytes(batch))
    return kind(topic_id=place.topic_id, partition_data=[partition])


def _fetch_topic(place: Destination, offset: int) -> FetchRequest.FetchTopic:
    kind = FetchRequest.FetchTopic
    partition = kind.FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=READ_BYTES_MAX)
    return kind(topic_id=place.topic_id, partitions=[partition])


log = logging.getLogger(__name__)

LETTERS_AT_ONCE: Final = 100
"""The records whose dead letters are written together."""
CLOCKS_DIFFER_MS_MAX: Final = 600_000
"""The largest difference between the clocks of brokers with which dead letters that are there are found."""
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0


class DeadLetterEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of the writing of dead letters."""

    image: MetadataImage
    replicas: ReplicaManager
    client: PartitionClient
    clock: Clock
    sleep: Callable[[float], Awaitable[None]]
    spawn: Callable[[Coroutine[object, object, None]], object]
    current_config: Callable[[], BrokerConfig]
    create_topic: Callable[[NewTopic], Awaitable[TopicDocument | ApiError]]
    is_cached: Callable[[FileSlice], bool]


class DeadLetterWriter:
    """The tasks that write dead letters, at most one for each share partition."""

    def __init__(self, environment: DeadLetterEnvironment) -> None:
        self._environment = environment
        self._under_way: set[LedPartition] = set()

    def write(self, led: LedPartition) -> None:
        """Write the dead letters of a share partition, unless a task does so already."""
        if led not in self._under_way:
            self._under_way.add(led)
            self._environment.spawn(self._write(led))

    async def _write(self, led: LedPartition) -> None:
        try:
            await _Writing(self._environment, led).run()
        finally:
            self._under_way.discard(led)


class _Writing:
    """The writing of the dead letters of one share partition."""

    def __init__(self, environment: DeadLetterEnvironment, led: LedPartition) -> None:
        self._environment = environment
        self._led = led
        topic_partition = led.hosted.topic_partition
        self._source = SourcePartition(topic_partition.topic, topic_partition.partition, led.group_id)
        self._pause_s = PAUSE_S
        self._why_broken = ""

    async def run(self) -> None:
        led = self._led
        while led.life is Life.ACTIVE and (letters := list(self._next())):
            try:
                await self._write(letters)
            except BrokenSetting as reason:
                self._report_broken(str(reason), len(letters))
            except ApiError as error:
                led.counts.dead_letters_failed += 1
                log.warning("dead letters of group %s for %s wait: %s", *self._names, error)
                await self._environment.sleep(self._pause_s)
                self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
                continue
            self._pause_s = PAUSE_S
            await self._store(letters)
            led.doubtful.difference_update(each.offset for each in letters)

    @property
    def _names(self) -> tuple[str, str]:
        return self._led.group_id, str(self._led.hosted.topic_partition)

    def _next(self) -> Iterator[DeadLetter]:
        """Yield the first records that wait, of one range."""
        led = self._led
        limit = led.limits.delivery_count
        for each in led.records.waiting_for_dead_letters():
            is_rejected = each.is_rejected or each.delivery_count < limit
            for offset in range(each.first, min(each.last, each.first + LETTERS_AT_ONCE - 1) + 1):
                yield DeadLetter(offset, each.delivery_count, is_rejected)
            return

    async def _store(self, letters: list[DeadLetter]) -> None:
        """Archive the records; until that is stored, another leader would find their dead letters."""
        led = self._led
        while led.life is Life.ACTIVE:
            stored: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
            led.archive(letters[0].offset, letters[-1].offset, partial(end, stored))
            if await stored is None:
                return
            await self._environment.sleep(PAUSE_S)

    def _report_broken(self, why: str, count: int) -> None:
        self._led.counts.dead_letters_impossible += count
        if why != self._why_broken:
            log.error("records of group %s for %s are archived without dead letters: %s", *self._names, why)
        self._why_broken = why

    async def _write(self, letters: list[DeadLetter]) -> None:
        """Write the dead letters that are not there yet. Raises BrokenSetting and ApiError."""
        environment = self._environment
        found = await self._destination()
        if found.leader < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{found.topic}-{found.partition} has no leader")
        missing = await self._not_there(found, letters)
        is_copied = self._led.config.copies_dead_letters
        records_there = await self._copies(missing) if missing and (is_copied or self._may_come_round) else {}
        document = environment.image.topics[found.topic]
        bytes_max = environment.replicas.settings.of(document).config.message_bytes_max
        copies = records_there if is_copied else {}
        records = records_of(self._source, missing, copies, environment.clock.now_ms())
        offsets = iter(missing)
        for batch in in_batches(records, min(bytes_max, READ_BYTES_MAX)):
            written = [next(offsets).offset for _ in batch]
            await self._append(found, batch, written)
        self._report_circle(found, sum(comes_round(each, found.topic) for each in records_there.values()))

    @property
    def _may_come_round(self) -> bool:
        """True if the source itself has dead letters, perhaps of records of the topic that takes its own ones."""
        document = self._environment.image.topics.get(self._source.topic)
        return document is not None and document.configs.get(GROUP_ENABLE) == "true"

    def _report_circle(self, place: Destination, count: int) -> None:
        counts = self._led.counts
        if count and not counts.dead_letters_in_circle:
            log.error(
                "dead letters of group %s for %s go round: %d of their records are dead letters of the topic %s, to "
                "which theirs go; errors.deadletterqueue.topic.name of one of the groups must be another topic",
                *self._names,
                count,
                place.topic,
            )
        counts.dead_letters_in_circle += count

    async def _append(self, place: Destination, batch: Sequence[Record], offsets: list[int]) -> None:
        # They stay doubtful after every error: a leader that is deposed answers NOT_LEADER_OR_FOLLOWER for what it has.
        self._led.doubtful.update(offsets)
        await self._environment.client.append(place, encode_batch(batch))
        self._led.counts.dead_letters += len(offsets)

    async def _not_there(self, place: Destination, letters: list[DeadLetter]) -> list[DeadLetter]:
        """Return the records whose dead letters are not in the partition.

        Only records that an earlier leader, or an error, has left are looked for.
        """
        doubtful = self._led.doubtful & {each.offset for each in letters}
        if not doubtful:
            return letters
        there, offset = set[int](), await self._first_possible(place, min(doubtful))
        while offset is not None and not doubtful <= there:
            data, high_watermark = await self._environment.client.read(place, offset)
            named, following = named_offsets(data, self._source)
            there |= named & self._led.doubtful
            if following is None or following >= high_watermark:
                break
            offset = following
            await self._environment.sleep(0)
        return [each for each in letters if each.offset not in there]

    async def _first_possible(self, place: Destination, offset: int) -> int | None:
        """Return the first offset that may have the dead letter of a record or of a later one; None if none may.

        A dead letter is younger than its record, which came into the log at its timestamp, or before by at most
        `message.timestamp.after.max.ms`. The clocks of brokers may differ by CLOCKS_DIFFER_MS_MAX.
        """
        header = await self._header_at(offset)
        if header is None:
            return 0
        is_stamped = bool(header.attributes & LOG_APPEND_TIME_BIT)
        ahead_ms = 0 if is_stamped else self._led.hosted.log.config.timestamp_after_max_ms
        since_ms = header.max_timestamp_ms - ahead_ms - CLOCKS_DIFFER_MS_MAX
        return 0 if since_ms <= 0 else await self._environment.client.offset_since(place, since_ms)

    async def _header_at(self, offset: int) -> BatchHeader | None:
        """Return the header of the batch with a record of the source; None if the log has it no longer."""
        hosted = self._led.hosted
        if offset < hosted.log.log_start_offset:
            return None
        with self._environment.replicas.failures.using(hosted.topic_partition.topic, hosted.topic_partition.partition):
            is_cached = self._environment.is_cached
            batches = await read_batches(hosted, offset, 1, is_cached, at_least_one=True, is_committed=False)
        header = batches.headers[0] if batches is not None and batches.headers else None
        return header if header is not None and header.base_offset <= offset else None

    async def _destination(self) -> Destination:
        environment, led = self._environment, self._led
        config = environment.current_config()
        found = destination(led.config.dead_letter_topic, self._source, environment.image, config)
        if isinstance(found, Missing):
            configs = {GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
            created = await environment.create_topic(NewTopic(found.name, configs=configs))
            if isinstance(created, ApiError) and created.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise created
            found = destination(led.config.dead_letter_topic, self._source, environment.image, config)
        if isinstance(found, Missing):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {found.name} was just created")
        return found

    async def _copies(self, letters: list[DeadLetter]) -> dict[int, Record]:
        """Return the records of the source by offset; those that the log has no longer are missing."""
        hosted, first, last = self._led.hosted, letters[0].offset, letters[-1].offset
        copies: dict[int, Record] = {}
        offset = max(first, hosted.log.log_start_offset)
        with self._environment.replicas.failures.using(hosted.topic_partition.topic, hosted.topic_partition.partition):
            while offset <= last:
                batches = await read_batches(
                    hosted, offset, READ_BYTES_MAX, self._environment.is_cached, at_least_one=True, is_committed=False
                )
                if batches is None or not batches.headers:
                    break
                loop = asyncio.get_running_loop()
                copies |= await loop.run_in_executor(hosted.log.threads, decoded, batches.data, first, last)
                offset = batches.headers[-1].last_offset + 1
        return copies

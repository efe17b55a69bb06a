"""The writing of dead letters: a record stays archiving until its dead letter is committed, or can never be written.

One task for each share partition writes them in order. A passing error is tried again for as long as this broker leads,
with pauses of 1 s to 30 s. Before it writes for records that an earlier leader has left, or after an answer that did
not come, the task looks in the partition for dead letters, so that one failover writes none twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from barnabas_broker.coordinators.share_delivery.dead_letters import (
    GROUP_ENABLE,
    BrokenSetting,
    DeadLetter,
    Destination,
    Missing,
    SourcePartition,
    decoded,
    destination,
    in_batches,
    named_offsets,
    records_of,
)
from barnabas_broker.coordinators.share_delivery.led_partition import LedPartition, Life
from barnabas_broker.coordinators.share_delivery.partition_client import PartitionClient, Unknown, end
from barnabas_broker.coordinators.share_delivery.reading import READ_BYTES_MAX, read_batches
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.wire.framing import FileSlice
from barnabas_broker.wire.record_batch import LOG_APPEND_TIME_BIT, BatchHeader
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.clock import Clock
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError, ErrorCode

log = logging.getLogger(__name__)

LETTERS_AT_ONCE: Final = 100
"""The records whose dead letters are written together."""
CLOCKS_DIFFER_MS_MAX: Final = 600_000
"""The largest difference between the clocks of brokers with which dead letters that are there are found."""
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0


class DeadLetterEnvironment(NamedTuple):
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
            except (ApiError, Unknown) as error:
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
        """Write the dead letters that are not there yet. Raises BrokenSetting, ApiError and Unknown."""
        environment, led = self._environment, self._led
        found = await self._destination()
        if found.leader < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{found.topic}-{found.partition} has no leader")
        missing = await self._not_there(found, letters)
        copies = await self._copies(missing) if led.config.copies_dead_letters and missing else {}
        document = environment.image.topics[found.topic]
        bytes_max = environment.replicas.settings.of(document).config.message_bytes_max
        records = records_of(self._source, missing, copies, environment.clock.now_ms())
        offsets = iter(missing)
        for batch in in_batches(records, min(bytes_max, READ_BYTES_MAX)):
            written = [next(offsets).offset for _ in batch]
            await self._append(found, batch, written)

    async def _append(self, place: Destination, batch: Sequence[Record], offsets: list[int]) -> None:
        led = self._led
        led.doubtful.update(offsets)
        try:
            await self._environment.client.append(place, encode_batch(batch))
        except ApiError:
            led.doubtful.difference_update(offsets)
            raise
        led.counts.dead_letters += len(offsets)

    async def _not_there(self, place: Destination, letters: list[DeadLetter]) -> list[DeadLetter]:
        """Return the records whose dead letters are not in the partition.

        Only records that an earlier leader, or an unknown outcome, has left are looked for.
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
        self._led.doubtful -= doubtful - there
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

"""Fetch (1), v4 to v18. The answer is heads of a few bytes and slices of segment files, sent by the kernel.

v12 is flexible and brings the last fetched epoch, v13 names topics by id. Fetch sessions (KIP-227) are declined by
always answering session id 0. A request without enough bytes waits in the purgatory until there are, or until its time
is up. What followers ask is answered in `replica_fetch`.
"""

from collections.abc import Callable
from typing import Final

from barnabas_broker.handlers import replica_fetch
from barnabas_broker.handlers.exchange import Channel
from barnabas_broker.handlers.services import Services
from barnabas_broker.replication.follower_partition import diverging_epoch
from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    FetchTopic,
    encode_fetch_response,
    parse_fetch,
)
from barnabas_broker.wire.parts import FileSlice, Part
from barnabas_core.config.log_config import Compression
from barnabas_core.errors import ApiError, ErrorCode

NO_OFFSET: Final = -1
ZSTD_SINCE: Final = 10
"""A topic whose codec this is is not for clients that do not know it (KIP-110); other batches are not looked at."""


def handle(
    services: Services,
    channel: Channel,
    version: int,
    correlation_id: int,
    buffer: memoryview,
    body_start: int,
    end: int,
) -> None:
    """Answer at once when there is enough, an error or no time to wait; else when there is."""
    request = parse_fetch(buffer, body_start, end, version)
    if request.replica_id >= 0:
        replica_fetch.handle(services, channel, version, correlation_id, request)
        return
    attempt = _Fetch(services, request, version, correlation_id)
    if attempt.read_all() or request.max_wait_ms <= 0:
        channel.respond(attempt.encode())
        return
    attempt.wait(channel.defer())


class _Fetch:
    """One fetch: what it asks for and what has been read for it so far. A DelayedOperation while it waits."""

    def __init__(self, services: Services, request: FetchRequest, version: int, correlation_id: int) -> None:
        self._services = services
        self._request = request
        self._version = version
        self._correlation_id = correlation_id
        self._respond: Callable[[list[Part]], None] | None = None
        self._results: list[tuple[FetchTopic, list[FetchResult]]] = []
        self._partitions: list[Partition] = []

    def read_all(self) -> bool:
        """Read every partition, within the limits; True when the answer need not wait."""
        request = self._request
        self._partitions = []
        reader = _Reader(
            self._services,
            min(request.max_bytes, self._services.config.fetch_max_bytes),
            self._partitions,
            self._version,
        )
        self._results = [
            (topic, [reader.read(topic, wanted) for wanted in topic.partitions]) for topic in request.topics
        ]
        return reader.is_urgent or not self._partitions or reader.bytes_read >= request.min_bytes

    def encode(self) -> list[Part]:
        """The answer with what has been read."""
        return encode_fetch_response(self._correlation_id, self._version, self._results)

    def wait(self, respond: Callable[[list[Part]], None]) -> None:
        """Try again whenever one of the partitions changes, until max_wait_ms are over."""
        self._respond = respond
        lists = [partition.waiters for partition in self._partitions]
        self._services.purgatory.watch(self, lists, self._request.max_wait_ms / 1000)

    def try_complete(self) -> bool:
        """Called by the purgatory after a change."""
        if not self.read_all():
            return False
        self._answer()
        return True

    def expire(self) -> None:
        """Called by the purgatory when the time is up."""
        self.read_all()
        self._answer()

    def _answer(self) -> None:
        assert self._respond is not None
        self._respond(self.encode())


class _Reader:
    """Reads partition after partition within one request's byte limit; the first with records ignores the limits."""

    def __init__(self, services: Services, bytes_left: int, partitions: list[Partition], version: int) -> None:
        self._services = services
        self._is_before_zstd = version < ZSTD_SINCE
        self._bytes_left = bytes_left
        self._partitions = partitions
        self.bytes_read = 0
        self.is_urgent = False

    def read(self, topic: FetchTopic, wanted: FetchPartition) -> FetchResult:
        """What there is for one partition; an error or a diverging epoch makes the answer urgent."""
        partition: Partition | None = None
        try:
            partition = self._services.replicas.find(topic.name, topic.topic_id, wanted.partition)
            self._partitions.append(partition)
            partition.check_readable(wanted.current_leader_epoch)
            if self._is_before_zstd and partition.log.config.compression is Compression.ZSTD:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd; Fetch v{ZSTD_SINCE} is the first with it"
                )
            return self._read_partition(partition, wanted)
        except ApiError as error:
            return self._refused(wanted.partition, error)
        except StorageError as error:
            assert partition is not None
            return self._refused(wanted.partition, self._services.replicas.storage_failed(partition, error))

    def _read_partition(self, partition: Partition, wanted: FetchPartition) -> FetchResult:
        diverging = diverging_epoch(partition, wanted)
        if diverging is not None:
            self.is_urgent = True
            return _result(partition, wanted.partition, ErrorCode.NONE, None, diverging)
        length_max = min(wanted.max_bytes, self._bytes_left)
        records = partition.read(wanted.fetch_offset, length_max, at_least_one_batch=self.bytes_read == 0)
        if records is not None:
            self.bytes_read += records.length
            self._bytes_left -= records.length
        return _result(partition, wanted.partition, ErrorCode.NONE, records)

    def _refused(self, index: int, error: ApiError) -> FetchResult:
        self.is_urgent = True
        return FetchResult(index, error.code, NO_OFFSET, NO_OFFSET, NO_OFFSET, None)


def _result(
    partition: Partition,
    index: int,
    error: int,
    records: FileSlice | None,
    diverging_epoch: tuple[int, int] | None = None,
) -> FetchResult:
    return FetchResult(
        index,
        error,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        records,
        diverging_epoch,
    )

"""The reading of batches for a share partition: bytes, and the offsets of each batch."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from barnabas_broker.coordinators.share_delivery.share_partition import Acquired, FetchedBatch
from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.errors import disk_errors
from barnabas_broker.storage.logs.log import aborted_among
from barnabas_broker.storage.logs.offset_lookup import last_stable_offset
from barnabas_broker.wire.framing import FileSlice
from barnabas_broker.wire.record_batch import HEADER_BYTES, BatchHeader, parse_header

READ_BYTES_MAX: Final = 1024 * 1024
"""The bytes that are read at once; a larger first batch is read as a whole."""


class Batches(msgspec.Struct, frozen=True):
    """The whole batches of a read, with the position of each in `data`."""

    data: memoryview
    headers: Sequence[BatchHeader]
    positions: Sequence[int]
    fetched: Sequence[FetchedBatch]

    def with_records(self, acquired: Sequence[Acquired]) -> memoryview:
        """Return the bytes of the batches from the first to the last acquired record."""
        first, last = acquired[0].first, acquired[-1].last
        wanted = [
            number for number, each in enumerate(self.headers) if each.last_offset >= first and each.base_offset <= last
        ]
        end = self.positions[wanted[-1]] + self.headers[wanted[-1]].size_bytes
        return self.data[self.positions[wanted[0]] : end]


def readable_end(hosted: Partition, *, is_committed: bool) -> int:
    """Return the offset below which members get records. Raises ApiError and StorageError."""
    return last_stable_offset(hosted.log) if is_committed else hosted.log.high_watermark


async def read_batches(
    hosted: Partition,
    offset: int,
    bytes_max: int,
    is_cached: Callable[[FileSlice], bool],
    *,
    at_least_one: bool,
    is_committed: bool,
) -> Batches | None:
    """Read batches from `offset` on, in a thread if they are not cached; None if there are none.

    With `is_committed` they end at the last stable offset, and records of aborted transactions are not delivered.
    Raises ApiError and StorageError.
    """
    log, end = hosted.log, readable_end(hosted, is_committed=is_committed)
    length_max = min(bytes_max, READ_BYTES_MAX)
    records = log.read(offset, length_max, end, at_least_one_batch=at_least_one) if offset < end else None
    if records is None:
        return None
    aborted = aborted_among(log, offset, records) if is_committed else []
    with disk_errors(log.log_dir, log.directory):
        if is_cached(records):
            data = records.file.read_at(records.position, records.length)
        else:
            loop = asyncio.get_running_loop()
            data = await loop.run_in_executor(log.threads, records.file.read_at, records.position, records.length)
    return _batches(memoryview(data), aborted)


def _batches(data: memoryview, aborted: Sequence[tuple[int, int]]) -> Batches:
    headers, positions, position = [], [], 0
    while position + HEADER_BYTES <= len(data):
        header = parse_header(data, position)
        if position + header.size_bytes > len(data):
            break
        headers.append(header)
        positions.append(position)
        position += header.size_bytes
    return Batches(data, headers, positions, _fetched(headers, aborted))


def _fetched(headers: Sequence[BatchHeader], aborted: Sequence[tuple[int, int]]) -> Sequence[FetchedBatch]:
    """Return the offsets of batches; `aborted` has producer id and first offset, sorted by the latter."""
    fetched, following, open_ids = [], list(reversed(aborted)), set()
    for header in headers:
        while following and following[-1][1] <= header.last_offset:
            open_ids.add(following.pop()[0])
        is_delivered = not header.is_control and not (header.is_transactional and header.producer_id in open_ids)
        if header.is_control:
            open_ids.discard(header.producer_id)
        fetched.append(FetchedBatch(header.base_offset, header.last_offset, is_delivered))
    return fetched

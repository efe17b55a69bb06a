"""The last stable offset of a log, below which all transactions are decided, and the search for a record by timestamp.

The search finds first the segment, then the batch by the time index, then the record. After each segment it lets the
event loop run other tasks, because the first use of a segment opens its files. A large or compressed batch is searched
in a thread.
"""

import asyncio
from typing import Final, NamedTuple

from barnabas_broker.storage.disk.files import LogFile
from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.segments.indexes import NO_TIMESTAMP
from barnabas_broker.storage.segments.segment import FoundBatch
from barnabas_broker.wire.records import BrokenRecords, first_record_since
from barnabas_core.loop_turns import FairTurn

UNPACKED_BYTES_MAX: Final = 64 << 20
"""The largest decompressed size of a batch that is searched for a timestamp."""
ON_LOOP_BYTES_MAX: Final = 64 * 1024
"""The largest uncompressed batch that is searched on the event loop; the search takes about 5 ms at most."""
HEADERS_IN_A_STEP: Final = 1_000


class TimestampOffset(NamedTuple):
    """A record's timestamp, offset and leader epoch."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class BatchSearch:
    """The search of a batch for the first record with `timestamp_ms` or later. `run` can be called in a thread."""

    def __init__(self, log: Log, file: LogFile, batch: FoundBatch, timestamp_ms: int) -> None:
        self.log_dir = log.log_dir
        self.directory = log.directory
        self.header = batch.header
        self._file = file
        self._position = batch.position
        self._timestamp_ms = timestamp_ms
        self._offset_min = log.log_start_offset

    @property
    def is_large(self) -> bool:
        """True if the search needs a thread, because the batch is compressed or large."""
        return bool(self.header.compression) or self.header.size_bytes > ON_LOOP_BYTES_MAX

    @disk_access
    def run(self) -> TimestampOffset | None:
        """Return the first record with the wanted timestamp or later, or None.

        If the batch is broken, its first offset is returned, so that a consumer misses no record.
        """
        header = self.header
        data = self._file.read_at(self._position, header.size_bytes)
        delta_min = self._offset_min - header.base_offset
        try:
            found = first_record_since(data, header, self._timestamp_ms, delta_min, UNPACKED_BYTES_MAX)
        except BrokenRecords:
            return TimestampOffset(header.max_timestamp_ms, header.base_offset, header.leader_epoch)
        return TimestampOffset(found[0], header.base_offset + found[1], header.leader_epoch) if found else None


async def offset_for_timestamp(log: Log, timestamp_ms: int, offset_max: int, turn: FairTurn) -> TimestampOffset | None:
    """Return the first record below `offset_max` with `timestamp_ms` or later, or None. Raises StorageError."""
    found = await _first_since(log, timestamp_ms, log.log_start_offset, turn)
    return found if found and found.offset < offset_max else None


async def max_timestamp(log: Log, turn: FairTurn) -> TimestampOffset | None:
    """Return the first record with the largest timestamp, or None if no record has a timestamp. Raises StorageError."""
    largest_ms, offset, place = NO_TIMESTAMP, log.log_start_offset, log.log_start_offset
    while place < log.log_end_offset:
        await turn.give_way()
        timestamp_ms, brought_by, following = _largest_timestamp_at(log, place)
        if timestamp_ms > largest_ms:
            largest_ms, offset = timestamp_ms, brought_by
        place = max(following, place + 1)
    return await _first_since(log, largest_ms, offset, turn) if largest_ms > NO_TIMESTAMP else None


async def _in_thread(log: Log, search: BatchSearch) -> TimestampOffset | None:
    return await asyncio.get_running_loop().run_in_executor(log.threads, search.run)


async def _first_since(log: Log, timestamp_ms: int, offset: int, turn: FairTurn) -> TimestampOffset | None:
    """Return the first record with `timestamp_ms` or later, or None.

    The search begins with the batch that contains `offset`. A step of the search is repeated if the log was truncated
    during the step.
    """
    while offset < log.log_end_offset:
        await turn.give_way()
        truncations, offset = log.segments.truncations, max(offset, log.log_start_offset)
        search, following = _timestamp_step(log, timestamp_ms, offset)
        found = None
        if search is not None:
            found = await _in_thread(log, search) if search.is_large else search.run()
        if truncations != log.segments.truncations:
            continue
        if found is not None:
            return found
        offset = max(following, offset + 1)
    return None


@disk_access
def _largest_timestamp_at(log: Log, offset: int) -> tuple[int, int, int]:
    """Return the largest timestamp of the segment that contains `offset`, and two offsets.

    The first one is the last offset of the batch with this timestamp, the second one the segment's end offset.
    """
    segment = log.segments.starting_at(offset)[0]
    return *segment.largest_timestamp(), log.segments.end_offset(segment, log.log_end_offset)


@disk_access
def _timestamp_step(log: Log, timestamp_ms: int, offset: int) -> tuple[BatchSearch | None, int]:
    """Find the next batch that may have a record with `timestamp_ms` or later.

    Return the `BatchSearch` for this batch, or None if no batch was found, and the offset at which the next call
    continues. A call reads a limited number of batch headers. Raises StorageError.
    """
    segment = log.segments.starting_at(offset)[0]
    end = log.segments.end_offset(segment, log.log_end_offset)
    if segment.largest_timestamp()[0] < timestamp_ms:
        return None, end
    for number, batch in enumerate(segment.batches_from(segment.earliest_offset(timestamp_ms, offset)), 1):
        following = batch.header.last_offset + 1
        if batch.header.max_timestamp_ms >= timestamp_ms:
            return BatchSearch(log, segment.file, batch, timestamp_ms), following
        if number == HEADERS_IN_A_STEP:
            return None, following
    return None, end


def last_stable_offset(log: Log) -> int:
    """Return the high watermark, or the first offset of the oldest undecided transaction if that offset is lower.

    Raises ApiError and StorageError while the transactions in the log are not known.
    """
    stable_offset = log.producers.transactions.stable_until(log.high_watermark)
    return max(stable_offset, log.log_start_offset)


def held_back(log: Log) -> int:
    """Return the high watermark minus the last stable offset; 0 until the producers in the log have been loaded."""
    states, high_watermark = log.known_producers.states, log.high_watermark
    if states is None:
        return 0
    stable_offset = max(states.transactions.stable_until(high_watermark), log.log_start_offset)
    return max(0, high_watermark - stable_offset)


def undecided_since_ms(log: Log) -> int | None:
    """Return the time in ms of the last write by the producer of the oldest open transaction.

    Returns None if no transaction is open, or if the state of the log's producers has not been loaded.
    """
    states = log.known_producers.states
    return None if states is None else states.oldest_transaction_ms()

"""One segment of a log: the `.log` file and its indexes. The `.log` file is opened at its first use.

All methods raise OSError, or `InvalidBatch` if the log is damaged; `Log` turns both into a StorageError.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.files import LogFile
from barnabas_broker.storage.errors import InvalidBatch, half_done
from barnabas_broker.storage.segments.indexes import (
    NO_TIMESTAMP,
    RELATIVE_OFFSET_MAX,
    SegmentEnvironment,
    SegmentIndexes,
    TransactionIndex,
)
from barnabas_broker.wire.framing import SendableFile
from barnabas_broker.wire.record_batch import HEADER_BYTES, LENGTH_OFFSET, BatchHeader, crc_matches, parse_header
from barnabas_core.config.log_config import LogConfig

LOOKUP_CHUNK_BYTES: Final = 8192
"""The number of bytes read at once to find a batch between two index entries."""
SCAN_CHUNK_BYTES: Final = 1 << 20
"""The number of bytes read at once to scan a whole segment."""
NO_CRC: Final = 2**63 - 1
_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_OFFSET


class FoundBatch(NamedTuple):
    """A batch header and the position of the batch in the segment's file."""

    position: int
    header: BatchHeader


def scan_batches(
    file: LogFile, start: int, end: int, offset_min: int, *, chunk_bytes: int, crc_from: int = NO_CRC
) -> Iterator[FoundBatch]:
    """Yield the batches between two byte positions; their offsets must rise from `offset_min`. Raises InvalidBatch.

    The CRC is checked for batches from the offset `crc_from` on.
    """
    chunk, chunk_start, position = memoryview(b""), start, start
    while position < end:
        place = position - chunk_start
        if place + HEADER_BYTES > len(chunk):
            chunk, chunk_start, place = _read(file, position, chunk_bytes, end), position, 0
        header = valid_header(chunk, place, position, end, offset_min)
        if header.base_offset >= crc_from:
            if place + header.size_bytes > len(chunk):
                chunk, place = _read(file, position, max(chunk_bytes, header.size_bytes), end), 0
                chunk_start = position
            if not crc_matches(chunk, place, header):
                raise InvalidBatch(
                    position, f"the CRC of the batch at offset {header.base_offset} does not match the batch's bytes"
                )
        yield FoundBatch(position, header)
        position += header.length + LENGTH_OFFSET
        offset_min = header.base_offset + header.last_offset_delta + 1


def _read(file: LogFile, position: int, length: int, end: int) -> memoryview:
    return memoryview(file.read_at(position, min(length, end - position)))


def valid_header(chunk: bytes | memoryview, place: int, position: int, end: int, offset_min: int) -> BatchHeader:
    """Return the header of the batch at byte `place` of `chunk`; this batch is at byte `position` of its segment.

    Raises InvalidBatch if the header is invalid, or if the batch extends beyond byte `end` of the segment.
    """
    if len(chunk) - place < HEADER_BYTES:
        raise InvalidBatch(
            position, f"{len(chunk) - place} bytes are left, but a batch header has {HEADER_BYTES}", torn=True
        )
    header = parse_header(chunk, place)
    if header.magic != 2:
        raise InvalidBatch(position, f"the magic of the batch is {header.magic}, not 2")
    if header.length < _LENGTH_MIN:
        raise InvalidBatch(position, f"the length of the batch is {header.length}, less than {_LENGTH_MIN}")
    if header.base_offset < offset_min or header.last_offset_delta < 0:
        raise InvalidBatch(
            position,
            f"the batch has base offset {header.base_offset} and last offset delta "
            f"{header.last_offset_delta}, but the lowest valid values are {offset_min} and 0",
        )
    if position + header.length + LENGTH_OFFSET > end:
        raise InvalidBatch(
            position, f"the length of the batch is {header.length}, but only {end - position} bytes are left", torn=True
        )
    return header


class SegmentRoom(NamedTuple):
    """The limits of size, timestamp and offset up to which a batch certainly fits into the segment.

    A batch above a limit may still fit, so all rules for rolling the segment are then checked.
    """

    size_bytes_max: int
    timestamp_ms_max: int
    offset_max: int


NO_ROOM: Final = SegmentRoom(0, 0, 0)
"""A `SegmentRoom` without any room, so that the next append checks all rules for rolling the segment."""


_ALL_OFFSETS: Final = 2**63 - 1


class SegmentSizes(NamedTuple):
    """The sizes of a segment's files from a directory listing; None for a missing index."""

    log_bytes: int = 0
    index_bytes: int | None = 0
    time_index_bytes: int | None = 0
    modified_ms: int = 0
    transaction_index_bytes: int = 0


class Segment:
    """The batches of a log from `base_offset` to the next segment, in the order of their offsets."""

    __slots__ = (
        "_environment",
        "_file",
        "_first_timestamp_ms",
        "_is_inspected",
        "_lacks_index",
        "_room",
        "base_offset",
        "created_ms",
        "directory",
        "indexes",
        "roll_jitter_ms",
        "size_bytes",
        "transactions",
        "used",
    )

    def __init__(
        self, environment: SegmentEnvironment, directory: str, base_offset: int, config: LogConfig, sizes: SegmentSizes
    ) -> None:
        """Create the object for files of the given sizes; the indexes are checked or built when they are first used."""
        self.base_offset = base_offset
        self.directory = directory
        self.size_bytes = sizes.log_bytes
        self.created_ms = sizes.modified_ms
        self.roll_jitter_ms = environment.random.randrange(config.roll_jitter_ms) if config.roll_jitter_ms else 0
        self.used = True
        self._first_timestamp_ms = NO_TIMESTAMP
        self._environment = environment
        self._file: LogFile | None = None
        self._is_inspected = False
        self._room = NO_ROOM
        self._lacks_index = sizes.index_bytes is None or sizes.time_index_bytes is None
        self.indexes = SegmentIndexes.of(
            environment.files,
            (self.path(checkpoints.INDEX), self.path(checkpoints.TIME_INDEX)),
            (sizes.index_bytes or 0, sizes.time_index_bytes or 0),
            base_offset,
            config.index_interval_bytes,
            environment.index_pages,
        )
        path = self.path(checkpoints.TXN_INDEX)
        self.transactions = TransactionIndex(environment.files, path, sizes.transaction_index_bytes, base_offset)

    def make(self, then: Callable[[], None] = lambda: None) -> None:
        """Create the `.log` file now, then call `then`.

        The file must exist even while it is empty: if all other segments are deleted, only its name gives the log end
        offset. If the creation or `then` raises an OSError, the file is removed. If the empty file stayed, the next
        start would load it as a segment, and would not find the later records of the previous segment.
        """
        try:
            self.file.truncate(0)
            then()
        except OSError:
            self.close_file()
            with half_done():
                for suffix in checkpoints.SEGMENT_SUFFIXES:
                    self._environment.files.remove(self.path(suffix))
            raise

    def path(self, suffix: str) -> str:
        """Return the path of the segment's file with the given suffix."""
        return f"{self.directory}/{checkpoints.segment_file(self.base_offset, suffix)}"

    @property
    def file(self) -> LogFile:
        """The `.log` file, which is opened if it is closed."""
        self.used = True
        return self._file or self._open()

    def _open(self) -> LogFile:
        file = self._file = self._environment.files.open_file(self.path(checkpoints.LOG))
        self._environment.open_files.opened(self)
        if not self._is_inspected:
            self._inspect()
        return file

    def release_file(self) -> None:
        """Close the file; `OpenFiles` calls this method when too many files are open."""
        self._file = None

    def close_file(self) -> None:
        """Close the file now; the next use opens it again."""
        if self._file is not None:
            self._file = None
            self._environment.open_files.closed(self)

    def _inspect(self) -> None:
        """Check a segment of an earlier process at its first use: rebuild wrong indexes, and read the timestamps."""
        self._is_inspected = True
        were_cleared = self._clear_wrong_indexes()
        for _ in self._observe_from(_ALL_OFFSETS, SCAN_CHUNK_BYTES if were_cleared else LOOKUP_CHUNK_BYTES):
            pass
        self._write_indexes()
        first = next(self._scan(0, LOOKUP_CHUNK_BYTES), None)
        self._first_timestamp_ms = first.header.max_timestamp_ms if first else NO_TIMESTAMP

    def _clear_wrong_indexes(self) -> bool:
        """Empty both index files if an index is wrong or missing; return True if they have to be rebuilt."""
        is_wrong = self._lacks_index or not self.indexes.are_sane(self.size_bytes)
        if is_wrong:
            self.indexes.create_files()
            self._lacks_index = False
        return is_wrong

    def make_missing_indexes(self) -> None:
        """Build missing indexes while the log is loaded, so that the event loop need not read the segment later."""
        if self._lacks_index and self.size_bytes and not self._is_inspected:
            self._open()
            self.close_file()

    def _write_indexes(self) -> None:
        with suppress(OSError):  # A full disk must not prevent a start or reads, so the entries stay in memory.
            self.indexes.seal()

    def _observe_from(self, offset: int, chunk_bytes: int, *, crc_from: int = NO_CRC) -> Iterator[FoundBatch]:
        """Replace the index entries from `offset` on by entries for the file's batches, and yield these batches."""
        self._room = NO_ROOM
        for batch in self._scan(self._trusted_position(offset), chunk_bytes, crc_from=crc_from):
            header = batch.header
            # The base offset may be damaged, because the CRC does not cover it.
            if header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
                raise InvalidBatch(
                    batch.position,
                    f"the batch ends with offset {header.last_offset}, which is too high for this segment",
                )
            self.indexes.observe(batch.position, header.last_offset, header.max_timestamp_ms)
            yield batch

    def _trusted_position(self, offset: int) -> int:
        """Remove the index entries from `offset` on; return the batch position in the last remaining entry, or 0.

        If the last remaining entry does not match the file, all entries are removed.
        """
        entry = self.indexes.truncate_to(offset)
        try:
            if (
                entry is None
                or next(self._scan(entry.position, LOOKUP_CHUNK_BYTES)).header.last_offset == entry.last_offset
            ):
                return entry.position if entry else 0
        except (InvalidBatch, StopIteration):
            pass
        self.indexes.clear()
        return 0

    def _scan(self, start: int, chunk_bytes: int, *, crc_from: int = NO_CRC) -> Iterator[FoundBatch]:
        return scan_batches(
            self.file, start, self.size_bytes, self.base_offset, chunk_bytes=chunk_bytes, crc_from=crc_from
        )

    def append(self, batch: memoryview, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Append a batch whose offsets are assigned. After an OSError nothing has changed."""
        position = self.size_bytes
        (self._file or self._open()).append(batch, position)
        self.size_bytes = position + size_bytes
        self.used = True
        if not position:
            self._first_timestamp_ms = max_timestamp_ms
        self.indexes.observe(position, last_offset, max_timestamp_ms)

    def append_run(self, run: memoryview, headers: list[BatchHeader]) -> None:
        """Append the consecutive batches in `run` in one write. After an OSError nothing has changed."""
        position = self.size_bytes
        (self._file or self._open()).append(run, position)
        self.used = True
        if not position:
            self._first_timestamp_ms = headers[0].max_timestamp_ms
        for header in headers:
            self.indexes.observe(position, header.last_offset, header.max_timestamp_ms)
            position += header.length + LENGTH_OFFSET
        self.size_bytes = position

    def must_roll(
        self, config: LogConfig, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int
    ) -> bool:
        """True if the batch needs a new segment: because of size, time, full indexes or relative offset."""
        bytes_max, time_ms_max, offset_max = self._room
        if self.size_bytes + size_bytes <= bytes_max and max_timestamp_ms <= time_ms_max and last_offset <= offset_max:
            return False
        if self._breaks_a_bound(config, size_bytes, last_offset, max_timestamp_ms, now_ms):
            return True
        self._measure_room(config)
        return False

    def _breaks_a_bound(
        self, config: LogConfig, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int
    ) -> bool:
        if self.size_bytes and self.size_bytes + size_bytes > self._environment.segment_bytes_max:
            return True
        _ = self._is_inspected or self.file
        first_ms = self._first_timestamp_ms
        waited_ms = max_timestamp_ms - first_ms if first_ms >= 0 else now_ms - self.created_ms
        return (
            self.size_bytes + size_bytes > config.segment_bytes
            or (self.size_bytes > 0 and waited_ms > config.roll_ms - self.roll_jitter_ms)
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or self.indexes.are_full(config.index_bytes_max)
        )

    def _measure_room(self, config: LogConfig) -> None:
        """Compute the limits within which the next appends need no roll.

        A segment without timestamps has no such limits, because the time of the next append decides whether to roll.
        """
        if self.size_bytes and self._first_timestamp_ms >= 0:
            self._room = SegmentRoom(
                min(
                    config.segment_bytes,
                    self._environment.segment_bytes_max,
                    self.size_bytes + self.indexes.bytes_until_full(config.index_bytes_max),
                ),
                self._first_timestamp_ms + config.roll_ms - self.roll_jitter_ms,
                self.base_offset + RELATIVE_OFFSET_MAX,
            )

    def forget_room(self) -> None:
        """Compute the limits again at the next append, because the settings have changed."""
        self._room = NO_ROOM

    def find(self, offset: int) -> FoundBatch | None:
        """Return the first batch that ends at `offset` or later. If the index is wrong, rebuild it and try again."""
        _ = self.file
        try:
            return self._find(offset)
        except InvalidBatch:
            self.rebuild_indexes()
            return self._find(offset)

    def _find(self, offset: int) -> FoundBatch | None:
        entry = self.indexes.floor(offset)
        start = entry.position if entry else 0
        for batch in self._scan(start, LOOKUP_CHUNK_BYTES):
            last_offset = batch.header.last_offset
            if entry and batch.position == start and last_offset != entry.last_offset:
                raise InvalidBatch(
                    start,
                    f"the batch ends at offset {entry.last_offset} in the index, but at a different offset in the log",
                )
            if last_offset >= offset:
                return batch
        return None

    def batches_from(self, offset: int) -> Iterator[FoundBatch]:
        """Return the batch with `offset` and all later batches."""
        found = self.find(offset)
        return self._scan(found.position, SCAN_CHUNK_BYTES) if found else iter(())

    def has_open(self, file: SendableFile) -> bool:
        """True if `file` is the segment's open file."""
        return self._file is file

    def earliest_offset(self, timestamp_ms: int, offset_min: int) -> int:
        """Return the offset at which to begin the search for `timestamp_ms` or later, never below `offset_min`."""
        return max(self.indexes.offset_before(timestamp_ms), offset_min, self.base_offset)

    def batch_at(self, position: int) -> BatchHeader:
        """Return the header of the batch at a position in the file."""
        return next(self._scan(position, HEADER_BYTES)).header

    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, or -1 if the segment is empty or the batch has no timestamp."""
        _ = self._is_inspected or self.file
        return self._first_timestamp_ms

    def largest_timestamp(self) -> tuple[int, int]:
        """Return the largest timestamp in ms and its batch's last offset; if there is none, -1 and the base offset."""
        _ = self._is_inspected or self.file
        return self.indexes.max_timestamp_ms, self.indexes.max_timestamp_offset

    def retention_timestamp_ms(self) -> int:
        """Return the largest timestamp, or the file's modification time if there is none, for retention by time."""
        timestamp_ms, _ = self.largest_timestamp()
        return timestamp_ms if timestamp_ms >= 0 else self._environment.files.modified_ms(self.path(checkpoints.LOG))

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the log."""
        self.indexes.clear()
        for _ in self._observe_from(self.base_offset, SCAN_CHUNK_BYTES):
            pass
        self._write_indexes()

    def recover(self, recovery_point: int) -> Iterator[BatchHeader]:
        """Check the batches from the recovery point on, including the CRC, and yield the headers of the valid batches.

        The file is truncated before the first invalid batch. InvalidBatch is raised instead if the invalid batch was
        synced (is below the recovery point), and is not cut off by the end of the file.
        """
        self._is_inspected = True
        self._clear_wrong_indexes()
        self.transactions.truncate_to(recovery_point)  # The replay adds the removed transactions again.
        end_offset = self.base_offset
        try:
            for batch in self._observe_from(recovery_point, SCAN_CHUNK_BYTES, crc_from=recovery_point):
                if batch.position == 0:
                    self._first_timestamp_ms = batch.header.max_timestamp_ms
                end_offset = batch.header.last_offset + 1
                yield batch.header
        except InvalidBatch as invalid:
            if end_offset < recovery_point and not invalid.torn:
                raise
            self._cut(invalid.position)
        self._write_indexes()

    def truncate_to(self, offset: int) -> None:
        """Cut off the batches that end at `offset` or later. After any OSError but HalfDone, nothing has changed."""
        found = self.find(offset)
        if found:
            with half_done():
                self._cut(found.position)
                self.transactions.truncate_to(offset)
                for _ in self._observe_from(offset, LOOKUP_CHUNK_BYTES):
                    pass

    def _cut(self, length: int) -> None:
        self.file.truncate(length)
        self.size_bytes = length
        self._room = NO_ROOM

    def seal(self) -> None:
        """Write the index entries, including the largest timestamp, before a roll or a close."""
        if self._is_inspected:
            self._room = NO_ROOM
            self.indexes.seal()
            self.transactions.flush()

    def sync_calls(self) -> list[Callable[[], None]]:
        """Write the pending index entries; return functions that sync the segment's files, to be run in a thread."""
        log = self.file
        self.indexes.flush()
        self.transactions.flush()
        indexes = (self.path(checkpoints.INDEX), self.path(checkpoints.TIME_INDEX))
        calls = [log.sync, *(self._environment.files.open_file(path).sync for path in indexes)]
        return [*calls, self.transactions.sync] if self.transactions else calls

    def deleted_names(self) -> list[tuple[str, str]]:
        """Close the files; return the path of each file, and the path with the suffix `.deleted` to rename it to."""
        self.close_file()
        paths = map(self.path, checkpoints.SEGMENT_SUFFIXES)
        return [(path, path + checkpoints.DELETED) for path in paths if self._environment.files.exists(path)]

    def moved_to(self, directory: str) -> None:
        """Set the directory to which the files were moved."""
        self.directory = directory
        self.indexes.offsets.path = self.path(checkpoints.INDEX)
        self.indexes.times.path = self.path(checkpoints.TIME_INDEX)
        self.transactions.path = self.path(checkpoints.TXN_INDEX)

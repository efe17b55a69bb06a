"""The offset index and time index of a segment, and the segment's largest timestamp."""

from contextlib import suppress
from typing import Final, NamedTuple

from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.segments.index_pages import IndexPages
from barnabas_broker.storage.segments.indexes import OFFSET_ENTRY, TIME_ENTRY, SparseIndex

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
NO_TIMESTAMP: Final = -1
_OFFSET_BYTES: Final = OFFSET_ENTRY.size
_TIME_BYTES: Final = TIME_ENTRY.size


class IndexedBatch(NamedTuple):
    """An entry of the offset index: the batch that ends with `last_offset` begins at `position`."""

    last_offset: int
    position: int


class SegmentIndexes:
    """The indexes of a segment, with a new entry after each `interval_bytes` of log.

    The time index gets an entry only if the largest timestamp has risen.
    """

    __slots__ = (
        "_base_offset",
        "_covered_until",
        "_indexed_timestamp_ms",
        "_interval_bytes",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offsets",
        "times",
    )

    def __init__(self, offsets: SparseIndex, times: SparseIndex, base_offset: int, interval_bytes: int) -> None:
        self.offsets = offsets
        self.times = times
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._covered_until = interval_bytes
        """The position in the segment after which the next batch gets an index entry."""
        self._indexed_timestamp_ms = NO_TIMESTAMP

    @classmethod
    def of(
        cls,
        files: FileSystem,
        paths: tuple[str, str],
        sizes: tuple[int, int],
        base_offset: int,
        interval_bytes: int,
        pages: IndexPages,
    ) -> "SegmentIndexes":
        """Return the indexes for an `.index` and a `.timeindex` file with the given paths and sizes in bytes."""
        offsets = SparseIndex(files, paths[0], OFFSET_ENTRY, sizes[0], pages)
        times = SparseIndex(files, paths[1], TIME_ENTRY, sizes[1], pages)
        return cls(offsets, times, base_offset, interval_bytes)

    def observe(self, position: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Observe the next batch of the segment.

        Add an index entry if the batches since the last entry have more than `interval_bytes`. Write the new entries to
        the files when they fill a page.
        """
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if position <= self._covered_until:
            return
        self._covered_until = position + self._interval_bytes
        if self.max_timestamp_ms > self._indexed_timestamp_ms:
            self._add_time_entry()
        if self.offsets.append(last_offset - self._base_offset, position):
            with suppress(OSError):  # The batch is written already, and the next flush writes its index entry.
                self.flush()

    def _add_time_entry(self) -> None:
        if self.max_timestamp_ms > self._indexed_timestamp_ms:
            self.times.append(self.max_timestamp_ms, self.max_timestamp_offset - self._base_offset)
            self._indexed_timestamp_ms = self.max_timestamp_ms

    def flush(self) -> None:
        """Write the entries that are only in memory."""
        self.offsets.flush()
        self.times.flush()

    def seal(self) -> None:
        """Add the largest timestamp as the last time index entry, and write all entries, before a roll or a close."""
        self._add_time_entry()
        self.flush()

    def floor(self, offset: int) -> IndexedBatch | None:
        """Return the last indexed batch that ends at or before `offset`, or None."""
        entry = self.offsets.floor(offset - self._base_offset)
        return IndexedBatch(self._base_offset + entry[0], entry[1]) if entry else None

    def offset_behind(self, position: int) -> int | None:
        """Return the last offset of the first indexed batch at or after `position`, or None."""
        entry = self.offsets.ceiling(position)
        return self._base_offset + entry[0] if entry else None

    def offset_before(self, timestamp_ms: int) -> int:
        """Return an offset at which a search for the first record with `timestamp_ms` or later can begin.

        All batches that end before the returned offset have only earlier timestamps.
        """
        entry = self.times.floor(timestamp_ms)
        return self._base_offset + (entry[1] if entry else 0)

    def are_sane(self, log_bytes: int) -> bool:
        """True if the offset index and the time index are plausible for a `.log` file of `log_bytes`.

        Only the sizes of the indexes and their first and last entries are checked.
        """
        return self.offsets.is_sane(log_bytes - 1) and self.times.is_sane(RELATIVE_OFFSET_MAX)

    @property
    def size_bytes(self) -> int:
        """The size in bytes of the larger of the two indexes."""
        return max(self.offsets.count * _OFFSET_BYTES, self.times.count * _TIME_BYTES)

    def are_full(self, bytes_max: int) -> bool:
        """True if one of the indexes takes no more entries."""
        return self.offsets.count >= bytes_max // _OFFSET_BYTES or self.times.count >= bytes_max // _TIME_BYTES

    def bytes_until_full(self, bytes_max: int) -> int:
        """Return a lower bound for the number of bytes that can be appended before an index is full."""
        entries_left = min(bytes_max // _OFFSET_BYTES - self.offsets.count, bytes_max // _TIME_BYTES - self.times.count)
        return max(entries_left - 1, 0) * self._interval_bytes

    def truncate_to(self, offset: int) -> IndexedBatch | None:
        """Remove the entries of batches that end at `offset` or later; return the last remaining entry, or None.

        The caller has to call `observe` for the batches from the returned entry on, or for all batches if no entry
        remains. Earlier batches are not needed, because the time index has their largest timestamp.
        """
        relative = offset - self._base_offset - 1
        self.offsets.truncate(self.offsets.count_up_to(relative))
        self.times.truncate(self.times.count_up_to(relative, field=1))
        newest_time, newest = self.times.last(), self.offsets.last()
        self.max_timestamp_ms, relative = newest_time or (NO_TIMESTAMP, 0)
        self.max_timestamp_offset = self._base_offset + relative
        self._indexed_timestamp_ms = self.max_timestamp_ms
        position = newest[1] if newest else 0
        self._covered_until = position + self._interval_bytes
        return IndexedBatch(self._base_offset + newest[0], position) if newest else None

    def create_files(self) -> None:
        """Create empty index files, or truncate existing ones to zero bytes. Kafka's tools expect both files."""
        self.offsets.create_file()
        self.times.create_file()
        self.clear()

    def clear(self) -> None:
        """Forget all entries, in memory and in the files."""
        self.truncate_to(self._base_offset)

"""The sparse indexes of a segment, `.index` and `.timeindex`: sorted entries of fixed size.

New entries stay in memory until `flush` writes them: when the segment is rolled, closed or synced, or when a page is
full. A crash loses only entries above the recovery point, and recovery rebuilds these entries. A lookup leaves no file
open, but keeps the page that it read until `IndexPages` drops the page.

The `.txnindex` of a segment: the aborted transactions with markers in the segment, in Kafka's format. New entries
stay in memory until `flush`; recovery after a crash restores lost entries. All methods raise OSError.
"""

import struct
from bisect import bisect_left, bisect_right
from contextlib import suppress
from random import Random
from threading import Lock
from typing import Final, NamedTuple, Protocol

from barnabas_broker.storage.disk.files import FileSystem, OpenFiles
from barnabas_broker.storage.errors import lacks_space

PAGES_MAX: Final = 2_048
"""The largest number of cached pages: 4 or 6 KiB each, about 10 MiB in total.

A lookup in an index without a cached page reads from the index file with a few `pread` calls.
"""


class HoldsPage(Protocol):
    """An index with a cached page."""

    def drop_page(self) -> None:
        """Drop the cached page."""
        ...


class IndexPages:
    """The indexes that have a page in memory, at most `pages_max` indexes.

    A lock guards them, because the threads that load logs use them, too.
    """

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self._pages_max = pages_max
        self._holders: dict[HoldsPage, None] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def kept(self, holder: HoldsPage) -> None:
        """Register an index that has cached a page; drop the oldest page if more than `pages_max` are cached."""
        with self._lock:
            self._holders.pop(holder, None)
            self._holders[holder] = None
            if len(self._holders) > self._pages_max:
                oldest = next(iter(self._holders))
                del self._holders[oldest]
                oldest.drop_page()


PAGE_ENTRIES: Final = 512
"""The number of entries in a page: 4 KiB of offset index, for at least 2 MiB of log."""

OFFSET_ENTRY: Final = struct.Struct(">ii")
"""The last offset of a batch, relative to the segment's base offset, and the position of the batch."""
TIME_ENTRY: Final = struct.Struct(">qi")
"""The largest timestamp so far (ms), and the relative last offset of the batch with this timestamp."""
NO_PAGE: Final = (0, b"")
"""The value of `_page` if no page is cached: entry number 0, and no bytes."""


class SparseIndex:
    """An index file whose entries are pairs of numbers; both numbers rise from entry to entry."""

    __slots__ = ("_entry", "_files", "_page", "_page_bytes", "_pages", "_tail", "_written", "path")

    def __init__(self, files: FileSystem, path: str, entry: struct.Struct, size_bytes: int, pages: IndexPages) -> None:
        self.path = path
        self._files = files
        self._pages = pages
        self._entry = entry
        self._written = size_bytes // entry.size
        self._page_bytes = PAGE_ENTRIES * entry.size
        self._tail = bytearray()
        self._page = NO_PAGE

    def append(self, first: int, second: int) -> bool:
        """Add an entry in memory. Return True if a whole page of entries waits to be written."""
        self._tail += self._entry.pack(first, second)
        return len(self._tail) >= self._page_bytes

    @property
    def count(self) -> int:
        """The number of entries, in the file and in memory."""
        return self._written + len(self._tail) // self._entry.size

    def flush(self) -> None:
        """Write the pending entries."""
        if self._tail:
            self._files.open_file(self.path).append(self._tail, self._written * self._entry.size)
            self._written, self._tail = self.count, bytearray()
            self._page = NO_PAGE

    def drop_page(self) -> None:
        """Drop the cached page. `IndexPages` may call this method in another thread."""
        self._page = NO_PAGE

    def last(self) -> tuple[int, int] | None:
        """Return the newest entry, or None if there is none."""
        return self._read(self.count - 1) if self.count else None

    def floor(self, target: int) -> tuple[int, int] | None:
        """Return the last entry whose first number (offset or timestamp) is at most `target`.

        Return None if there is no such entry.
        """
        count = self.count_up_to(target)
        return self._read(count - 1) if count else None

    def ceiling(self, target: int) -> tuple[int, int] | None:
        """Return the first entry whose second number (position or, in a time index, offset) is at least `target`.

        Return None if there is no such entry.
        """
        count = self.count_up_to(target - 1, field=1)
        return self._read(count) if count < self.count else None

    def count_up_to(self, target: int, field: int = 0) -> int:
        """Count the entries whose first number (`field` 0) or second number (`field` 1) is not above `target`."""
        entry = self._entry
        if self._tail and entry.unpack_from(self._tail)[field] <= target:
            return self._written + self._bisect(self._tail, target, field)
        if not self._written:
            return 0
        start, page = self._page
        if not self._covers(start, page, target, field):
            start, page = self._load_page(target, field)
        return start + self._bisect(page, target, field)

    def truncate(self, count: int) -> None:
        """Keep only the first `count` entries. The file is only shortened, which works on a full disk, too."""
        if count < self._written:
            self._files.open_file(self.path).truncate(count * self._entry.size)
            self._written, self._page = count, NO_PAGE
        del self._tail[(count - self._written) * self._entry.size :]

    def create_file(self) -> None:
        """Create an empty file, or truncate an existing file to zero bytes.

        If the disk is too full to create the file, a later `flush` creates it.
        """
        self._written = 0
        self._tail, self._page = bytearray(), NO_PAGE
        try:
            file = self._files.open_file(self.path)
        except OSError as error:
            if not lacks_space(error):
                raise
        else:
            file.truncate(0)

    def is_sane(self, last_second_max: int) -> bool:
        """True if the file has only whole entries, and its first and last entries are in order and within bounds."""
        file = self._files.open_file(self.path)
        if file.size_bytes() != self._written * self._entry.size:
            return False
        if not self._written:
            return True
        first, last = self._read(0), self._read(self._written - 1)
        rises = self._written == 1 or (last[0] > first[0] and last[1] > first[1])
        return rises and min(*first, *last) >= 0 and last[1] <= last_second_max

    def _read(self, number: int) -> tuple[int, int]:
        size, (start, page) = self._entry.size, self._page
        if number >= self._written:
            found = self._entry.unpack_from(self._tail, (number - self._written) * size)
        elif start <= number < start + len(page) // size:
            found = self._entry.unpack_from(page, (number - start) * size)
        else:
            found = self._entry.unpack(self._files.open_file(self.path).read_at(number * size, size))
        return found[0], found[1]

    def _bisect(self, entries: bytes | bytearray, target: int, field: int) -> int:
        unpack, size = self._entry.unpack_from, self._entry.size

        def value(number: int) -> int:
            found: int = unpack(entries, number * size)[field]
            return found

        return bisect_right(range(len(entries) // size), target, key=value)

    def _covers(self, start: int, page: bytes, target: int, field: int) -> bool:
        """True if `count_up_to` finds its result within `page`.

        The first entry of `page` is entry `start` of the index file; the entries are counted from 0.
        """
        size = self._entry.size
        if not page:
            return False
        starts = start == 0 or self._entry.unpack_from(page)[field] <= target
        is_last = start + len(page) // size == self._written
        return bool(starts and (is_last or self._entry.unpack_from(page, len(page) - size)[field] > target))

    def _load_page(self, target: int, field: int) -> tuple[int, bytes]:
        """Read and cache the page in which `count_up_to` finds its result; return its first entry number and bytes."""
        file, size = self._files.open_file(self.path), self._entry.size

        def first_value(page: int) -> int:
            found: int = self._entry.unpack(file.read_at(page * PAGE_ENTRIES * size, size))[field]
            return found

        pages = range((self._written + PAGE_ENTRIES - 1) // PAGE_ENTRIES)
        page = max(bisect_right(pages, target, key=first_value) - 1, 0)
        start = page * PAGE_ENTRIES
        length = min(PAGE_ENTRIES, self._written - start)
        found = self._page = start, file.read_at(start * size, length * size)
        self._pages.kept(self)
        return found


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


class SegmentEnvironment(Protocol):
    """The attributes of a `LogEnvironment` that segments need."""

    @property
    def files(self) -> FileSystem:
        """The file system with the segment's files."""
        ...

    @property
    def open_files(self) -> OpenFiles:
        """The cap on the number of open files."""
        ...

    @property
    def random(self) -> Random:
        """The random numbers for the jitter of segment rolls."""
        ...

    @property
    def segment_bytes_max(self) -> int:
        """The largest size of a segment, regardless of its settings."""
        ...

    @property
    def index_pages(self) -> IndexPages:
        """The cache of index pages."""
        ...


_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
_BLOCK_BYTES: Final = 128 * _ENTRY.size
"""The size of the blocks of entries that are skipped together."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction, with its marker at `last_offset`.

    When the marker was written, all transactions below `last_stable_offset` had ended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The transaction index of a segment, which is read at its first use."""

    __slots__ = ("_base_offset", "_entries", "_files", "_lowest", "_written_bytes", "is_damaged", "path")

    def __init__(self, files: FileSystem, path: str, size_bytes: int, base_offset: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self.is_damaged = False
        """True if an entry was found that cannot be true; this and later entries are missing until a rebuild."""
        self._files = files
        self._written_bytes = size_bytes
        self._entries: bytearray | None = None if size_bytes else bytearray()
        self._lowest: list[int] = []
        """The lowest first offset in each block of entries."""

    def __bool__(self) -> bool:
        return bool(self._written_bytes or self._entries)

    def check(self) -> bool:
        """Read the file, and return True if it has an entry that cannot be true. The entries do not stay in memory."""
        entries = self._load()
        if len(entries) == self._written_bytes and entries:
            self._entries, self._lowest = None, []
        return self.is_damaged

    def clear(self) -> None:
        """Remove all entries, in memory and in the file, before they are added again from the log."""
        self._keep(bytearray())
        self._files.open_file(self.path).truncate(0)
        self._written_bytes, self.is_damaged = 0, False

    def add(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction in memory, unless the index already has the transaction.

        Transactions must be added in the order of their markers.
        """
        entries = self._load()
        if not entries or _last_offset(entries, -1) < aborted.last_offset:
            block = len(entries) // _BLOCK_BYTES
            if block == len(self._lowest):
                self._lowest.append(aborted.first_offset)
            self._lowest[block] = min(self._lowest[block], aborted.first_offset)
            entries += index_entry(aborted)

    def overlapping(self, offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions with a marker at `offset` or above that began below `end_offset`.

        The second result is True if later segments have no such transactions. A transaction that stays open for long
        leaves many entries of others after its first offset, so blocks without a match are skipped.
        """
        entries, found = self._load(), list[AbortedTransaction]()
        start = self._count_below(offset) * _ENTRY.size
        for block in range(start // _BLOCK_BYTES, len(self._lowest)):
            end = min((block + 1) * _BLOCK_BYTES, len(entries))
            if self._lowest[block] < end_offset:
                some = memoryview(entries)[max(start, block * _BLOCK_BYTES) : end]
                found += [AbortedTransaction(*each[1:]) for each in _ENTRY.iter_unpack(some) if each[2] < end_offset]
            if _ENTRY.unpack_from(entries, end - _ENTRY.size)[4] >= end_offset:
                return found, True  # All transactions that end later begin at or above this last stable offset.
        return found, False

    def _count_below(self, offset: int) -> int:
        """Return the number of transactions whose markers are below `offset`."""
        entries = self._load()
        return bisect_left(range(len(entries) // _ENTRY.size), offset, key=lambda each: _last_offset(entries, each))

    def _keep(self, entries: bytearray) -> None:
        """Keep the entries in memory, with the lowest first offset in each block."""
        self._entries = entries
        blocks = (entries[at : at + _BLOCK_BYTES] for at in range(0, len(entries), _BLOCK_BYTES))
        self._lowest = [min([each[2] for each in _ENTRY.iter_unpack(block)]) for block in blocks]

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions whose markers are at `offset` or above."""
        entries, kept = self._load(), self._count_below(offset) * _ENTRY.size
        if kept < self._written_bytes:
            self._files.open_file(self.path).truncate(kept)
            self._written_bytes = kept
        self._keep(entries[:kept])

    def flush(self) -> None:
        """Write the pending entries."""
        if self._entries is not None and len(self._entries) > self._written_bytes:
            file = self._files.open_file(self.path)
            file.append(memoryview(self._entries)[self._written_bytes :], self._written_bytes)
            self._written_bytes = len(self._entries)

    def sync(self) -> None:
        """Sync the written entries. The call blocks."""
        if self._written_bytes:
            self._files.open_file(self.path).sync()

    def _load(self) -> bytearray:
        """Read the entries up to the first one that cannot be true; the loading of the log rebuilds such an index."""
        if self._entries is None:
            data = self._files.open_file(self.path).read_at(0, self._written_bytes)
            entries = bytearray(data[: self._true_bytes(data)])
            self.is_damaged = len(entries) < self._written_bytes
            self._keep(entries)
            return entries
        return self._entries

    def _true_bytes(self, data: bytes) -> int:
        """Return the size of the entries before the first one that is incomplete or cannot be true."""
        true_bytes, last = 0, self._base_offset - 1
        for version, *fields in _ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size]):
            if version != _VERSION or not _may_be_true(AbortedTransaction(*fields), last):
                break
            true_bytes, last = true_bytes + _ENTRY.size, fields[2]
        return true_bytes


def index_entry(aborted: AbortedTransaction) -> bytes:
    """Return the entry in its format on the disk."""
    return _ENTRY.pack(_VERSION, *aborted)


def _may_be_true(aborted: AbortedTransaction, last_before: int) -> bool:
    """True if the entry fits itself, its segment and the entry before it, whose marker is at `last_before`."""
    producer_id, first_offset, last_offset, last_stable_offset = aborted
    return (
        producer_id >= 0
        and 0 <= first_offset < last_offset
        and last_before < last_offset
        and 0 <= last_stable_offset <= last_offset + 1
    )


def _last_offset(entries: bytearray, number: int) -> int:
    """Return the marker offset of an entry; number -1 is the last entry."""
    start = number * _ENTRY.size if number >= 0 else len(entries) - _ENTRY.size
    found: int = _ENTRY.unpack_from(entries, start)[3]
    return found

"""The sparse indexes of a segment, `.index` and `.timeindex`: sorted entries of fixed size.

New entries stay in memory until `flush` writes them: when the segment is rolled, closed or synced, or when a page is
full. A crash loses only entries above the recovery point, and recovery rebuilds these entries. A lookup leaves no file
open, but keeps the page that it read until `IndexPages` drops the page.
"""

import struct
from bisect import bisect_right
from typing import Final

from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.errors import lacks_space
from barnabas_broker.storage.segments.index_pages import IndexPages

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

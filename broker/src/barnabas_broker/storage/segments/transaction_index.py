"""The `.txnindex` of a segment: the aborted transactions with markers in the segment, in Kafka's format.

New entries stay in memory until `flush`; recovery after a crash restores lost entries. All methods raise OSError.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas_broker.storage.disk.files import FileSystem

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


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

    __slots__ = ("_entries", "_files", "_written_bytes", "path")

    def __init__(self, files: FileSystem, path: str, size_bytes: int) -> None:
        self.path = path
        self._files = files
        self._written_bytes = size_bytes
        self._entries: bytearray | None = None if size_bytes else bytearray()

    def __bool__(self) -> bool:
        return bool(self._written_bytes or self._entries)

    def add(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction in memory, unless the index already has the transaction.

        Transactions must be added in the order of their markers.
        """
        entries = self._load()
        if not entries or _last_offset(entries, -1) < aborted.last_offset:
            entries += index_entry(aborted)

    def since(self, offset: int) -> Iterator[AbortedTransaction]:
        """Yield the transactions whose markers are at `offset` or above."""
        entries = self._load()
        count = len(entries) // _ENTRY.size
        for number in range(bisect_left(range(count), offset, key=lambda each: _last_offset(entries, each)), count):
            yield AbortedTransaction._make(_ENTRY.unpack_from(entries, number * _ENTRY.size)[1:])

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions whose markers are at `offset` or above."""
        entries = self._load()
        count = len(entries) // _ENTRY.size
        kept = bisect_left(range(count), offset, key=lambda each: _last_offset(entries, each)) * _ENTRY.size
        if kept < self._written_bytes:
            self._files.open_file(self.path).truncate(kept)
            self._written_bytes = kept
        del entries[kept:]

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
        """Read the entries, and cut the file before the first entry that is incomplete, invalid or out of order."""
        if self._entries is None:
            data = bytearray(self._files.open_file(self.path).read_at(0, self._written_bytes))
            whole = last = 0
            for version, _, _, last_offset, _ in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]):
                if version != _VERSION or (whole and last_offset <= last):
                    break
                whole, last = whole + _ENTRY.size, last_offset
            self._entries = data[:whole]
            if whole < self._written_bytes:
                self._files.open_file(self.path).truncate(whole)
                self._written_bytes = whole
        return self._entries


def index_entry(aborted: AbortedTransaction) -> bytes:
    """Return the entry in its format on the disk."""
    return _ENTRY.pack(_VERSION, *aborted)


def _last_offset(entries: bytearray, number: int) -> int:
    """Return the marker offset of an entry; number -1 is the last entry."""
    start = number * _ENTRY.size if number >= 0 else len(entries) - _ENTRY.size
    found: int = _ENTRY.unpack_from(entries, start)[3]
    return found

"""The `.txnindex` of a segment: the aborted transactions with markers in the segment, in Kafka's format.

New entries stay in memory until `flush`; recovery after a crash restores lost entries. All methods raise OSError.
"""

import struct
from bisect import bisect_left
from typing import Final, NamedTuple

from barnabas_broker.storage.disk.files import FileSystem

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

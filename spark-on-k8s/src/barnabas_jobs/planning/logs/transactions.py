"""The aborted transactions of a segment, found by their abort markers, and a check that its `.txnindex` agrees."""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from barnabas_jobs.planning.logs.batches import HEADER_BYTES, Batch
from barnabas_jobs.planning.logs.indexes import NAMED_MAX, Wrong
from barnabas_jobs.planning.logs.names import TRANSACTION_INDEX
from barnabas_jobs.planning.logs.problems import TRANSACTION_INDEX_DAMAGED, Problem
from barnabas_jobs.planning.logs.records import varint

TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
ABORT: Final = 0
COMMIT: Final = 1
ENTRY: Final = struct.Struct(">hqqqq")
"""An index entry: version, producer id, first offset of the transaction, offset of the marker, last stable offset."""
ENTRY_VERSION: Final = 0
_KEY: Final = struct.Struct(">hh")


class _Abort(NamedTuple):
    producer_id: int
    is_whole: bool
    """True if a batch of the transaction is in this segment, so that the segment's index must list the transaction."""


class SegmentTransactions:
    """The abort markers of a segment, by offset."""

    def __init__(self) -> None:
        self._writing: set[int] = set()
        self._aborts: dict[int, _Abort] = {}

    def add(self, batch: Batch, data: memoryview) -> str | None:
        """Add the next batch; return the problem if its marker is neither a commit nor an abort."""
        if not batch.attributes & TRANSACTIONAL_BIT:
            return None
        if not batch.attributes & CONTROL_BIT:
            self._writing.add(batch.producer_id)
            return None
        is_whole = batch.producer_id in self._writing
        self._writing.discard(batch.producer_id)
        if not batch.records:  # Compaction has removed all records of the batch.
            return None
        kind = _kind(data)
        if kind == ABORT:
            self._aborts[batch.base_offset] = _Abort(batch.producer_id, is_whole)
        return None if kind in (ABORT, COMMIT) else "a control batch of a transaction is neither a commit nor an abort"

    def wrong_in_index(self, data: bytes, *, is_active: bool) -> Iterator[Problem]:
        """Yield at most NAMED_MAX problems of the transaction index.

        In an active segment, missing entries are no problem: the broker may have added them after the index was read.
        """
        for place, offset, detail in islice(self._wrong(data, is_active), NAMED_MAX):
            yield Problem(TRANSACTION_INDEX_DAMAGED, TRANSACTION_INDEX, place, offset, detail)

    def _wrong(self, data: bytes, is_active: bool) -> Iterator[Wrong]:
        whole = len(data) // ENTRY.size * ENTRY.size
        if whole < len(data) and not is_active:
            yield whole, None, f"the size of {len(data)} bytes is not a multiple of {ENTRY.size}"
        listed, before = set(), -1
        for number, (version, producer_id, first, last, stable) in enumerate(ENTRY.iter_unpack(data[:whole])):
            wrong = self._wrong_entry(version, producer_id, first, last, stable)
            if last <= before:
                wrong = (
                    f"the index entries are not in ascending order: the marker at offset {last} comes after the marker "
                    f"at offset {before}"
                )
            if wrong is not None:
                yield number * ENTRY.size, last, wrong
            before = last
            listed.add(last)
        for offset, abort in self._aborts.items():
            if abort.is_whole and offset not in listed and not is_active:
                yield (
                    whole,
                    offset,
                    f"the transaction index lacks producer {abort.producer_id}'s abort marker at offset {offset}",
                )

    def _wrong_entry(self, version: int, producer_id: int, first: int, last: int, stable: int) -> str | None:
        abort = self._aborts.get(last)
        if version != ENTRY_VERSION:
            return f"version {version} is unknown; allowed: {ENTRY_VERSION}"
        if abort is None or abort.producer_id != producer_id:
            return f"the index has an entry, but producer {producer_id} has no abort marker at offset {last}"
        if not 0 <= first < last:
            return f"a transaction that was aborted at offset {last} begins at offset {first}"
        if stable > last + 1:
            return f"the last stable offset {stable} is above the marker at offset {last}"
        return None


def _kind(data: memoryview) -> int | None:
    """Return the type of a transaction marker, or None if the type cannot be read.

    The type is the second number in the key of the batch's first record.
    """
    try:
        _, position = varint(data, HEADER_BYTES)
        _, position = varint(data, position + 1)
        _, position = varint(data, position)
        length, position = varint(data, position)
        return None if length < _KEY.size else int(_KEY.unpack_from(data, position)[1])
    except (IndexError, struct.error):
        return None

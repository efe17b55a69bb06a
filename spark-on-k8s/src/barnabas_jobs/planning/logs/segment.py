"""The audit of one segment: its batches, and its indexes against the batches."""

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas_jobs.planning.logs.batches import Batch, Read, SegmentExtent, Window, walk
from barnabas_jobs.planning.logs.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    BatchPlaces,
    index_positions,
    used_part,
    wrong_in_index,
    wrong_in_time_index,
)
from barnabas_jobs.planning.logs.names import INDEX, LOG, TIME_INDEX
from barnabas_jobs.planning.logs.problems import (
    BAD_MARKER,
    BAD_RECORDS,
    INDEX_DAMAGED,
    OFFSET_GAP,
    TIME_INDEX_DAMAGED,
    Problem,
)
from barnabas_jobs.planning.logs.records import Decompress, wrong_in_records
from barnabas_jobs.planning.logs.transactions import SegmentTransactions

PROBLEMS_NAMED_MAX: Final = 100
"""The largest number of reported problems of each kind in a `.log` file."""


class SegmentFiles(NamedTuple):
    """The files of a segment: a function `read` that reads the `.log` file, and the content of each index file.

    The content is None if the index file is missing. The index files were read before the `.log` file.
    """

    extent: SegmentExtent
    read: Read
    offset_index: bytes | None
    time_index: bytes | None
    transaction_index: bytes | None = None


class _Named:
    """The number of problems of each kind in a `.log` file. The first PROBLEMS_NAMED_MAX of each kind are reported."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._last: dict[str, Problem] = {}

    def takes(self, problem: Problem) -> bool:
        """Count a problem; return True if it is one of the first PROBLEMS_NAMED_MAX of its kind."""
        self._last[problem.kind] = problem
        self._counts[problem.kind] += 1
        return self._counts[problem.kind] <= PROBLEMS_NAMED_MAX

    def summaries(self) -> Iterator[Problem]:
        """Yield one more problem for each kind that has more than PROBLEMS_NAMED_MAX problems.

        The text of this problem says how many problems of the kind come after the first PROBLEMS_NAMED_MAX.
        """
        for kind, last in self._last.items():
            more = self._counts[kind] - PROBLEMS_NAMED_MAX
            if more > 0:
                text = f"the file has {more} more problems of this kind; the position is that of the last one"
                yield last._replace(detail=text)


def audited(files: SegmentFiles, decompress: Decompress | None) -> Iterator[Batch | Problem]:
    """Yield the batches and the problems of a segment.

    After PROBLEMS_NAMED_MAX problems of a kind, only the number of further ones is yielded. Records are checked only
    with `decompress`. Indexes are checked only if the batches have no problems except offset gaps.
    """
    window, places, transactions = Window(files.read), BatchPlaces(), SegmentTransactions()
    index = _used(files, files.offset_index, OFFSET_ENTRY)
    named, is_sound = _Named(), True
    for found in walk(window, files.extent, index_positions(index or b"")):
        if isinstance(found, Batch):
            places.add(found)
            yield found
            if found.crc == found.computed_crc:
                data = window.at(found.position, found.size_bytes)
                yield from filter(named.takes, _wrong_inside(data, found, transactions, decompress))
            continue
        is_sound = is_sound and found.kind == OFFSET_GAP
        if named.takes(found):
            yield found
    yield from named.summaries()
    if is_sound and places.positions:
        yield from _wrong_indexes(files, index, places)
    # After a compaction, the transaction index may list transactions whose markers have been removed.
    if is_sound and not files.extent.has_gaps:
        yield from transactions.wrong_in_index(files.transaction_index or b"", is_active=files.extent.is_active)


def _wrong_inside(
    data: memoryview, batch: Batch, transactions: SegmentTransactions, decompress: Decompress | None
) -> Iterator[Problem]:
    """Yield the problems inside a batch whose CRC matches its bytes."""
    wrong_marker = transactions.add(batch, data)
    if wrong_marker:
        yield Problem(BAD_MARKER, LOG, batch.position, batch.base_offset, wrong_marker)
    wrong = wrong_in_records(data, batch, decompress) if decompress is not None else None
    if wrong:
        yield Problem(BAD_RECORDS, LOG, batch.position, batch.base_offset, wrong)


def _used(files: SegmentFiles, data: bytes | None, kind: struct.Struct) -> bytes | None:
    return data if data is None or not files.extent.is_active else used_part(data, kind)


def _wrong_indexes(files: SegmentFiles, index: bytes | None, places: BatchPlaces) -> Iterator[Problem]:
    base_offset = files.extent.base_offset
    times = _used(files, files.time_index, TIME_ENTRY)
    if index is None:
        yield Problem(INDEX_DAMAGED, INDEX, 0, None, "the offset index is missing, although the segment has batches")
    else:
        yield from wrong_in_index(index, base_offset, places)
    if times is None:
        yield Problem(
            TIME_INDEX_DAMAGED, TIME_INDEX, 0, None, "the time index is missing, although the segment has batches"
        )
    else:
        yield from wrong_in_time_index(times, base_offset, places)

"""The records of one partition of an archived topic, in the order of offsets, and the notes of their restores.

Each data file is sorted by partition and offset, so a reader merges the files that hold offsets of the partition, and
sorts nothing. It opens a file only when it comes to the file's first offset, so few files are open at a time.

The notes have the plan of each restore, for runs that continue it, and a lock for each target topic. They are in the
archive, or in the folder that the option `state` names, if the archive is read-only.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow
from pyarrow import ArrowException, compute
from pyarrow.parquet import ParquetFile
from pyiceberg.io import FileIO

from barnabas_jobs.files.store import Store
from barnabas_jobs.planning.archived import ArchivedFile
from barnabas_jobs.planning.errors import JobFailed

COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers")
ROWS_MAX: Final = 5000
BATCH_BYTES: Final = 16 << 20
"""The size of a batch of rows, which a reader holds in memory for each open file; a larger row is a batch by itself."""
BUFFER_BYTES: Final = 256 << 10
"""The size of the buffer for each column of an open file."""

Batches = Iterator[pyarrow.RecordBatch]


class Unreadable(JobFailed):
    """A data file of an archive that cannot be read, or records that are not in the order of offsets."""


class Wanted(NamedTuple):
    """The records to read: offsets from `start` to `end` and timestamps in ms from `from_ms` to `to_ms`.

    The starts are inclusive and the ends are exclusive.
    """

    partition: int
    start: int
    end: int
    from_ms: int | None = None
    to_ms: int | None = None


class PartitionRecords:
    """The wanted records of one partition. Spark sends it to the executor that reads them.

    `io` opens files by their URLs.
    """

    def __init__(self, io: FileIO, files: Iterable[ArchivedFile], wanted: Wanted) -> None:
        self.io = io
        self.wanted = wanted
        self.files = sorted((first, each.path) for each in files if (first := _first_offset(each, wanted)) is not None)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield partition, timestamp in ms, key, value and headers of each record, in the order of offsets.

        Raises Unreadable if a file cannot be read, or if an offset is in the files twice.
        """
        last = -1
        for batch in merged([(first, partial(self._batches, path)) for first, path in self.files]):
            if not _ascends(batch, last):
                offsets = batch.column("offset")
                raise Unreadable(
                    f"partition {self.wanted.partition} has an offset from {offsets[0]} to {offsets[-1]} twice; run "
                    "`verify`, and delete one of the two records from the table"
                )
            last = _last(batch)
            yield from _rows(batch)

    def _batches(self, path: str) -> Batches:
        """Yield the wanted rows of one file. The checksum of each page is compared."""
        last = -1
        try:
            with self.io.new_input(path).open() as stream:
                file = ParquetFile(stream, buffer_size=BUFFER_BYTES, page_checksum_verification=True)
                for batch in _wanted_of(file, self.wanted):
                    if not _ascends(batch, last):
                        raise Unreadable(
                            f"the data file {path} is not sorted by partition and offset; let the program that has "
                            "written it rewrite it in the sort order of the table"
                        )
                    last = _last(batch)
                    yield batch
        except (OSError, ArrowException) as error:
            raise Unreadable(
                f"the data file {path} cannot be read: {error}. If `compact` has replaced the file meanwhile, run the "
                "job again; otherwise restore the file from a backup"
            ) from error


def _first_offset(file: ArchivedFile, wanted: Wanted) -> int | None:
    """Return an offset that no wanted record in the file is below, or None if the file has no wanted record."""
    low, high = file.partition_min, file.partition_max
    if low is not None and high is not None and not low <= wanted.partition <= high:
        return None
    first = wanted.start if file.offset_min is None else max(file.offset_min, wanted.start)
    last = wanted.end - 1 if file.offset_max is None else file.offset_max
    return first if first < wanted.end and last >= wanted.start else None


def _wanted_of(file: Any, wanted: Wanted) -> Batches:
    """Yield the wanted rows of an open Parquet file, in batches that are not empty."""
    for group in range(file.num_row_groups):
        if rows := _rows_of_batch(file.metadata.row_group(group), wanted):
            for batch in file.iter_batches(rows, [group], COLUMNS):
                if (chosen := _filtered(batch, wanted)).num_rows:
                    yield chosen


def _ascends(batch: pyarrow.RecordBatch, last: int) -> bool:
    """True if each offset is above the one before it, and the first one is above `last`."""
    offsets = batch.column("offset").to_numpy()
    return bool(offsets[0] > last and (offsets[1:] > offsets[:-1]).all())


def _last(batch: pyarrow.RecordBatch) -> int:
    return int(batch.column("offset")[-1].as_py())


def _rows_of_batch(group: Any, wanted: Wanted) -> int:
    """Return how many rows of a row group make a batch, or 0 if the row group has no wanted row."""
    columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
    for name, low, high in (
        ("partition", wanted.partition, wanted.partition),
        ("offset", wanted.start, wanted.end - 1),
    ):
        found = columns[name].statistics
        if found is not None and found.has_min_max and not (found.min <= high and found.max >= low):
            return 0
    return max(1, min(ROWS_MAX, BATCH_BYTES * int(group.num_rows) // max(1, int(group.total_byte_size))))


def _filtered(batch: pyarrow.RecordBatch, wanted: Wanted) -> pyarrow.RecordBatch:
    """Return the wanted rows, with the timestamp in ms as `timestamp_ms`."""
    milliseconds = pyarrow.timestamp("ms", "UTC")
    time = compute.cast(batch.column("timestamp"), milliseconds, safe=False).cast(pyarrow.int64())
    batch = batch.append_column("timestamp_ms", time)
    field = compute.field
    condition = (
        (field("partition") == wanted.partition) & (field("offset") >= wanted.start) & (field("offset") < wanted.end)
    )
    if wanted.from_ms is not None:
        condition &= field("timestamp_ms") >= wanted.from_ms
    if wanted.to_ms is not None:
        condition &= field("timestamp_ms") < wanted.to_ms
    return batch.filter(condition)


def _rows(batch: pyarrow.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as tuples, built from columns, since rows as dicts take ten times as long."""
    names = ("partition", "timestamp_ms", "key", "value", "headers")
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


class _Open:
    """A file that is being read: its next rows, which are not empty, and the batches after them."""

    def __init__(self, batches: Batches) -> None:
        self._more = batches
        self._rows = next(batches, None)

    @property
    def rows(self) -> pyarrow.RecordBatch:
        """The next rows, in the order of offsets."""
        assert self._rows is not None, "a file that was read to its end"
        return self._rows

    @property
    def has_ended(self) -> bool:
        """True if the file has no further rows."""
        return self._rows is None

    @property
    def first(self) -> int:
        """The offset of the next row."""
        return int(self.rows.column("offset")[0].as_py())

    @property
    def last(self) -> int:
        """The last offset of the next rows."""
        return _last(self.rows)

    def take(self, limit: int) -> pyarrow.RecordBatch:
        """Return the next rows up to this offset (inclusive), and go on behind them."""
        rows = self.rows
        count = int(rows.column("offset").to_numpy().searchsorted(limit, "right"))
        self._rows = rows.slice(count) if count < rows.num_rows else next(self._more, None)
        return rows.slice(0, count)


def merged(files: Sequence[tuple[int, Callable[[], Batches]]]) -> Batches:
    """Merge the rows of files by offset. Each file comes with an offset that none of its rows is below.

    A file is opened only when all rows below that offset have been read.
    """
    waiting = deque(sorted(files, key=lambda each: each[0]))
    opened: list[_Open] = []
    while waiting or opened:
        first = min((each.first for each in opened), default=None)
        if waiting and (first is None or waiting[0][0] <= first):
            opened += [each for each in (_Open(waiting.popleft()[1]()),) if not each.has_ended]
            continue
        limit = min(each.last for each in opened)
        if waiting:
            limit = min(limit, waiting[0][0] - 1)
        yield _joined([each.take(limit) for each in opened if each.first <= limit])
        opened = [each for each in opened if not each.has_ended]


def _joined(parts: Sequence[pyarrow.RecordBatch]) -> pyarrow.RecordBatch:
    """Return the rows of several files in the order of offsets."""
    if len(parts) == 1:
        return parts[0]
    (whole,) = pyarrow.Table.from_batches(parts).sort_by("offset").combine_chunks().to_batches()
    return whole


RESTORES: Final = "restores"


class RestoreNotes:
    """The plans and locks of restores, in the archive itself or in the folder that the option `state` names."""

    def __init__(self, store: Store, *, in_archive: bool) -> None:
        self._store = store
        self._in_archive = in_archive

    def check_writable(self) -> None:
        """Create the folder for plans and locks. Raises JobFailed if this fails.

        A restore calls this before it changes the cluster.
        """
        try:
            self._store.make(RESTORES)
            self._store.check_add()
        except JobFailed as failure:
            if not self._in_archive:
                raise
            hint = "a restore writes its plan into the archive, or into another folder with state=FOLDER"
            raise type(failure)(f"{failure}; {hint}") from failure

    @contextmanager
    def restored_by_us(self, into_id: str) -> Iterator[None]:
        """Keep other runs from restoring into this topic id while the block runs, if the store has locks.

        Raises JobFailed if another run is restoring into the topic id.
        """
        with self._store.locked(f"{RESTORES}/{into_id}.lock", "is restoring into the same topic"):
            yield

    def plan(self, name: str, into_id: str) -> bytes | None:
        """Return the plan that an earlier run of this restore has stored, or None if there is none."""
        return self._store.read(_plan(name, into_id))

    def keep_plan(self, name: str, into_id: str, plan: bytes) -> None:
        """Store the plan of this restore, so that later runs can continue the restore.

        Raises JobFailed if another run has stored a plan first. This can happen only in a store without locks, which
        cannot keep two runs from beginning the same restore.
        """
        if not self._store.add(_plan(name, into_id), plan):
            raise JobFailed(f"another run of the restore name={name} has begun; wait until that run has ended")


def _plan(name: str, into_id: str) -> str:
    return f"{RESTORES}/{name}-into-{into_id}.json"

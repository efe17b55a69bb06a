"""`kafka-segments`, a Spark data source that reads segment files without a broker, with one task for each segment.

    spark.dataSource.register(SegmentSource)
    spark.read.format("kafka-segments").option("log_dirs", "1:/data/1,2:/data/2").load()

Each row describes one batch: the fields of its header, and the CRC computed over its bytes. A row whose `problem` is
not null describes a problem instead. `problem` is then a kind from `planning.logs.batches`, or `gone` if the segment
vanished while it was read.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from barnabas_jobs.files.log_dirs import Replica, check, looked_at_alone, parse_log_dirs, replicas
from barnabas_jobs.planning.logs.batches import (
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    UNREADABLE,
    Batch,
    Decompress,
    Problem,
    SegmentExtent,
    segment_file,
)
from barnabas_jobs.planning.logs.indexes import SegmentFiles, audited

if TYPE_CHECKING:
    import pyarrow

GONE: Final = "gone"
ROWS: Final = 16_384
"""The number of batches in one Arrow record batch."""
LOOKS: Final = 3
"""The maximum number of times that a segment with problems is read: files that change meanwhile can seem damaged."""
PLACE: Final = "broker int, log_dir string, topic string, partition int, segment long"
BATCH: Final = (
    "position long, base_offset long, last_offset long, epoch int, size_bytes int, crc long, computed_crc long, "
    "attributes int, max_timestamp_ms long, records int"
)
PROBLEM: Final = "problem string, suffix string, detail string"
SCHEMA: Final = f"{PLACE}, {BATCH}, {PROBLEM}"


class SegmentTask(InputPartition):
    """A task that reads one segment."""

    def __init__(self, replica: Replica, base_offset: int, *, has_gaps: bool) -> None:
        self.replica = replica
        self.base_offset = base_offset
        self.has_gaps = has_gaps

    @property
    def is_active(self) -> bool:
        """True if the segment was the active segment of its log when the log was listed."""
        return self.base_offset == self.replica.segments[-1]

    def again(self) -> "SegmentTask":
        """List the log of the segment again, and return the task with the new listing.

        The log may have been truncated since the first listing.
        """
        with suppress(OSError):
            looks = looked_at_alone(self.replica)
            now = self.replica._replace(segments=looks.now.segments or (self.base_offset,), offsets=looks.offsets)
            return SegmentTask(now, self.base_offset, has_gaps=self.has_gaps)
        return self

    def path(self, suffix: str) -> str:
        """Return the path of the segment's file with this suffix."""
        return os.path.join(self.replica.path, segment_file(self.base_offset, suffix))


class SegmentSource(DataSource):
    """The data source `kafka-segments`.

    Its options are `log_dirs`, `topics` and `compacted` (topics that may lack offsets), each with commas between the
    items, and `deep`, which is `true` if records are checked, too.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `spark.read.format`."""
        return "kafka-segments"

    def schema(self) -> str:
        """Return the columns of the rows that the source yields, as a schema string of Spark."""
        return SCHEMA

    def reader(self, schema: Any) -> "SegmentReader":  # noqa: ARG002  # Spark passes the argument by name.
        """Return a reader with the options that `spark.read` was given."""
        listed = {name: self.options.get(name, "").split(",") for name in ("log_dirs", "topics", "compacted")}
        return SegmentReader(
            listed["log_dirs"], listed["topics"], listed["compacted"], self.options.get("deep") == "true"
        )


class SegmentReader(DataSourceReader):
    """A reader that lists the segments in the driver and reads each in a task."""

    def __init__(self, log_dirs: Sequence[str], topics: Sequence[str], compacted: Sequence[str], deep: bool) -> None:
        self._log_dirs = list(log_dirs)
        self._topics = set(topics) - {""}
        self._compacted = set(compacted)
        self._deep = deep

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task for each segment, log by log.

        Raises JobFailed if the log dirs do not belong to the named brokers of one cluster, or cannot be listed.
        """
        log_dirs = parse_log_dirs(self._log_dirs)
        check(log_dirs)
        listed = replicas(log_dirs, self._topics)
        cleaned = {each.partition for each in listed if each.offsets.clean_until is not None}
        return [
            SegmentTask(
                each, base_offset, has_gaps=each.partition in cleaned or each.partition.topic in self._compacted
            )
            for each in listed
            for base_offset in each.segments
        ]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """Yield a row for each batch of a segment, in file order, and then a row for each problem.

        If problems were found and the files have changed meanwhile, the segment is read again. Then only the problems
        of the last read are yielded.
        """
        assert isinstance(partition, SegmentTask)
        rows = Rows(partition)
        decompress = _decompress if self._deep else None
        problems: list[Problem] = []
        before = _identity(partition)
        for found in _audited(partition, decompress):
            if isinstance(found, Problem):
                problems.append(found)
            elif rows.add(found) == ROWS:
                yield rows.taken()
        if rows.batches:
            yield rows.taken()
        if problems:
            yield rows.of_problems(_seen_again(partition, problems, before, decompress))


def _seen_again(
    task: SegmentTask, problems: list[Problem], before: "Identity", decompress: Decompress | None
) -> list[Problem]:
    """Read the segment again as long as its files change between two reads; return the problems of the final read.

    The segment is read at most LOOKS times, including the first read, which found `problems`.
    """
    for _ in range(LOOKS - 1):
        now = _identity(task)
        if now == before:
            break
        before, task = now, task.again()
        problems = [each for each in _audited(task, decompress) if isinstance(each, Problem)]
    return problems


Identity = list[tuple[int, int, int] | None]
"""The inode, size and modification time of each file of a segment."""


def _identity(task: SegmentTask) -> Identity:
    found: Identity = []
    for suffix in SEGMENT_SUFFIXES:
        try:
            stat = os.stat(task.path(suffix))
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


def _audited(task: SegmentTask, decompress: Decompress | None) -> Iterator[Batch | Problem]:
    """Yield the batches and problems of a segment, or a problem if the segment has vanished or cannot be read.

    Indexes are read first, so that the `.log`, which is read afterwards, holds everything to which they point.
    """
    try:
        indexes = [_whole(task.path(suffix)) for suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX)]
        with open(task.path(LOG), "rb", buffering=0) as log:
            extent = SegmentExtent(
                task.base_offset,
                os.fstat(log.fileno()).st_size,
                task.is_active,
                task.replica.offsets.recovery_point,
                task.has_gaps,
            )
            read = _reading(log.fileno())
            yield from audited(SegmentFiles(extent, read, *indexes), decompress)
    except FileNotFoundError:
        yield Problem(GONE, LOG, 0, None, "the segment vanished while it was read")
    except OSError as error:
        suffix = os.path.splitext(error.filename)[1] if error.filename else LOG
        yield Problem(UNREADABLE, suffix, 0, None, f"{os.strerror(error.errno or errno.EIO)}")


def _reading(descriptor: int) -> Any:
    return lambda position, length: os.pread(descriptor, length, position)


def _whole(path: str) -> bytes | None:
    with suppress(FileNotFoundError), open(path, "rb") as file:
        return file.read()
    return None


def _decompress(codec: str, data: bytes) -> bytes:
    """Decompress data with one of Kafka's codecs. Raises ValueError if the data are damaged."""
    import pyarrow

    try:
        if codec != "snappy":
            return bytes(pyarrow.CompressedInputStream(pyarrow.BufferReader(data), codec).read())
        return bytes(pyarrow.decompress(data, _snappy_bytes(data), codec))
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(str(error)) from error


def _snappy_bytes(data: bytes) -> int:
    """Return the decompressed length, which a snappy block states in its first bytes."""
    value = 0
    for number, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            break
    return value


def _arrow_schema() -> Any:
    import pyarrow

    kinds = {"int": pyarrow.int32(), "long": pyarrow.int64(), "string": pyarrow.string()}
    fields = (column.split() for column in SCHEMA.split(","))
    return pyarrow.schema([(name, kinds[kind]) for name, kind in fields])


class Rows:
    """The batches of one segment that were read, but not yet passed to Spark."""

    def __init__(self, task: SegmentTask) -> None:
        self._task = task
        self._schema = _arrow_schema()
        self.batches: list[Batch] = []

    def add(self, batch: Batch) -> int:
        """Add a batch, and return the number of batches since the last call of `taken`."""
        self.batches.append(batch)
        return len(self.batches)

    def taken(self) -> Any:
        """Return the added batches as an Arrow record batch, and forget them."""
        columns = list(zip(*self.batches, strict=True))
        self.batches = []
        return self._filled(len(columns[0]), dict(zip(Batch._fields, columns, strict=True)))

    def of_problems(self, problems: Sequence[Problem]) -> Any:
        """Return an Arrow record batch with one row for each problem."""
        names = {"kind": "problem", "offset": "base_offset"}
        columns = {
            names.get(name, name): [each[number] for each in problems] for number, name in enumerate(Problem._fields)
        }
        return self._filled(len(problems), columns)

    def _filled(self, count: int, columns: dict[str, Any]) -> Any:
        """Return an Arrow record batch of `count` rows with the given columns.

        The batch also has the columns that identify the segment; all other columns are null.
        """
        import pyarrow

        replica = self._task.replica
        place = (*replica.log_dir, *replica.partition, self._task.base_offset)
        constant = dict(zip(("broker", "log_dir", "topic", "partition", "segment"), place, strict=True))
        arrays = [
            pyarrow.array(columns[field.name], field.type)
            if field.name in columns
            else pyarrow.repeat(pyarrow.scalar(constant.get(field.name), field.type), count)
            for field in self._schema
        ]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

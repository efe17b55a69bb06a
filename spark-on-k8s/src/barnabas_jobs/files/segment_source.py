"""`kafka-segments`, a Spark data source that reads segment files without a broker, with one task for each segment.

    spark.dataSource.register(SegmentSource)
    spark.read.format("kafka-segments").option("log_dirs", "1:/data/1,2:/data/2").load()

Each row describes one batch: the fields of its header, and the CRC computed over its bytes. A row whose `problem` is
not null describes a problem instead. `problem` is then a kind from `planning.logs.batches`, or `gone` if the segment
vanished while it was read.

The log dirs of brokers on mounted volumes: their owners, replicas, segments and stray files. Nothing is written. A
broker may use the log dirs meanwhile, so files that vanish between two listings are left out.
"""

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.logs.batches import (
    CLEAN_OFFSETS,
    HIGH_WATERMARKS,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SEGMENT_SUFFIXES,
    STRAY,
    TIME_INDEX,
    TRANSACTION_INDEX,
    UNREADABLE,
    Batch,
    Decompress,
    Problem,
    SegmentExtent,
    belongs_to_log_dir,
    belongs_to_partition,
    is_being_cleaned,
    marked,
    parse_partition_dir,
    parse_segment_file,
    segment_file,
)
from barnabas_jobs.planning.logs.indexes import SegmentFiles, audited
from barnabas_jobs.planning.logs.replicas import (
    EpochStart,
    decode_epochs,
    decode_offsets,
    decode_owner,
    decode_topic_id,
)

Decoded = TypeVar("Decoded")


class LogDir(NamedTuple):
    """A log dir of a broker, and the path on which it is mounted here."""

    broker: int
    path: str


class Offsets(NamedTuple):
    """The checkpointed offsets of a partition; `clean_until` is None if the log was never compacted."""

    recovery_point: int
    high_watermark: int
    clean_until: int | None


class Replica(NamedTuple):
    """A replica: its folder, and the sorted base offsets of its segments.

    While the replica is being compacted, segments above `clean_until` may be compacted already.
    """

    log_dir: LogDir
    partition: TopicPartition
    topic_id: str | None
    path: str
    segments: tuple[int, ...]
    offsets: Offsets
    is_being_cleaned: bool


class Listings(NamedTuple):
    """A replica as listed before its files were read, and as listed after.

    A replica that has vanished has no segments in the second listing.
    """

    before: Replica
    now: Replica

    @property
    def offsets(self) -> Offsets:
        """Return the lower recovery point, the lower high watermark and the higher `clean_until` of `before` and `now`.

        These offsets hold for all that was read between the two listings, even if the log was truncated or compacted
        meanwhile.
        """
        one, other = self.before.offsets, self.now.offsets
        clean = [offset for offset in (one.clean_until, other.clean_until) if offset is not None]
        return Offsets(
            min(one.recovery_point, other.recovery_point),
            min(one.high_watermark, other.high_watermark),
            max(clean, default=None),
        )

    @property
    def clean_until(self) -> int | None:
        """Return the offset up to which the log may have been compacted, or None if the log was never compacted."""
        if self.before.is_being_cleaned or self.now.is_being_cleaned:
            return max(self.before.segments + self.now.segments, default=0)
        return self.offsets.clean_until


class Stray(NamedTuple):
    """A file or folder that belongs to no partition or cannot be read, with the reason."""

    log_dir: LogDir
    path: str
    detail: str


def parse_log_dirs(words: Sequence[str]) -> list[LogDir]:
    """Parse log dirs of the form `ID:FOLDER`."""
    return [LogDir(int(broker), path.rstrip("/") or "/") for broker, path in (word.split(":", 1) for word in words)]


def check(log_dirs: Sequence[LogDir]) -> None:
    """Raise JobFailed if a log dir is named twice or is another broker's, or if the log dirs are of several clusters.

    Raises JobFailed also if a log dir has no readable `meta.properties`.
    """
    first = None
    if twice := [each for each in log_dirs if log_dirs.count(each) > 1]:
        raise JobFailed(
            f"log_dirs={twice[0].broker}:{twice[0].path}: the log dir is given twice; name each log dir once"
        )
    for each in log_dirs:
        owner = _owner(each)
        if owner.node_id != each.broker:
            raise JobFailed(
                f"log_dirs={each.broker}:{each.path}: the log dir's {META_PROPERTIES} has node.id={owner.node_id}; "
                "give this ID before the path"
            )
        first = first or owner
        if owner.cluster_id != first.cluster_id:
            raise JobFailed(
                f"log_dirs={each.broker}:{each.path}: the log dir is of cluster.id={owner.cluster_id}; "
                f"{log_dirs[0].path} is of cluster.id={first.cluster_id}. Audit one cluster at a time."
            )


def _owner(log_dir: LogDir) -> Any:
    where = f"log_dirs={log_dir.broker}:{log_dir.path}"
    path = Path(log_dir.path) / META_PROPERTIES
    if not path.parent.is_dir():
        raise JobFailed(
            f"{where}: there is no such folder; name the mount point of the log dir of broker {log_dir.broker}"
        )
    try:
        return decode_owner(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise JobFailed(f"{where}: the folder has no {META_PROPERTIES}, so it is not a broker's log dir") from None
    except (OSError, ValueError) as error:
        raise JobFailed(f"{where}: {META_PROPERTIES} cannot be read: {_reason(error)}") from error


def replicas(log_dirs: Sequence[LogDir], topics: Collection[str]) -> list[Replica]:
    """Return the replicas of these topics, or of all topics if none is named.

    Checkpoints are read before segments are listed. Otherwise a log that grows in between could seem to end below its
    checkpointed offsets.
    """
    found = []
    for log_dir in log_dirs:
        offsets = offsets_of(log_dir)
        for path in _entries(Path(log_dir.path)):
            partition = parse_partition_dir(path.name)
            if partition is None or (topics and partition.topic not in topics):
                continue
            with suppress(OSError):  # The function `unreadable` reports the folder, unless a broker has deleted it.
                found.append(_replica(log_dir, partition, path, offsets(partition)))
    return found


def listed_again(log_dirs: Sequence[LogDir], listed: Sequence[Replica]) -> list[Listings]:
    """List the segments and checkpointed offsets of each replica again; return both listings of each replica."""
    topics = {each.partition.topic for each in listed}
    now = {(each.log_dir, each.partition): each for each in replicas(log_dirs, topics)}
    gone = Offsets(0, 0, None)
    return [
        Listings(each, now.get((each.log_dir, each.partition)) or each._replace(segments=(), offsets=gone))
        for each in listed
    ]


def listed_alone(listed: Replica) -> Listings:
    """List the segments and checkpointed offsets of the replica again; return both listings.

    Raises OSError if the replica's folder cannot be read.
    """
    offsets = offsets_of(listed.log_dir)(listed.partition)
    return Listings(listed, _replica(listed.log_dir, listed.partition, Path(listed.path), offsets))


def _replica(log_dir: LogDir, partition: TopicPartition, path: Path, offsets: Offsets) -> Replica:
    names = [entry.name for entry in path.iterdir()]
    files = [parsed for name in names if (parsed := parse_segment_file(name))]
    segments = tuple(sorted(each.offset for each in files if each.suffix == LOG))
    topic_id = None
    with suppress(OSError, ValueError):
        topic_id = decode_topic_id((path / PARTITION_METADATA).read_text(encoding="utf-8"))
    is_cleaned = is_being_cleaned(names, segments, offsets.clean_until or 0)
    return Replica(log_dir, partition, topic_id, str(path), segments, offsets, is_cleaned)


def offsets_of(log_dir: LogDir) -> Callable[[TopicPartition], Offsets]:
    """Return a function from a partition to its checkpointed offsets.

    As in a broker, a damaged checkpoint counts as empty.
    """
    flushed, committed, clean = (
        _decoded(Path(log_dir.path) / name, decode_offsets) or {}
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEAN_OFFSETS)
    )
    return lambda partition: Offsets(flushed.get(partition, 0), committed.get(partition, 0), clean.get(partition))


def leader_epochs(folder: str) -> list[EpochStart] | str | None:
    """Return the leader epochs in the folder's `leader-epoch-checkpoint`, or None if there is no such file.

    If the file cannot be read, return the reason as a text.
    """
    try:
        return decode_epochs((Path(folder) / LEADER_EPOCHS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return f"the file cannot be read: {_reason(error)}"


def _decoded(path: Path, decode: Callable[[str], Decoded]) -> Decoded | None:
    with suppress(OSError, ValueError):
        return decode(path.read_text(encoding="utf-8"))
    return None


def unreadable(log_dirs: Sequence[LogDir]) -> list[Stray]:
    """Return the partition folders that cannot be listed, and the checkpoints that cannot be read.

    A folder or checkpoint is returned only if two attempts to read it fail, because a broker may be changing the files.
    """
    return _seen_twice(log_dirs, _unreadable_in)


def _seen_twice(log_dirs: Sequence[LogDir], strays_in: Callable[[LogDir], Iterable[Stray]]) -> list[Stray]:
    found = [each for log_dir in log_dirs for each in strays_in(log_dir)]
    again = {each.path for log_dir in {one.log_dir for one in found} for each in strays_in(log_dir)}
    return [each for each in found if each.path in again]


def _unreadable_in(log_dir: LogDir) -> Iterator[Stray]:
    for path in _entries(Path(log_dir.path)):
        is_partition = parse_partition_dir(path.name) is not None
        if not is_partition and path.name not in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEAN_OFFSETS):
            continue
        try:
            if is_partition:
                os.listdir(path)
            else:
                decode_offsets(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            yield Stray(log_dir, str(path), f"the file cannot be read: {_reason(error)}")


def strays(log_dirs: Sequence[LogDir]) -> list[Stray]:
    """Return the files and folders that belong to no partition, and the index files without a `.log` file.

    The log dirs are listed twice, and only what both listings show is returned, because a broker may be moving files.
    """
    return _seen_twice(log_dirs, _strays_in)


def _strays_in(log_dir: LogDir) -> list[Stray]:
    found: list[Stray] = []
    for path in _entries(Path(log_dir.path)):
        if marked(path.name) == STRAY:
            why = "a broker renamed the folder to -stray, because the folder belonged to no replica of the broker"
            found.append(Stray(log_dir, str(path), f"{why}; the folder has {_size(path):,} bytes"))
        elif parse_partition_dir(path.name) is not None and path.is_dir():
            found += _strays_beside_segments(log_dir, path)
        elif marked(path.name) is None and not belongs_to_log_dir(path.name, is_folder=path.is_dir()):
            found.append(Stray(log_dir, str(path), "brokers never create a file or folder of this name"))
    return found


def _strays_beside_segments(log_dir: LogDir, folder: Path) -> Iterator[Stray]:
    names: set[str] = set()
    with suppress(JobFailed):  # `unreadable` reports a folder that cannot be listed.
        names = {path.name for path in _entries(folder)}
    segments = {parsed.offset for name in names if (parsed := parse_segment_file(name)) and parsed.suffix == LOG}
    for name in sorted(names):
        parsed = parse_segment_file(name)
        if parsed is not None and parsed.suffix in SEGMENT_SUFFIXES and parsed.offset not in segments:
            yield Stray(log_dir, str(folder / name), "the segment of this file has no .log file")
        elif parsed is None and not belongs_to_partition(name):
            yield Stray(log_dir, str(folder / name), "brokers never create a file of this name")


def _size(folder: Path) -> int:
    with suppress(OSError):
        return sum(path.stat().st_size for path in folder.iterdir())
    return 0


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JobFailed(f"{folder} cannot be listed: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


GONE: Final = "gone"
ROWS: Final = 16_384
"""The number of batches in one Arrow record batch."""
READS_MAX: Final = 3
"""The maximum number of times that a segment with problems is read: files that change meanwhile can seem damaged."""
PLACE: Final = "broker int, log_dir string, topic string, partition int, segment long"
BATCH: Final = (
    "position long, base_offset long, last_offset long, epoch int, size_bytes int, crc long, computed_crc long, "
    "attributes int, max_timestamp_ms long, records int"
)
PROBLEM: Final = "problem string, suffix string, detail string"
SCHEMA: Final = f"{PLACE}, {BATCH}, {PROBLEM}"
PROBLEM_COLUMNS: Final = ("problem", "suffix", "position", "base_offset", "detail")
"""The columns of the fields of `Problem`."""
KINDS: Final = {"int": pyarrow.int32(), "long": pyarrow.int64(), "string": pyarrow.string()}
ARROW: Final = pyarrow.schema([(name, KINDS[kind]) for name, kind in map(str.split, SCHEMA.split(","))])


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
            listings = listed_alone(self.replica)
            now = self.replica._replace(segments=listings.now.segments or (self.base_offset,), offsets=listings.offsets)
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

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield a row for each batch of a segment, in file order, and then a row for each problem.

        If problems were found and the files have changed meanwhile, the segment is read again. Then only the problems
        of the last read are yielded.
        """
        assert isinstance(partition, SegmentTask)
        decompress = _decompress if self._deep else None
        batches, problems, before = list[Batch](), list[Problem](), _identity(partition)
        for found in _audited(partition, decompress):
            if isinstance(found, Problem):
                problems.append(found)
                continue
            batches.append(found)
            if len(batches) == ROWS:
                yield _rows(partition, batches, Batch._fields)
                batches = []
        if batches:
            yield _rows(partition, batches, Batch._fields)
        if problems and (problems := _seen_again(partition, problems, before, decompress)):
            yield _rows(partition, problems, PROBLEM_COLUMNS)


def _seen_again(
    task: SegmentTask, problems: list[Problem], before: "Identity", decompress: Decompress | None
) -> list[Problem]:
    """Read the segment again as long as its files change between two reads; return the problems of the final read.

    The segment is read at most READS_MAX times, including the first read, which found `problems`.
    """
    for _ in range(READS_MAX - 1):
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


def _rows(task: SegmentTask, found: Sequence[tuple[Any, ...]], names: Sequence[str]) -> pyarrow.RecordBatch:
    """Return a row for each batch or problem, whose fields have these names in the rows.

    The rows also have the columns that identify the segment; all other columns are null.
    """
    columns = dict(zip(names, zip(*found, strict=True), strict=True))
    place = (*task.replica.log_dir, *task.replica.partition, task.base_offset)
    constant = dict(zip(("broker", "log_dir", "topic", "partition", "segment"), place, strict=True))
    arrays = [
        pyarrow.array(columns[field.name], field.type)
        if field.name in columns
        else pyarrow.repeat(pyarrow.scalar(constant.get(field.name), field.type), len(found))
        for field in ARROW
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=ARROW)

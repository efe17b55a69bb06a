"""The log dirs of brokers on mounted volumes: their owners, replicas, segments and stray files.

Nothing is written. A broker may use the log dirs meanwhile, so files that vanish between two listings are left out.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.logs.batches import (
    CLEAN_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SEGMENT_SUFFIXES,
    STRAY,
    belongs_to_log_dir,
    belongs_to_partition,
    is_being_cleaned,
    marked,
    parse_partition_dir,
    parse_segment_file,
)
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


class Looks(NamedTuple):
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


def looked_at_again(log_dirs: Sequence[LogDir], listed: Sequence[Replica]) -> list[Looks]:
    """List the segments and checkpointed offsets of each replica again; return both listings of each replica."""
    topics = {each.partition.topic for each in listed}
    now = {(each.log_dir, each.partition): each for each in replicas(log_dirs, topics)}
    gone = Offsets(0, 0, None)
    return [
        Looks(each, now.get((each.log_dir, each.partition)) or each._replace(segments=(), offsets=gone))
        for each in listed
    ]


def looked_at_alone(listed: Replica) -> Looks:
    """List the segments and checkpointed offsets of the replica again; return both listings.

    Raises OSError if the replica's folder cannot be read.
    """
    offsets = offsets_of(listed.log_dir)(listed.partition)
    return Looks(listed, _replica(listed.log_dir, listed.partition, Path(listed.path), offsets))


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


def _seen_twice(log_dirs: Sequence[LogDir], look: Callable[[LogDir], Iterable[Stray]]) -> list[Stray]:
    found = [each for log_dir in log_dirs for each in look(log_dir)]
    again = {each.path for log_dir in {one.log_dir for one in found} for each in look(log_dir)}
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

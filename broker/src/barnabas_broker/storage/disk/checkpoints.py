"""The encoding of the small text files of a log dir, in Kafka's formats.

The files are offset checkpoints, leader epochs, `partition.metadata`, `meta.properties` and `.kafka_cleanshutdown`. A
decoder raises ValueError if the content is malformed.

The `.snapshot` files of a log have the producer state at each segment's base offset and at the last shutdown. They have
version 1 of Kafka's format.
"""

import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.wire.record_batch import crc32c
from barnabas_core import kafka_uuid
from barnabas_core.topic_partition import LEADER_EPOCH_MAX, TopicPartition

NO_EPOCH: Final = -1


class EpochStart(NamedTuple):
    """The start of a leader epoch: the offset of the first batch that its leader wrote."""

    epoch: int
    start_offset: int


def _encode_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def _decode_lines(data: bytes, fields: int) -> list[list[str]]:
    lines = data.decode().splitlines()
    if len(lines) < 2 or lines[0] != "0":
        raise ValueError(
            f"the first line is {lines[0] if lines else ''!r}, but the file must begin with the "
            f"version 0 and the number of entries, each on its own line"
        )
    rows = [line.split() for line in lines[2:] if line]
    if len(rows) != int(lines[1]):
        raise ValueError(f"the file has {len(rows)} entries, but its second line announces {lines[1]}")
    for row in rows:
        if len(row) != fields:
            raise ValueError(f"the line {' '.join(row)!r} has {len(row)} fields, but must have {fields}")
    return rows


def _number(text: str, largest: int = 2**63 - 1) -> int:
    number = int(text)
    if not 0 <= number <= largest:
        raise ValueError(f"the number {number} is out of range; 0 to {largest} are allowed")
    return number


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode an offset checkpoint like `recovery-point-offset-checkpoint`: one `topic partition offset` per line."""
    return _encode_lines([f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items()])


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Decode an offset checkpoint. Raises ValueError."""
    rows = _decode_lines(data, 3)
    return {TopicPartition(topic, _number(partition)): _number(offset) for topic, partition, offset in rows}


def encode_epochs(epochs: Iterable[EpochStart]) -> bytes:
    """Encode `leader-epoch-checkpoint`: one `epoch start-offset` per line."""
    return _encode_lines([f"{entry.epoch} {entry.start_offset}" for entry in epochs])


def decode_epochs(data: bytes) -> list[EpochStart]:
    """Decode `leader-epoch-checkpoint`. Raises ValueError."""
    epochs = [EpochStart(_number(epoch, LEADER_EPOCH_MAX), _number(start)) for epoch, start in _decode_lines(data, 2)]
    for before, after in pairwise(epochs):
        if before.epoch >= after.epoch or before.start_offset >= after.start_offset:
            raise ValueError(f"epochs and start offsets must rise, but {after} follows {before}")
    return epochs


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Encode `partition.metadata`, the file that holds the topic id."""
    return f"version: 0\ntopic_id: {kafka_uuid.to_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> UUID:
    """Return the topic id in a `partition.metadata` file. Raises ValueError."""
    fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError("the file must hold `version: 0` and `topic_id: ...`")
    return kafka_uuid.from_text(fields["topic_id"].strip())


def encode_clean_mark(broker_epoch: int) -> bytes:
    """Encode `.kafka_cleanshutdown`, the file that holds the broker epoch of a clean shutdown."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_mark(data: bytes) -> int:
    """Return the broker epoch in a `.kafka_cleanshutdown` file. Raises ValueError."""
    found = json.loads(data)
    if not isinstance(found, dict) or not isinstance(found.get("brokerEpoch"), int):
        raise ValueError("the file must be a JSON object with an integer brokerEpoch")
    return int(found["brokerEpoch"])


class LastIncarnation(NamedTuple):
    """The facts about a broker's previous run by which the next start decides whether unsynced data may be lost.

    `mark_epochs` has the broker epochs for which a clean shutdown marker is valid. `machine_ran_on` is True if the
    machine has not been rebooted since the previous run began. Even then, the log dirs in `cut_dirs` may have lost
    unsynced data: they were offline in the previous run, and the machine was rebooted after their last use.
    """

    mark_epochs: tuple[int, ...] = (NO_EPOCH,)
    machine_ran_on: bool = True
    cut_dirs: frozenset[UUID] = frozenset()


NO_INCARNATION: Final = LastIncarnation()


class MetaProperties(NamedTuple):
    """The cluster and node that own a log dir, and the id of the log dir."""

    cluster_id: str
    node_id: int
    directory_id: UUID


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Encode `meta.properties` (version 1), the file that names the owner of a log dir."""
    lines = (
        f"cluster.id={meta.cluster_id}",
        f"directory.id={kafka_uuid.to_text(meta.directory_id)}",
        f"node.id={meta.node_id}",
        "version=1",
    )
    return "".join(f"{line}\n" for line in lines).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Decode `meta.properties` of Kafka or of this broker. Raises ValueError if a property is missing."""
    lines = (line.strip() for line in data.decode().splitlines())
    fields = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    missing = {"version", "cluster.id", "node.id", "directory.id"} - fields.keys()
    if missing or fields["version"] != "1":
        raise ValueError(f"the file lacks {', '.join(sorted(missing)) or 'version=1'}")
    return MetaProperties(fields["cluster.id"], int(fields["node.id"]), kafka_uuid.from_text(fields["directory.id"]))


LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
INDEX_SUFFIXES: Final = (INDEX, TIME_INDEX, TXN_INDEX)
SEGMENT_SUFFIXES: Final = (LOG, *INDEX_SUFFIXES)
"""The suffixes of a segment's files. Producer snapshots are left out: they describe the records before a segment."""
ALL_SUFFIXES: Final = (*SEGMENT_SUFFIXES, SNAPSHOT)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEAN_OFFSETS: Final = "cleaner-offset-checkpoint"
SYNCED_LOGS: Final = "synced-logs-checkpoint"
"""The file that lists the logs in which only synced records are acknowledged (`Log.promises_synced`).

Kafka has no such file.
"""
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
SYNC_FAILED: Final = ".sync-failed"
"""The marker file of a log dir whose data must be rewritten after a failed sync. Kafka has no such file."""

FUTURE_DIR: Final = "-future"
DELETED_DIR: Final = "-delete"
STRAY_DIR: Final = "-stray"

_NAME_BYTES_MAX: Final = 255
_SEGMENT_FILE: Final = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?"
)
_PARTITION_DIR: Final = re.compile(r"([a-zA-Z0-9._-]+?)-(\d+)(?:\.[0-9a-f]{32}(-future|-delete|-stray))?")


class SegmentFile(NamedTuple):
    """A file name like `00000000000000000042.index.deleted`; `state` is `""`, `.deleted`, `.cleaned` or `.swap`."""

    offset: int
    suffix: str
    state: str


class PartitionDir(NamedTuple):
    """The parsed name of a directory, such as `flights-3` or `flights-3.<32 hex digits>-delete`.

    The `state` is `""`, `-delete`, `-future` or `-stray`.
    """

    topic_partition: TopicPartition
    state: str


def segment_file(offset: int, suffix: str) -> str:
    """Return the name of a segment's file, such as `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """Parse the name of a segment's file; return None for any other file."""
    match = _SEGMENT_FILE.fullmatch(name)
    return SegmentFile(int(match[1]), match[2], match[3] or "") if match else None


def marked_dir(topic_partition: TopicPartition, unique: UUID, state: str) -> str:
    """Return the directory name of a moved, deleted or stray partition; a long topic name is cut to fit 255 bytes."""
    ending = f"-{topic_partition.partition}.{unique.hex}{state}"
    return topic_partition.topic[: _NAME_BYTES_MAX - len(ending)] + ending


def parse_partition_dir(name: str) -> PartitionDir | None:
    """Parse the name of a partition's directory; return None for any other directory."""
    match = _PARTITION_DIR.fullmatch(name)
    return PartitionDir(TopicPartition(match[1], int(match[2])), match[3] or "") if match else None


_HEAD: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_COVERS_FROM: Final = 6
_VERSION: Final = 1


class SnapshotEntry(NamedTuple):
    """A batch of a producer, with the fields in the order of the file. `last_offset` is -1 if it is unknown."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Return the content of a `.snapshot` file, including the CRC."""
    rows = [_ENTRY.pack(*entry) for entry in entries]
    data = bytearray(_HEAD.pack(_VERSION, 0, len(rows)) + b"".join(rows))
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CRC_COVERS_FROM:]))
    return bytes(data)


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """Decode a snapshot. Raises ValueError if the file is malformed."""
    if len(data) < _HEAD.size:
        raise ValueError(f"the file has {len(data)} bytes, but its header needs {_HEAD.size}")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"the file has version {version}, but must have {_VERSION}")
    if crc32c(memoryview(data)[_CRC_COVERS_FROM:]) != crc:
        raise ValueError("the CRC in the file does not match the file's bytes")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise ValueError(f"the file has {len(data)} bytes, which is not the size of {count} entries")
    return [SnapshotEntry(*row) for row in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :])]


class LateSnapshot:
    """A large snapshot, which a thread writes to a temporary file before the event loop gives the file its name."""

    __slots__ = ("_entries", "_files", "is_begun", "is_written", "offset", "path", "temporary_path")

    def __init__(self, files: FileSystem, path: str, offset: int, entries: Iterable[SnapshotEntry]) -> None:
        self._files = files
        self._entries = entries
        self.offset = offset
        self.path = path
        self.temporary_path = path + ".tmp"
        self.is_begun = False
        self.is_written = False

    def write(self) -> None:
        """Write and sync the temporary file. The call blocks."""
        file = self._files.open_file(self.temporary_path)
        file.truncate(0)
        file.append(encode_snapshot(self._entries), 0)
        file.sync()
        self.is_written = True


class ProducerSnapshots:
    """The snapshots of one log, by offset. Raises OSError."""

    __slots__ = ("_files", "directory", "late", "offsets")

    def __init__(self, files: FileSystem, directory: str, offsets: Iterable[int]) -> None:
        self._files = files
        self.directory = directory
        self.offsets = sorted(offsets)
        self.late: LateSnapshot | None = None
        """The snapshot that the next sync of the log writes in a thread."""

    def moved_to(self, directory: str) -> None:
        """Set the directory of the snapshots."""
        self.directory, self.late = directory, None

    @property
    def latest_offset(self) -> int:
        """The offset of the newest snapshot; -1 if there is none."""
        return self.offsets[-1] if self.offsets else -1

    @property
    def latest_path(self) -> str:
        """The path of the newest snapshot; the file may not exist."""
        return self.path(self.latest_offset)

    def path(self, offset: int) -> str:
        """Return the path of the snapshot at an offset."""
        return f"{self.directory}/{segment_file(offset, SNAPSHOT)}"

    def load(self, offset_max: int) -> tuple[int, list[SnapshotEntry]] | None:
        """Return the newest snapshot up to `offset_max` and its offset, or None; remove newer and damaged snapshots."""
        while self.offsets:
            offset = self.offsets[-1]
            if offset <= offset_max:
                try:
                    return offset, decode_snapshot(self._files.read(self.path(offset)))
                except (ValueError, FileNotFoundError):
                    pass
            self._remove(offset)
        return None

    def newest_up_to(self, offset_max: int) -> tuple[int, list[SnapshotEntry]] | None:
        """Return the newest undamaged snapshot up to `offset_max` and its offset, or None; remove nothing."""
        for offset in reversed([each for each in self.offsets if each <= offset_max]):
            with suppress(ValueError, FileNotFoundError):
                return offset, decode_snapshot(self._files.read(self.path(offset)))
        return None

    def write(self, offset: int, entries: Iterable[SnapshotEntry]) -> None:
        """Write a snapshot, unless a snapshot at `offset` or above exists. A later flush syncs the file."""
        self.late = None
        if offset > self.latest_offset:
            self._files.write_atomically(self.path(offset), encode_snapshot(entries), sync=False)
            self.offsets.append(offset)

    def write_late(self, offset: int, entries: Iterable[SnapshotEntry]) -> None:
        """Leave the writing of a snapshot to a thread, unless a snapshot at `offset` or above exists.

        The thread reads `entries`, which therefore must not refer to producers that change.
        """
        if offset > self.latest_offset:
            self.late = LateSnapshot(self._files, self.path(offset), offset, entries)

    def late_calls(self) -> list[Callable[[], None]]:
        """Return the call that writes the late snapshot in a thread, or nothing if there is none or it was begun."""
        late = self.late
        if late is None or late.is_begun:
            return []
        late.is_begun = True
        return [late.write]

    def name_late(self) -> None:
        """Give the late snapshot its name if a thread has written it; a truncation below it has removed it before."""
        late = self.late
        if late is not None and late.is_written:
            self.late = None
            self._files.rename(late.temporary_path, late.path)
            self.offsets.append(late.offset)

    def keep_only(self, offsets: Iterable[int]) -> None:
        """Remove the snapshots whose offsets are not in `offsets`, except the newest snapshot."""
        kept = set(offsets)
        for offset in self.offsets[:-1]:
            if offset not in kept:
                self._remove(offset)

    def remove_after(self, offset: int) -> None:
        """Remove the snapshots above `offset`."""
        if self.late is not None and self.late.offset > offset:
            self.late = None
        for newer in [each for each in self.offsets if each > offset]:
            self._remove(newer)

    def clear(self) -> None:
        """Remove all snapshots."""
        self.late = None
        for offset in list(self.offsets):
            self._remove(offset)

    def _remove(self, offset: int) -> None:
        self._files.remove(self.path(offset))
        self.offsets.remove(offset)

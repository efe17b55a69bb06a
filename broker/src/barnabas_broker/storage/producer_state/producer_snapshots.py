"""The `.snapshot` files of a log: producer state at each segment's base offset and at the last shutdown.

They have version 1 of Kafka's format.
"""

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from crc32c import crc32c

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.files import FileSystem

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
        return f"{self.directory}/{checkpoints.segment_file(offset, checkpoints.SNAPSHOT)}"

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

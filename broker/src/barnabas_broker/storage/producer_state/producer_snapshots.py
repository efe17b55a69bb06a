"""The `.snapshot` files of a log: producer state at each segment's base offset and at the last shutdown."""

from collections.abc import Iterable

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.producer_state.producer_snapshot import SnapshotEntry, decode_snapshot, encode_snapshot


class ProducerSnapshots:
    """The snapshots of one log, by offset. Raises OSError."""

    __slots__ = ("_files", "directory", "offsets")

    def __init__(self, files: FileSystem, directory: str, offsets: Iterable[int]) -> None:
        self._files = files
        self.directory = directory
        self.offsets = sorted(offsets)

    def moved_to(self, directory: str) -> None:
        """Set the directory of the snapshots."""
        self.directory = directory

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
        return f"{self.directory}/{file_names.segment_file(offset, file_names.SNAPSHOT)}"

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

    def write(self, offset: int, entries: Iterable[SnapshotEntry]) -> None:
        """Write a snapshot, unless a snapshot at `offset` or above exists. A later flush syncs the file."""
        if offset > self.latest_offset:
            self._files.write_atomically(self.path(offset), encode_snapshot(entries), sync=False)
            self.offsets.append(offset)

    def keep_only(self, offsets: Iterable[int]) -> None:
        """Remove the snapshots whose offsets are not in `offsets`, except the newest snapshot."""
        kept = set(offsets)
        for offset in self.offsets[:-1]:
            if offset not in kept:
                self._remove(offset)

    def remove_after(self, offset: int) -> None:
        """Remove the snapshots above `offset`."""
        for newer in [each for each in self.offsets if each > offset]:
            self._remove(newer)

    def clear(self) -> None:
        """Remove all snapshots."""
        for offset in list(self.offsets):
            self._remove(offset)

    def _remove(self, offset: int) -> None:
        self._files.remove(self.path(offset))
        self.offsets.remove(offset)

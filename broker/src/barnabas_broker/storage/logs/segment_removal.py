"""The removal of a log's segments, and their replacement by compacted segments."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.errors import half_done
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_broker.storage.producer_state.producer_snapshots import ProducerSnapshots
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.storage.segments.segment_listing import listed_segments
from barnabas_broker.storage.segments.segments import Segments
from barnabas_broker.storage.segments.swap import finish_swap, promoted_names
from barnabas_core.config.log_config import LogConfig


class SegmentRemoval:
    """The removal of segments from a log's directory. All files of a segment are renamed, or none. Raises OSError."""

    __slots__ = ("_environment", "_segments", "_snapshots")

    def __init__(self, environment: LogEnvironment, segments: Segments, snapshots: ProducerSnapshots) -> None:
        self._environment = environment
        self._segments = segments
        self._snapshots = snapshots

    def discard(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Remove segments from the log, one after the other; their renamed files are deleted at `due_ms`."""
        for segment in segments:
            self.retire(segment, due_ms)
            self._segments.replace([segment], [])
        self._drop_snapshots()

    def retire(self, segment: Segment, due_ms: int) -> None:
        """Rename the files of a segment now, and delete them at `due_ms`; the caller drops the segment from the log."""
        names = segment.deleted_names()
        rename_all(self._environment.files, names)
        self._delete(names, due_ms)

    def swap(self, old: list[Segment], cleaned_offsets: Collection[int], config: LogConfig, due_ms: int) -> None:
        """Replace `old` segments by compacted ones, whose synced `.cleaned` files are in the directory."""
        files, directory = self._environment.files, self._snapshots.directory
        promoted = promoted_names(files, directory, cleaned_offsets)
        deleted = [names for segment in old for names in segment.deleted_names()]
        self._rename(promoted, deleted)
        with half_done():
            finish_swap(files, directory, cleaned_offsets)
            entries = files.scan(directory)
        self._delete(deleted, due_ms)
        listed, _ = listed_segments(self._environment, directory, config, entries)
        self._segments.replace(old, [segment for segment in listed if segment.base_offset in cleaned_offsets])
        self._drop_snapshots()

    def _rename(self, promoted: list[tuple[str, str]], deleted: list[tuple[str, str]]) -> None:
        """Rename the files of the new and of the replaced segments.

        After an error, undo all renames: the next start would otherwise replace the segments.
        """
        files = self._environment.files
        try:
            rename_all(files, [*promoted, *deleted])
        except OSError:
            with suppress(OSError):
                for path, _ in promoted:
                    files.remove(path)
            raise

    def _delete(self, names: list[tuple[str, str]], due_ms: int) -> None:
        for _, path in names:
            self._environment.trash.add(path, due_ms)

    def _drop_snapshots(self) -> None:
        self._snapshots.keep_only(segment.base_offset for segment in self._segments)


def rename_all(files: FileSystem, names: Sequence[tuple[str, str]]) -> None:
    """Rename each old path to its new path; undo all renames after an OSError.

    Raises the OSError, or HalfDone if a rename cannot be undone.
    """
    for number, (old, new) in enumerate(names):
        try:
            files.rename(old, new)
        except OSError:
            _rename_back(files, names[:number])
            raise


def _rename_back(files: FileSystem, names: Sequence[tuple[str, str]]) -> None:
    """Undo the renames, the last one first, so that a crash never leaves a later rename without the earlier ones."""
    for old, new in reversed(names):
        with half_done():
            files.rename(new, old)

"""The segments of a log, in the order of their offsets.

The replacement of old segments by compacted ones. A crash at any moment neither loses nor repeats records.
`.cleaned` files are incomplete, and the next start removes them. Complete and synced files are renamed to `.swap`,
and the old files are removed only after this rename. If a crash interrupts the swap after the rename, the next
start finishes the swap.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.files import FileEntry, FileSystem
from barnabas_broker.storage.errors import lacks_space
from barnabas_broker.storage.segments.indexes import SegmentEnvironment
from barnabas_broker.storage.segments.segment import SCAN_CHUNK_BYTES, FoundBatch, Segment, SegmentSizes, scan_batches
from barnabas_core.config.log_config import LogConfig


class Segments:
    """The segments of a log, at least one; the last one takes the appends.

    Raises OSError and InvalidBatch.
    """

    __slots__ = ("_segments", "active", "truncations")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self.active = segments[-1]
        self.truncations = 0
        """The number of truncations. If the number rises during a read, the data that was read may be invalid."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(list(self._segments))

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        """The bytes of all `.log` files."""
        return sum(segment.size_bytes for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        self._segments.append(segment)
        self.active = segment

    def truncated(self) -> None:
        """Count a truncation that begins now; syncs that began earlier will then not raise the recovery point."""
        self.truncations += 1

    def close_files(self) -> None:
        """Close all files without writing index entries; each file is opened again when it is used."""
        for segment in self._segments:
            segment.close_file()

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace `old` segments by `new` ones. At least one segment must be left."""
        kept = [segment for segment in self._segments if segment not in old]
        self._segments = sorted([*kept, *new], key=_base_offset)
        self.active = self._segments[-1]

    def end_offset(self, segment: Segment, log_end_offset: int) -> int:
        """Return the end offset of a segment: the base offset of the next segment, or the log end offset."""
        following = bisect_right(self._segments, segment.base_offset, key=_base_offset)
        return self._segments[following].base_offset if following < len(self._segments) else log_end_offset

    def starting_at(self, offset: int) -> list[Segment]:
        """Return the segment with `offset` and all later segments."""
        number = bisect_right(self._segments, offset, key=_base_offset) - 1
        return self._segments[max(number, 0) :]

    def batches_from(self, offset: int) -> Iterator[FoundBatch]:
        """Yield the batch with `offset` and all later batches."""
        for segment in self.starting_at(offset):
            if segment.size_bytes:
                yield from segment.batches_from(offset)

    def locate(self, offset: int) -> tuple[Segment, FoundBatch] | None:
        """Return the first batch that ends at `offset` or later, and its segment; None if there is no such batch."""
        for segment in [self.active] if offset >= self.active.base_offset else self.starting_at(offset):
            found = segment.find(offset)
            if found:
                return segment, found
        return None

    def end_position(self, segment: Segment, offset_max: int, log_end_offset: int) -> int:
        """Return the position in the segment's file at which the batches below `offset_max` end."""
        if offset_max >= log_end_offset or offset_max >= self.end_offset(segment, log_end_offset):
            return segment.size_bytes
        found = segment.find(offset_max)
        return found.position if found else segment.size_bytes


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


_MARKS: Final = (checkpoints.DELETED, checkpoints.CLEANED, checkpoints.SWAP, ".tmp")


def promoted_names(files: FileSystem, directory: str, offsets: Iterable[int]) -> list[tuple[str, str]]:
    """Return the path of each `.cleaned` file, and its path after the rename to `.swap`.

    If a crash interrupts the swap after this rename, the next start completes the swap.
    """
    return _names(files, directory, offsets, checkpoints.CLEANED, checkpoints.SWAP)


def finish_swap(files: FileSystem, directory: str, offsets: Iterable[int]) -> None:
    """Rename the `.swap` files to their final names."""
    for old, new in _names(files, directory, offsets, checkpoints.SWAP, ""):
        files.rename(old, new)


def _names(files: FileSystem, directory: str, offsets: Iterable[int], old: str, new: str) -> list[tuple[str, str]]:
    paths = [
        f"{directory}/{checkpoints.segment_file(offset, suffix)}"
        for offset in offsets
        for suffix in checkpoints.SEGMENT_SUFFIXES
    ]
    return [(path + old, path + new) for path in paths if files.exists(path + old)]


def finish_interrupted_swap(files: FileSystem, directory: str) -> list[FileEntry]:
    """Finish an interrupted swap of segments, and return the files that are then in `directory`.

    Files that are marked as unfinished or deleted are removed.
    """
    entries = files.scan(directory)
    marked = [entry.name for entry in entries if entry.name.endswith(_MARKS)]
    if not marked:
        return entries
    swaps = {name for name in marked if name.endswith(checkpoints.SWAP)}
    _remove_unfinished(files, [f"{directory}/{name}" for name in set(marked) - swaps])
    parsed_swaps = [parsed for name in swaps if (parsed := checkpoints.parse_segment_file(name))]
    for swap in parsed_swaps:
        if swap.suffix == checkpoints.LOG:
            _remove_replaced(files, directory, entries, swap.offset)
    finish_swap(files, directory, {swap.offset for swap in parsed_swaps})
    return files.scan(directory)


def _remove_unfinished(files: FileSystem, paths: Iterable[str]) -> None:
    """Remove files. If the disk is too full to remove a file, the file stays, which does no harm."""
    for path in paths:
        try:
            files.remove(path)
        except OSError as error:
            if not lacks_space(error):
                raise


def _remove_replaced(files: FileSystem, directory: str, entries: Iterable[FileEntry], base_offset: int) -> None:
    """Remove the old segments that the swap file replaces, from its base offset to its last offset."""
    path = f"{directory}/{checkpoints.segment_file(base_offset, checkpoints.LOG)}{checkpoints.SWAP}"
    file = files.open_file(path)
    end_offset = base_offset + 1
    for batch in scan_batches(file, 0, file.size_bytes(), base_offset, chunk_bytes=SCAN_CHUNK_BYTES):
        end_offset = batch.header.last_offset + 1
    for entry in entries:
        old = checkpoints.parse_segment_file(entry.name)
        if old and not old.state and old.suffix != checkpoints.SNAPSHOT and base_offset <= old.offset < end_offset:
            files.remove(f"{directory}/{entry.name}")


def listed_segments(
    environment: SegmentEnvironment, directory: str, config: LogConfig, entries: Iterable[FileEntry]
) -> tuple[list[Segment], list[int]]:
    """Return the segments, oldest first, and the offsets of the producer snapshots."""
    found: dict[str, dict[int, FileEntry]] = {suffix: {} for suffix in checkpoints.ALL_SUFFIXES}
    for entry in entries:
        parsed = checkpoints.parse_segment_file(entry.name)
        if parsed and not parsed.state:
            found[parsed.suffix][parsed.offset] = entry
    segments = [
        Segment(environment, directory, offset, config, _sizes(found, offset))
        for offset in sorted(found[checkpoints.LOG])
    ]
    return segments, sorted(found[checkpoints.SNAPSHOT])


def _sizes(found: dict[str, dict[int, FileEntry]], offset: int) -> SegmentSizes:
    log = found[checkpoints.LOG][offset]
    index, times = found[checkpoints.INDEX].get(offset), found[checkpoints.TIME_INDEX].get(offset)
    aborted = found[checkpoints.TXN_INDEX].get(offset)
    return SegmentSizes(
        log.size_bytes,
        index.size_bytes if index else None,
        times.size_bytes if times else None,
        log.modified_ns // 1_000_000,
        aborted.size_bytes if aborted else 0,
    )

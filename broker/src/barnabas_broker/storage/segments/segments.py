"""The segments of a log, in the order of their offsets."""

from bisect import bisect_right
from collections.abc import Iterator

from barnabas_broker.storage.segments.batch_scan import FoundBatch
from barnabas_broker.storage.segments.segment import Segment


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

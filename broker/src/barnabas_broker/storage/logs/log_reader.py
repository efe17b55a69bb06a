"""The lookup of the bytes for a fetch: their position and length."""

from typing import Final

from barnabas_broker.storage.segments.segments import Segments
from barnabas_broker.wire.parts import FileSlice

_TAILS_KEPT: Final = 8
"""The number of recent log end offsets whose file positions are cached.

A consumer at the log's end then needs no index lookup.
"""


class LogReader:
    """The reader of one log. Raises OSError and InvalidBatch."""

    __slots__ = ("_segments", "_tails")

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._tails: dict[int, int] = {}

    def forget_tails(self) -> None:
        """Forget the cached file positions of log end offsets, because a roll or truncation has made them invalid."""
        self._tails.clear()

    def read(
        self, offset: int, length_max: int, offset_max: int, log_end_offset: int, *, at_least_one_batch: bool
    ) -> FileSlice | None:
        """Return the batch with `offset` and later batches, as `Log.read` does; the log must have `offset`."""
        tail = self._tails.get(offset)
        if tail is not None:
            segment, position, first_batch_bytes = self._segments.active, tail, 0
        else:
            located = self._segments.locate(offset)
            if located is None:
                return None
            segment, position, first_batch_bytes = located[0], located[1].position, located[1].header.size_bytes
        end = self._segments.end_position(segment, offset_max, log_end_offset)
        length = end - position
        if length > length_max:
            first_batch_bytes = first_batch_bytes or segment.batch_at(position).size_bytes
            at_least = first_batch_bytes if at_least_one_batch else 0
            length = length_max if length_max >= first_batch_bytes else at_least
        elif segment is self._segments.active and offset_max >= log_end_offset:
            self._remember_tail(log_end_offset, end)
        return FileSlice(segment.file, position, length) if length > 0 else None

    def _remember_tail(self, offset: int, position: int) -> None:
        if len(self._tails) >= _TAILS_KEPT:
            self._tails.clear()
        self._tails[offset] = position

"""An estimate of when the records of a partition were written, made without reading them.

The estimate uses points (offset, time): every record below the offset was written at or before the time, and every
other record at or after the time. Each evaluation of the lag adds a point with the present log end offset and time.
Points for older records come from ListOffsets, which returns the first record with at least a given timestamp.
"""

from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

POINTS_MAX: Final = 128
POINTS_KEPT: Final = 96
KEPT_GAP: Final = 0.2
"""A point may be removed if the time between its two neighbours is at most this fraction of the older one's age."""
ASKED_GAP: Final = 0.05
"""The largest gap in time between two points at which no request is made for the time of a record between them.

The time of the record is then interpolated. The gap is a fraction of the older point's age.
"""
GAP_MIN_S: Final = 1.0


class Found(NamedTuple):
    """The first record with at least the asked timestamp; `time_s` is in seconds since the epoch."""

    offset: int
    time_s: float


class Timeline:
    """The timeline of one partition.

    Times are in seconds since the epoch; times and offsets never decrease.
    """

    __slots__ = ("_offsets", "_times")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._times = array("d")

    def __len__(self) -> int:
        return len(self._offsets)

    def look(self, now_s: float, end_offset: int) -> None:
        """Add a point for the end of the log at `now_s`, and remove some points if there are too many.

        If the log has become shorter, records were lost, so points above its end are removed.
        """
        keep = bisect_right(self._offsets, end_offset)
        del self._offsets[keep:], self._times[keep:]
        if self._times:
            now_s = max(now_s, self._times[-1])
        if len(self) >= 2 and self._offsets[-2] == self._offsets[-1] == end_offset:
            # The last two points have the present log end, so only the time of the last point changes.
            self._times[-1] = now_s
        else:
            self._insert(len(self), end_offset, now_s)
        if len(self) > POINTS_MAX:
            self._thin(now_s)

    def written_s(self, offset: int) -> float | None:
        """Return when the record at this offset was written, interpolated between the nearest (offset, time) points.

        Return None if the record is older than all points, or not yet written.
        """
        after = bisect_right(self._offsets, offset)
        if after in (0, len(self)):
            return None
        before, (low, high) = after - 1, (self._times[after - 1], self._times[after])
        share = (offset - self._offsets[before]) / (self._offsets[after] - self._offsets[before])
        return low + share * (high - low)

    def question(self, offset: int, now_s: float) -> float | None:
        """Return the timestamp for a ListOffsets request that narrows down when the record at `offset` was written.

        Return 0 if the record is older than all (offset, time) points, and None if no request is needed.
        """
        after = bisect_right(self._offsets, offset)
        if not self or after == len(self):
            return None
        if after == 0:
            return 0.0
        low, high = self._times[after - 1], self._times[after]
        if high - low <= max(GAP_MIN_S, ASKED_GAP * (now_s - low)):
            return None
        return (low + high) / 2

    def answered(self, offset: int, asked_s: float, found: Found | None) -> None:
        """Add (offset, time) points from the response to a ListOffsets request about the record at `offset`.

        `asked_s` is the timestamp in the request, as returned by `question(offset)`. `found` is the first record with
        this timestamp or a later one; None if the log has no such record.
        """
        after = bisect_right(self._offsets, offset)
        if not self or after == len(self):
            return
        if after == 0:
            self._answered_first(offset, found)
            return
        low, high = self._times[after - 1], self._times[after]
        at = min(max(found.offset, self._offsets[after - 1]), self._offsets[after]) if found else self._offsets[after]
        time_s = max(found.time_s, asked_s) if found and at <= offset else asked_s
        self._insert_found(after, at, min(max(time_s, low), high), offset)

    def _insert_found(self, index: int, found: int, time_s: float, asked: int) -> None:
        """Insert the point (`found`, `time_s`) for the record at offset `found`.

        If this record is also the one at `asked`, whose time was looked up, insert the point (`found` + 1, `time_s`),
        too. Then the time of the record is exactly `time_s`.
        """
        self._insert(index, found, time_s)
        if found == asked:
            self._insert(index + 1, found + 1, time_s)

    def _answered_first(self, offset: int, found: Found | None) -> None:
        """Add (offset, time) points after a request about the record at `offset`, which is older than all points.

        `found` is the first record of the log, or None if the leader returned no record.
        """
        oldest = min(found.offset, offset) if found else offset
        time_s = found.time_s if found else self._times[0]
        self._insert_found(0, oldest, min(time_s, self._times[0]), offset)

    def _insert(self, index: int, offset: int, time_s: float) -> None:
        self._offsets.insert(index, offset)
        self._times.insert(index, time_s)

    def _thin(self, now_s: float) -> None:
        """Remove each point whose two neighbours are close together in time; KEPT_GAP says how close.

        Then remove the oldest points until POINTS_KEPT remain. A later ListOffsets request can get removed points
        again.
        """
        kept = [len(self) - 1]
        for index in range(len(self) - 2, 0, -1):
            older = self._times[index - 1]
            if self._times[kept[-1]] - older > KEPT_GAP * (now_s - older):
                kept.append(index)
        kept = sorted({*kept, 0})[-POINTS_KEPT:]
        self._offsets = array("q", (self._offsets[index] for index in kept))
        self._times = array("d", (self._times[index] for index in kept))

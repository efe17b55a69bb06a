"""The transactions of a partition that are open, or whose marker is not below the high watermark yet.

These transactions determine the last stable offset, up to which read_committed consumers read.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

NONE_UNSTABLE: Final = 2**63 - 1


class EndedTransaction(NamedTuple):
    """The first offset of an ended transaction, and the last stable offset after its end."""

    first_offset: int
    last_stable_offset: int


class Transactions:
    """The transactions of a partition.

    When a transaction ends, `first_unstable_offset` stays unchanged until the next call of `stable_until`.
    """

    __slots__ = ("_ended", "_open", "first_unstable_offset")

    def __init__(self, opened: Iterable[tuple[int, int]] = ()) -> None:
        """Create the state from the open transactions: pairs of producer id and first offset."""
        self._open: dict[int, int] = dict(sorted(opened, key=lambda each: each[1]))
        self._ended: list[tuple[int, int]] = []
        """The first offset and the marker offset of each ended transaction, in the order of the markers.

        `stable_until` removes the transactions whose markers are below the high watermark.
        """
        self.first_unstable_offset = NONE_UNSTABLE
        self._find_first()

    def begin(self, producer_id: int, offset: int) -> None:
        """Open a transaction whose first offset is `offset`."""
        self._open[producer_id] = offset
        self.first_unstable_offset = min(self.first_unstable_offset, offset)

    def end(self, producer_id: int, marker_offset: int) -> EndedTransaction | None:
        """Close and return the producer's open transaction; return None if it has none."""
        first = self._open.pop(producer_id, None)
        if first is None:
            return None
        self._ended.append((first, marker_offset))
        return EndedTransaction(first, next(iter(self._open.values()), marker_offset + 1))

    def stable_until(self, high_watermark: int) -> int:
        """Forget transactions whose markers are below the high watermark, and return the last stable offset."""
        if self.first_unstable_offset >= high_watermark:
            return high_watermark
        del self._ended[: bisect_left(self._ended, high_watermark, key=_marker_offset)]
        self._find_first()
        return min(high_watermark, self.first_unstable_offset)

    def oldest(self) -> int | None:
        """Return the producer id of the oldest open transaction, or None."""
        return next(iter(self._open), None)

    def _find_first(self) -> None:
        oldest_open = next(iter(self._open.values()), NONE_UNSTABLE)
        self.first_unstable_offset = min([oldest_open, *(first for first, _ in self._ended)])


def _marker_offset(ended: tuple[int, int]) -> int:
    return ended[1]

"""The appends with acks=all that wait for the high watermark, in the order of their offsets."""

from collections import deque
from collections.abc import Callable
from typing import Final

from barnabas_core.clock import Timers
from barnabas_core.errors import ApiError, ErrorCode

Done = Callable[[ApiError | None], object]
"""A callback that is called once, with None when the records are committed, or with the error that ended the wait."""

LOST_LEADERSHIP: Final = ApiError(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker's leadership ended before the records were committed"
)


class CommitQueue:
    """The waiting appends of one partition, ordered by their end offsets.

    Callbacks run in the next turn of the event loop, so that they never interrupt an operation of the partition.
    """

    __slots__ = ("_due", "_timers", "waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.waiting: deque[tuple[int, Done]] = deque()
        self._due: list[tuple[Done, ApiError | None]] = []

    def another(self) -> "CommitQueue":
        """Return an empty queue with the same timers."""
        return CommitQueue(self._timers)

    def wait(self, end_offset: int, done: Done) -> None:
        """Call `done(None)` once the high watermark is at `end_offset` or beyond."""
        waiting = self.waiting
        if not waiting or waiting[-1][0] <= end_offset:
            waiting.append((end_offset, done))
        else:  # A retried batch is in the log already, so it is inserted before later batches that wait.
            waiting.insert(sum(1 for other, _ in waiting if other <= end_offset), (end_offset, done))

    def committed(self, high_watermark: int) -> None:
        """Complete the appends up to the high watermark."""
        waiting = self.waiting
        while waiting and waiting[0][0] <= high_watermark:
            self._call_soon(waiting.popleft()[1], None)

    def fail(self, error: ApiError) -> None:
        """Fail all waiting appends with `error`."""
        while self.waiting:
            self._call_soon(self.waiting.popleft()[1], error)

    def _call_soon(self, done: Done, error: ApiError | None) -> None:
        if not self._due:
            self._timers.call_soon(self._call_due)
        self._due.append((done, error))

    def _call_due(self) -> None:
        due, self._due = self._due, []
        for done, error in due:
            done(error)

"""The lag of a group at a past moment, computed from the end of the log at that moment.

The end offset of the log at a moment is the offset of the first record that was written later. `Ask`, a function that
works like a ListOffsets request, looks up this offset. A bisection finds the time at which the oldest unread record was
written.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_core.topic_partition import TopicPartition

SECONDS_SHARE: Final = 0.05
"""The allowed error of a record's age: this share of the age, or PRECISION_MS if that is more."""
PRECISION_MS: Final = 100
FIRST_STEP_MS: Final = 1000


class Moment(NamedTuple):
    """A time in ms, and the next offset that a group reads from a partition at that time."""

    at: TopicPartition
    committed: int
    time_ms: int


class Ends(NamedTuple):
    """The present start and end offsets of a log."""

    start: int
    end: int


class Lag(NamedTuple):
    """The number of unread records, and the age of the oldest of them in seconds, None if unknown."""

    records: int
    seconds: float | None


Ask = Callable[[Sequence[tuple[TopicPartition, int]]], list[int | None]]
"""A function that takes partitions and times (ms), and returns the offset of the first record at or after each time.

If a partition has no record at or after the time, the function returns None for it.
"""


def lags(moments: Sequence[Moment], ends: Mapping[TopicPartition, Ends], ask: Ask) -> list[Lag | None]:
    """Return the lag at each moment, or None if the lag is unknown.

    The lag is unknown if the partition no longer exists, or if all records from before the moment have been deleted. It
    is also unknown if the log ends before the committed offset, because then the topic was created again or truncated.
    """
    known = [number for number, each in enumerate(moments) if each.at in ends and each.committed <= ends[each.at].end]
    found: list[Lag | None] = [None] * len(moments)
    answers = ask([(moments[number].at, moments[number].time_ms + 1) for number in known])
    waiting = []
    for number, answer in zip(known, answers, strict=True):
        moment, there = moments[number], ends[moments[number].at]
        end = there.end if answer is None else answer
        if end <= there.start and moment.committed < there.start:
            continue  # All records up to this moment have been deleted, so nobody knows where the log ended.
        found[number] = Lag(max(0, end - moment.committed), 0.0 if end <= moment.committed else None)
        if end > moment.committed >= there.start:
            waiting.append(number)
    for number, since_ms in zip(waiting, _written([moments[each] for each in waiting], ask), strict=True):
        lag = found[number]
        assert lag is not None
        found[number] = lag._replace(seconds=(moments[number].time_ms - since_ms) / 1000)
    return found


class _Search(NamedTuple):
    """The search for the time when the oldest unread record was written.

    The time is after `low_ms` and at most `high_ms`; `low_ms` is None until the search has found a lower bound.
    """

    moment: Moment
    low_ms: int | None
    high_ms: int
    step_ms: int = FIRST_STEP_MS

    @property
    def is_done(self) -> bool:
        if self.low_ms is None:
            return False
        age_ms = self.moment.time_ms - self.high_ms
        return self.high_ms - self.low_ms <= max(PRECISION_MS, SECONDS_SHARE * age_ms)

    @property
    def next_ms(self) -> int:
        """The time (ms) for which the search looks up the end offset of the log next.

        While `low_ms` is unknown, the time is a step before `high_ms`, and the step doubles with each lookup. Then the
        time is halfway between `low_ms` and `high_ms`.
        """
        if self.low_ms is None:
            return max(0, self.high_ms - self.step_ms)
        return (self.low_ms + self.high_ms) // 2

    def answered(self, asked_ms: int, end: int | None) -> "_Search":
        """Return the search with `low_ms` or `high_ms` set to `asked_ms`, the time of a lookup.

        `end` is the end offset that the log had at `asked_ms`, or None if no record was written after `asked_ms`.
        """
        was_written = end is None or end > self.moment.committed
        if was_written and asked_ms > 0:
            return self._replace(high_ms=asked_ms, step_ms=self.step_ms * 2)
        return self._replace(low_ms=asked_ms)


def _written(moments: Iterable[Moment], ask: Ask) -> list[int]:
    """Return, for each moment, the write time (ms) of the oldest record that the group had not read at that moment."""
    searches = [_Search(each, None, each.time_ms) for each in moments]
    while open_ones := [number for number, each in enumerate(searches) if not each.is_done]:
        asked = [searches[number].next_ms for number in open_ones]
        answers = ask(
            [(searches[number].moment.at, time_ms + 1) for number, time_ms in zip(open_ones, asked, strict=True)]
        )
        for number, time_ms, answer in zip(open_ones, asked, answers, strict=True):
            searches[number] = searches[number].answered(time_ms, answer)
    return [each.high_ms for each in searches]

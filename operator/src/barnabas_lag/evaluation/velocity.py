"""The velocity at which the lag of a group in a topic changes, and when the lag will be gone at that pace."""

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

SUMS_KEPT: Final = 10


class LagSum(NamedTuple):
    """The lag over so many partitions at a time, in seconds since the epoch."""

    time_s: float
    lag: int
    partitions: int


def with_sum(before: Sequence[LagSum], latest: LagSum) -> tuple[LagSum, ...]:
    """The last sums; those over another number of partitions say nothing about how this one changes."""
    return (*(each for each in before if each.partitions == latest.partitions), latest)[-SUMS_KEPT:]


def velocity(sums: Sequence[LagSum]) -> float:
    """Return the records a second by which the group falls behind, below 0 if it catches up; 0 without a comparison."""
    first, last = sums[0], sums[-1]
    passed_s = last.time_s - first.time_s
    return (last.lag - first.lag) / passed_s if passed_s > 0 else 0.0


def catch_up_s(lag: int, records_per_s: float) -> float:
    """Seconds until there is no lag: 0 where there is none, infinite where it does not get less."""
    if lag == 0:
        return 0.0
    return lag / -records_per_s if records_per_s < 0 else inf

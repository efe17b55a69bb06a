"""The rate at which the lag of a group in a topic changes, and the time until the lag is gone at that rate."""

from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple

SUMS_KEPT: Final = 10


class LagSum(NamedTuple):
    """A time in seconds since the epoch, the sum of the lags at this time, and the number of partitions in the sum."""

    time_s: float
    lag: int
    partitions: int


def with_sum(before: Sequence[LagSum], latest: LagSum) -> tuple[LagSum, ...]:
    """Return the last SUMS_KEPT sums of a group's lag in a topic: those in `before`, and then `latest`.

    Sums over more or fewer partitions than in `latest` are dropped, because they cannot be compared with `latest`.
    """
    return (*(each for each in before if each.partitions == latest.partitions), latest)[-SUMS_KEPT:]


def velocity(sums: Sequence[LagSum]) -> float:
    """Return the growth of the lag in records per second, negative if the lag falls; 0 if `sums` has only one entry."""
    first, last = sums[0], sums[-1]
    passed_s = last.time_s - first.time_s
    return (last.lag - first.lag) / passed_s if passed_s > 0 else 0.0


def catch_up_s(lag: int, records_per_s: float) -> float:
    """Return the seconds until there is no lag: 0 without lag, infinite if the lag does not fall."""
    if lag == 0:
        return 0.0
    return lag / -records_per_s if records_per_s < 0 else inf

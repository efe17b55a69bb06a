"""The comparison of a group's lag with `spec.lagObjective`."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import PartitionLag
from barnabas_operator.planning.groups.durations import duration_s
from barnabas_operator.planning.groups.group_seen import GroupSeen
from barnabas_operator.resources.consumer_group import LagObjective

KEPT: Final = "LagObjectiveKept"
MISSED: Final = "LagObjectiveMissed"
UNKNOWN: Final = "LagUnknown"
NOBODY_YET: Final = "no consumer has joined or committed yet"
Lags = Mapping[TopicPartition, PartitionLag]
DIGITS: Final = 2
"""The significant digits of numbers in a status, so that the status seldom changes."""


def shown(value: float) -> int:
    """Return the value as a whole number with two significant digits."""
    whole = round(value)
    return round(whole, min(0, DIGITS - len(str(abs(whole)))))


class Miss(NamedTuple):
    """An exceeded limit: the field of `spec.lagObjective`, the limit, and the measured value at the worst partition."""

    field: str
    allowed: int
    value: float
    unit: str
    where: TopicPartition

    def __str__(self) -> str:
        rounded = shown(self.value)
        value = rounded if rounded > self.allowed else math.ceil(self.value)
        return f"{value:,}{self.unit} at {self.where}; spec.lagObjective.{self.field} allows {self.allowed:,}"


class Judged(NamedTuple):
    """The content of the condition WithinObjective."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def misses(objective: LagObjective, lags: Lags) -> tuple[Miss, ...]:
    """Return the limits that are exceeded now. An unknown value, such as the age of a record, exceeds no limit."""
    return tuple(miss for limit in LIMITS for miss in limit(objective, lags))


def missed_since_s(before_s: float | None, missed: tuple[Miss, ...], now_s: float) -> float | None:
    """Return since when a limit has been exceeded without a break, or None if no limit is exceeded now."""
    if not missed:
        return None
    return now_s if before_s is None else before_s


def judged(
    objective: LagObjective, seen: GroupSeen, missed: tuple[Miss, ...], for_s: float, *, was_missed: bool
) -> Judged:
    """Return the content of the condition WithinObjective; `for_s` is the time for which a limit has been exceeded.

    A condition that is False stays False until every partition has a leader and no limit is exceeded.
    """
    if not seen.is_there:
        return Judged("Unknown", UNKNOWN, NOBODY_YET)
    if missed and (was_missed or for_s >= duration_s(objective.for_)):
        return Judged("False", MISSED, "; ".join(filter(None, (*map(str, missed), seen.not_read))))
    if was_missed and seen.silent:
        return Judged(
            "False", MISSED, f"the objective was missed, and the current lag is unknown because {_silent(seen)}"
        )
    return Judged("True", KEPT, seen.not_read)


def _silent(seen: GroupSeen) -> str:
    others = f" and {len(seen.silent) - 1:,} more" if len(seen.silent) > 1 else ""
    return f"no leader answers for {seen.silent[0]}{others}"


def _records(objective: LagObjective, lags: Lags) -> Iterator[Miss]:
    total = sum(each.lag for each in lags.values())
    if objective.max_records is not None and total > objective.max_records:
        worst, lag = max(((where, each.lag) for where, each in lags.items()), key=lambda pair: pair[1])
        unit = f" records are unread, most of them ({shown(lag):,})"
        yield Miss("maxRecords", objective.max_records, total, unit, worst)


def _seconds(objective: LagObjective, lags: Lags) -> Iterator[Miss]:
    yield from _worst("maxSeconds", objective.max_seconds, " s behind", lags, lambda each: each.seconds)


def _retention(objective: LagObjective, lags: Lags) -> Iterator[Miss]:
    limit = objective.max_retention_percent
    unit = "% of the retained records are unread"
    yield from _worst("maxRetentionPercent", limit, unit, lags, lambda each: each.retention_percent)


def _worst(
    field: str, allowed: int | None, unit: str, lags: Lags, value_of: Callable[[PartitionLag], float | None]
) -> Iterator[Miss]:
    values = ((value, where) for where, each in lags.items() if (value := value_of(each)) is not None)
    value, where = max(values, default=(0.0, None))
    if allowed is not None and where is not None and value > allowed:
        yield Miss(field, allowed, value, unit, where)


LIMITS: Final[tuple[Callable[[LagObjective, Lags], Iterator[Miss]], ...]] = (_records, _seconds, _retention)

"""What each group did day by day over the time that was looked at, and whether it kept its objective."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

import msgspec

from barnabas_jobs.planning.chart import lines, time_text
from barnabas_jobs.planning.page import page, paragraph, table

HOUR: Final = "hour"
DAY: Final = "day"
Number = TypeVar("Number", int, float)
OfGroup = TypeVar("OfGroup", "RollUp", "Now")
_start_ms: Final = attrgetter("start_ms")


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What a group should keep at each commit, and now; None is no bound."""

    max_records: int | None = None
    max_seconds: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is anything to keep."""
        return self.max_records is not None or self.max_seconds is not None

    def is_missed(self, records: int | None, seconds: float | None) -> bool:
        """Whether this lag misses it; an unknown value misses nothing."""
        too_many = self.max_records is not None and records is not None and records > self.max_records
        return too_many or (self.max_seconds is not None and seconds is not None and seconds > self.max_seconds)

    def __str__(self) -> str:
        bounds = [f"at most {self.max_records:,} records behind"] if self.max_records is not None else []
        bounds += [f"at most {self.max_seconds:g} seconds behind"] if self.max_seconds is not None else []
        return " and ".join(bounds) or "none"


class RollUp(msgspec.Struct, frozen=True, kw_only=True):
    """One hour or day of a group in a partition. Lag is that at commits, as far as it is known (`known` of them)."""

    period: str
    start_ms: int
    group: str
    topic: str
    partition: int
    commits: int
    known: int
    lag_min: int | None
    lag_max: int | None
    lag_mean: float | None
    seconds_max: float | None
    seconds_mean: float | None
    missed: int


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """A group in a partition now, whether it still commits or not: without commits only this shows its lag."""

    group: str
    topic: str
    partition: int
    committed: int
    commit_ms: int
    lag: int | None
    seconds: float | None
    missed: bool


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """One day of a group in all its partitions."""

    day: str
    commits: int
    lag_max: int | None
    seconds_max: float | None
    missed: int


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """One group. `kept` is None where there is no objective. `missed` counts commits, and partitions now."""

    group: str
    commits: int
    lag_max: int | None
    seconds_max: float | None
    lag_now: int | None
    missed: int
    kept: bool | None
    days: list[Day]


def groups(roll_ups: Sequence[RollUp], now: Sequence[Now], objective: Objective) -> list[GroupLag]:
    """All that committed, or have something committed now."""
    days = _by_group(each for each in roll_ups if each.period == DAY)
    standing = _by_group(now)
    return [_group(name, days[name], standing[name], objective) for name in sorted(days.keys() | standing.keys())]


def _by_group(rows: Iterable[OfGroup]) -> defaultdict[str, list[OfGroup]]:
    """There may be thousands of groups, and millions of rows."""
    found: defaultdict[str, list[OfGroup]] = defaultdict(list)
    for row in rows:
        found[row.group].append(row)
    return found


def _group(name: str, days: Sequence[RollUp], now: Sequence[Now], objective: Objective) -> GroupLag:
    missed = sum(each.missed for each in days) + sum(each.missed for each in now)
    lags_now = [each.lag for each in now if each.lag is not None]
    return GroupLag(
        group=name,
        commits=sum(each.commits for each in days),
        lag_max=_largest(each.lag_max for each in days),
        seconds_max=_largest(each.seconds_max for each in days),
        lag_now=sum(lags_now) if lags_now else None,
        missed=missed,
        kept=missed == 0 if objective.is_set else None,
        days=[_day(start_ms, list(parts)) for start_ms, parts in groupby(sorted(days, key=_start_ms), _start_ms)],
    )


def _day(start_ms: int, parts: Sequence[RollUp]) -> Day:
    return Day(
        day=time_text(start_ms)[:10],
        commits=sum(each.commits for each in parts),
        lag_max=_largest(each.lag_max for each in parts),
        seconds_max=_largest(each.seconds_max for each in parts),
        missed=sum(each.missed for each in parts),
    )


def _largest(values: Iterable[Number | None]) -> Number | None:
    return max((each for each in values if each is not None), default=None)


def lag_page(found: Sequence[GroupLag], roll_ups: Sequence[RollUp], objective: Objective, summary: str) -> str:
    """The HTML page: a table of groups, and for each a line for each topic and its days."""
    rows = [
        (each.group, each.commits, each.lag_max, each.seconds_max, each.lag_now, each.missed, _kept(each.kept))
        for each in found
    ]
    heads = ("group", "commits", "largest lag", "seconds", "lag now", "missed", "objective")
    parts = [paragraph(summary), paragraph(f"Objective: {objective}."), table(heads, rows)]
    hours = _by_group(each for each in roll_ups if each.period == HOUR)
    for each in found:
        parts.append(lines(f"{each.group}: largest lag by hour", _series(hours[each.group]), objective.max_records))
        days = [(day.day, day.commits, day.lag_max, day.seconds_max, day.missed) for day in each.days]
        parts.append(table(("day", "commits", "largest lag", "seconds", "missed"), days))
    return page("Lag of consumer groups", *parts)


def _series(hours: Sequence[RollUp]) -> Mapping[str, Sequence[tuple[int, float]]]:
    """By topic: the sum over partitions of the largest lag of each hour."""
    found: dict[str, dict[int, float]] = {}
    for each in hours:
        if each.lag_max is not None:
            points = found.setdefault(each.topic, {})
            points[each.start_ms] = points.get(each.start_ms, 0) + each.lag_max
    return {topic: sorted(points.items()) for topic, points in sorted(found.items())}


def _kept(kept: bool | None) -> str:
    return {None: "none", True: "kept", False: "missed"}[kept]

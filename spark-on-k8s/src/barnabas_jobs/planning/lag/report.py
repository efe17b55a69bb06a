"""The report of each group's lag by day, and of whether the group met the lag objective."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeVar

import msgspec

from barnabas_jobs.planning.page import findings, lines, page, paragraph, span_text, table, time_text

ALL_TOPICS: Final = "all topics"
HOUR: Final = "hour"
DAY: Final = "day"
GROUPS_DRAWN: Final = 20
TOPICS_DRAWN: Final = 6
HOURS_DRAWN: Final = 1000
"""The maximum number of hours in a chart, which limits how much data Spark's driver collects."""
BOUNDS: Final = (
    f"Charts show at most {GROUPS_DRAWN} groups: first those that missed the objective most often, then those with the "
    f"largest lag. A chart shows the {TOPICS_DRAWN} topics with the largest lag, and of each topic the last "
    f"{HOURS_DRAWN:,} hours with commits. The file rollups.parquet has all hours."
)
Number = TypeVar("Number", int, float)
OfGroup = TypeVar("OfGroup", "GroupDay", "TopicHour", "Now")
_start_ms: Final = attrgetter("start_ms")


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """The lag that a group may have, at each of its commits and now; None means no limit.

    `max_records` limits the sum over all partitions, and `max_seconds` the partition that is furthest behind.
    """

    max_records: int | None = None
    max_seconds: float | None = None

    @property
    def is_set(self) -> bool:
        """True if the objective limits the records or the seconds of the lag."""
        return self.max_records is not None or self.max_seconds is not None

    def is_missed(self, records: int | None, seconds: float | None) -> bool:
        """True if this lag is above a limit of the objective; an unknown lag is not."""
        too_many = self.max_records is not None and records is not None and records > self.max_records
        return too_many or (self.max_seconds is not None and seconds is not None and seconds > self.max_seconds)

    def __str__(self) -> str:
        bounds = [f"at most {self.max_records:,} records behind"] if self.max_records is not None else []
        bounds += [f"at most {self.max_seconds:g} seconds behind"] if self.max_seconds is not None else []
        return " and ".join(bounds) or "none"


class GroupDay(msgspec.Struct, frozen=True, kw_only=True):
    """The commits of a group on one day, and the largest lag at these commits; None if no lag is known.

    `lag_max` is the largest sum of the lags of all partitions.
    """

    group: str
    start_ms: int
    commits: int
    lag_max: int | None
    seconds_max: float | None
    missed: int


class TopicHour(msgspec.Struct, frozen=True, kw_only=True):
    """The largest lag of a group within one hour, in one topic, or in all topics together if `topic` is empty."""

    group: str
    topic: str
    start_ms: int
    lag_max: int


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The present lag of a group in a partition, computed from the group's last commit, however old that commit is."""

    group: str
    topic: str
    partition: int
    committed: int
    commit_ms: int
    lag: int | None
    seconds: float | None


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """A `GroupDay` as it is shown in the report's JSON."""

    day: str
    commits: int
    lag_max: int | None
    seconds_max: float | None
    missed: int


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """A group in the report.

    `kept` is true if the group met the objective, and None without an objective. `missed` counts the commits with a lag
    above the objective, plus 1 if the present lag is above the objective.
    """

    group: str
    commits: int
    lag_max: int | None
    seconds_max: float | None
    lag_now: int | None
    seconds_now: float | None
    missed: int
    kept: bool | None
    days: list[Day]


def groups(days: Iterable[GroupDay], now: Iterable[Now], objective: Objective) -> list[GroupLag]:
    """Return all groups that committed in the period or have committed offsets now."""
    past, standing = _by_group(days), _by_group(now)
    return [_group(name, past[name], standing[name], objective) for name in sorted(past.keys() | standing.keys())]


def findings_of(found: Iterable[GroupLag], objective: Objective) -> list[str]:
    """Return a line for each group that missed the objective, with its largest and its present lag."""
    lines_of = []
    for each in found:
        if each.kept is False:
            largest = _behind(each.lag_max, each.seconds_max)
            now = _behind(each.lag_now, each.seconds_now)
            lines_of.append(
                f"group {each.group} missed the objective ({objective}) {each.missed:,} times: the group was at worst "
                f"{largest} at a commit, and is {now} now"
            )
    return lines_of


def _behind(records: int | None, seconds: float | None) -> str:
    known = [f"{records:,} records"] if records is not None else []
    known += [span_text(seconds * 1000)] if seconds is not None else []
    return f"{' and '.join(known)} behind" if known else "an unknown number of records behind"


def drawn(found: Iterable[GroupLag]) -> list[str]:
    """Return the names of the groups that get a chart, at most GROUPS_DRAWN.

    Groups that missed the objective most often come first, then those with the largest lag.
    """
    worst = sorted(found, key=lambda each: (-each.missed, -(each.lag_max or 0), -(each.lag_now or 0), each.group))
    return [each.group for each in worst[:GROUPS_DRAWN]]


def _by_group(rows: Iterable[OfGroup]) -> defaultdict[str, list[OfGroup]]:
    found: defaultdict[str, list[OfGroup]] = defaultdict(list)
    for row in rows:
        found[row.group].append(row)
    return found


def _group(name: str, days: Sequence[GroupDay], now: Sequence[Now], objective: Objective) -> GroupLag:
    lags_now = [each.lag for each in now if each.lag is not None]
    lag_now, seconds_now = sum(lags_now) if lags_now else None, _largest(each.seconds for each in now)
    missed = sum(each.missed for each in days) + objective.is_missed(lag_now, seconds_now)
    return GroupLag(
        group=name,
        commits=sum(each.commits for each in days),
        lag_max=_largest(each.lag_max for each in days),
        seconds_max=_largest(each.seconds_max for each in days),
        lag_now=lag_now,
        seconds_now=seconds_now,
        missed=missed,
        kept=missed == 0 if objective.is_set else None,
        days=[_day(each) for each in sorted(days, key=_start_ms)],
    )


def _day(day: GroupDay) -> Day:
    return Day(
        day=time_text(day.start_ms)[:10],
        commits=day.commits,
        lag_max=day.lag_max,
        seconds_max=day.seconds_max,
        missed=day.missed,
    )


def _largest(values: Iterable[Number | None]) -> Number | None:
    return max((each for each in values if each is not None), default=None)


def lag_page(
    about_it: str, found: Sequence[GroupLag], hours: Sequence[TopicHour], objective: Objective, summary: str
) -> str:
    """Return the HTML page: a table of groups, and a chart and a table of days for each group."""
    rows = [
        (each.group, each.commits, each.lag_max, each.seconds_max, each.lag_now, each.missed, _kept(each.kept))
        for each in found
    ]
    heads = ("group", "commits", "largest lag", "seconds", "lag now", "missed", "objective")
    objective_text = f"Objective for all partitions of a group together: {objective}."
    parts = [
        findings(findings_of(found, objective)),
        paragraph(summary),
        paragraph(objective_text),
        table(heads, rows),
        paragraph(BOUNDS),
    ]
    by_group, pictured = _by_group(hours), set(drawn(found))
    for each in found:
        title = f"{each.group}: largest lag by hour"
        picture = lines(title, _series(by_group[each.group]), objective.max_records)
        parts.append(picture if each.group in pictured else paragraph(f"{title}: not drawn"))
        days = [(day.day, day.commits, day.lag_max, day.seconds_max, day.missed) for day in each.days]
        parts.append(table(("day", "commits", "largest lag", "seconds", "missed"), days))
    return page("Lag of consumer groups", about_it, *parts)


def _series(hours: Iterable[TopicHour]) -> Mapping[str, Sequence[tuple[int, float]]]:
    """Return the lag over time by topic, with the sum of all topics first if there are several."""
    found: dict[str, list[tuple[int, float]]] = {}
    for each in sorted(hours, key=lambda hour: (hour.topic, hour.start_ms)):
        found.setdefault(each.topic or ALL_TOPICS, []).append((each.start_ms, each.lag_max))
    return found if len(found) != 2 else {name: points for name, points in found.items() if name != ALL_TOPICS}


def _kept(kept: bool | None) -> str:
    return {None: "none", True: "kept", False: "missed"}[kept]

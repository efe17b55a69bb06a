"""The offset commits of consumer groups, the lag of a group at each commit, and the history of this lag.

The lag of a group at a past moment, computed from the end of the log at that moment. The end offset of the log at a
moment is the offset of the first record that was written later. `Ask`, a function that works like a ListOffsets
request, looks up this offset. A bisection finds the time at which the oldest unread record was written.

Records of `__consumer_offsets`, in Kafka's own binary format. The version at the start of a key gives the kind of
record: 0 and 1 are offset commits, 2 is a group, and higher versions belong to newer kinds of groups. A value
begins with a version of its own; a null value is a tombstone.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.planning.page import findings, lines, page, paragraph, span_text, table

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


def _search(moment: Moment) -> Generator[int, int | None, int]:
    """Search for the time (ms) when the oldest record was written that the group had not read at the moment.

    Yield a time, and receive the end offset that the log had at that time, or None if no record was written later. The
    times go back in steps that double until the search has a lower bound, and then halve the distance between the
    bounds. Return the upper bound, which is precise to PRECISION_MS or SECONDS_SHARE of the record's age.
    """
    low_ms: int | None = None
    high_ms, step_ms = moment.time_ms, FIRST_STEP_MS
    while low_ms is None or high_ms - low_ms > max(PRECISION_MS, SECONDS_SHARE * (moment.time_ms - high_ms)):
        asked_ms = max(0, high_ms - step_ms) if low_ms is None else (low_ms + high_ms) // 2
        end = yield asked_ms
        was_written = end is None or end > moment.committed
        if was_written and asked_ms > 0:
            high_ms, step_ms = asked_ms, step_ms * 2
        else:
            low_ms = asked_ms
    return high_ms


def _written(moments: Sequence[Moment], ask: Ask) -> list[int]:
    """Return, for each moment, the write time (ms) of the oldest record that the group had not read at that moment.

    All searches ask at the same time, so that many moments take no more requests than one.
    """
    searches, found = [_search(each) for each in moments], [0] * len(moments)
    asked = {number: next(search) for number, search in enumerate(searches)}
    while asked:
        answers = ask([(moments[number].at, time_ms + 1) for number, time_ms in asked.items()])
        for number, answer in zip(list(asked), answers, strict=True):
            try:
                asked[number] = searches[number].send(answer)
            except StopIteration as ended:
                found[number] = ended.value
                del asked[number]
    return found


COMMIT: Final = "commit"
TOMBSTONE: Final = "tombstone"
GROUP: Final = "group"
UNKNOWN: Final = "unknown"
MALFORMED: Final = "malformed"
OFFSET_KEYS: Final = (0, 1)
GROUP_KEY: Final = 2
EPOCH_VERSION: Final = 3
FLEXIBLE_VERSION: Final = 4
YEAR_10000_MS: Final = 253_402_300_800_000

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class OffsetRecord(NamedTuple):
    """A record of `__consumer_offsets`.

    Only commits and their tombstones have a topic and a partition, and only commits have an offset and a time in ms.
    """

    kind: str
    group: str | None = None
    topic: str | None = None
    partition: int | None = None
    committed: int | None = None
    commit_ms: int | None = None


def decode(key: bytes | None, value: bytes | None) -> OffsetRecord:
    """Decode a record; its kind is `unknown` if its version is not known, and `malformed` if the bytes are damaged."""
    if key is None:
        return OffsetRecord(MALFORMED)
    try:
        (version,) = _INT16.unpack_from(key)
        if version == GROUP_KEY:
            return OffsetRecord(GROUP, _string(key, 2)[0])
        if version not in OFFSET_KEYS:
            return OffsetRecord(UNKNOWN)
        group, position = _string(key, 2)
        topic, position = _string(key, position)
        about = (group, topic, *_INT32.unpack_from(key, position))
        return OffsetRecord(TOMBSTONE, *about) if value is None else _commit(about, value)
    except (struct.error, ValueError, IndexError):
        return OffsetRecord(MALFORMED)


def _commit(about: tuple[str, str, int], value: bytes) -> OffsetRecord:
    """Decode the value of a commit.

    Version 1 has an expiry time at the end, 3 and 4 have the leader epoch, and 4 is flexible.
    """
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= FLEXIBLE_VERSION:
        return OffsetRecord(UNKNOWN)
    (offset,) = _INT64.unpack_from(value, 2)
    position = 14 if version >= EPOCH_VERSION else 10
    if version < FLEXIBLE_VERSION:
        _, position = _string(value, position)
    else:
        length, position = _varint(value, position)
        position += length - 1
    (commit_ms,) = _INT64.unpack_from(value, position)
    if not 0 <= commit_ms < YEAR_10000_MS:
        raise ValueError(f"the commit timestamp {commit_ms} ms is not between 1970 and the year 10000")
    return OffsetRecord(COMMIT, *about, offset, commit_ms)


def _string(data: bytes, position: int) -> tuple[str, int]:
    """Decode the string at a position, and return the string and the position after it.

    A string begins with its length in 16 bits.
    """
    (length,) = _INT16.unpack_from(data, position)
    end = position + 2 + length
    if length < 0 or end > len(data):
        raise ValueError(f"a string of {length} bytes at {position} does not fit into {len(data)} bytes")
    return data[position + 2 : end].decode(), end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the unsigned varint at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


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
OfGroup = TypeVar("OfGroup", "TopicHour", "Now")


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


class Day(msgspec.Struct, frozen=True):
    """The commits of a group on one day, and the largest lag at these commits; None if no lag is known.

    `day` is a date like 2013-01-31, and `lag_max` the largest sum of the lags of all partitions.
    """

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


def groups(days: Mapping[str, Sequence[Day]], now: Iterable[Now], objective: Objective) -> list[GroupLag]:
    """Return all groups that committed in the period or have committed offsets now; `days` are in their order."""
    standing = _by_group(now)
    names = sorted(days.keys() | standing.keys())
    return [_group(name, days.get(name, ()), standing[name], objective) for name in names]


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


def _group(name: str, days: Sequence[Day], now: Sequence[Now], objective: Objective) -> GroupLag:
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
        days=list(days),
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

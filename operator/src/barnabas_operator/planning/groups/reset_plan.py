"""A group as it was observed, and the offsets that a reset commits, as by `kafka-consumer-groups --reset-offsets`."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal, NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import WITHOUT_MEMBERS, Consumer, GroupLags, GroupReading, PartitionLag
from barnabas_operator.planning.conditions import LISTED_MAX, Refusal, listed
from barnabas_operator.resources.consumer_group import (
    SHOWN_PLAN_MAX,
    LagObjective,
    PlannedOffset,
    Reset,
    ResetStatus,
    ResetTo,
)

NOT_FOUND: Final = "NotFound"
"""The reported state of a group that does not exist in Kafka, because no consumer has joined or committed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """An observed group. If the coordinator does not report members, `members` is None and `consumers` is empty."""

    state: str
    group_type: str | None = None
    """The protocol of the group, such as classic, consumer or share; None if the group does not exist."""
    shares_partitions: bool = False
    """True if many members of the group may read one partition (KIP-932)."""
    members: int | None = None
    consumers: tuple[Consumer, ...] = ()
    lags: GroupLags
    """The lag of the group in the topics with committed offsets, without partitions whose leader does not answer."""
    silent: tuple[TopicPartition, ...] = ()
    """The partitions whose lag is unknown, because no leader answers, in the topics with committed offsets."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions by topic, for topics in which the group has committed offsets or assigned partitions."""
    held_back: int = 0
    """The number of lagging records that read_committed consumers cannot read yet, because a transaction is open."""
    topics_read: frozenset[str] | None = None
    """The topics that the members read, or None if the group has no members or the members report no topics."""

    @property
    def is_there(self) -> bool:
        """True if the group has members or committed offsets."""
        return self.state != NOT_FOUND

    @property
    def has_members(self) -> bool:
        """True if the group has members, so that only members may commit offsets."""
        return self.state not in WITHOUT_MEMBERS and self.is_there

    def is_read(self, topic: str) -> bool:
        """True if the topic counts for the lag objective and for scaling; all topics count if `topics_read` is None."""
        return self.topics_read is None or topic in self.topics_read

    @property
    def counted(self) -> Mapping[TopicPartition, PartitionLag]:
        """Return the lag of each partition whose topic counts for the lag objective and for scaling."""
        return {where: each for where, each in self.lags.partitions.items() if self.is_read(where.topic)}

    @property
    def not_read(self) -> str:
        """Return the message about topics with committed offsets that no member reads any more, or an empty text."""
        topics = sorted({where.topic for where in self.lags.partitions if not self.is_read(where.topic)})
        return f"topics whose lag is ignored, because no member reads them: {listed(topics)}" if topics else ""


DEAD: Final = "Dead"
"""The state that Kafka reports for a group that does not exist."""
NO_LEADER_EPOCH: Final = -1
UNKNOWN_OFFSET: Final = -1
"""The start offset of a share group in a partition that none of its members has read yet."""


class Committed(NamedTuple):
    """A committed offset.

    `offset` is the offset of the next record that the group reads; `metadata` is the text that the client committed
    with it. `lag` is the number of records that a share group has not finished, and None if it is unknown.
    """

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    lag: int | None = None


class Member(NamedTuple):
    """A consumer of the group: its client id and its host."""

    client_id: str
    host: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host}"


class GroupDescription(NamedTuple):
    """A group as its coordinator describes it. If `problem` is set, the coordinator has not answered."""

    state: str = DEAD
    members: tuple[Member, ...] = ()
    committed: Mapping[TopicPartition, Committed] = {}
    """The committed offsets; for a share group its start offsets, which are UNKNOWN_OFFSET before its first record."""
    problem: str = ""
    share_epoch: int | None = None
    """The epoch of a share group, or None for other groups."""

    @property
    def is_there(self) -> bool:
        """True if the group has members or committed offsets."""
        return self.state != DEAD or bool(self.committed)

    def offset(self, where: TopicPartition) -> int | None:
        """Return the known committed offset of a partition, or None."""
        found = self.committed.get(where)
        return found.offset if found is not None and found.offset != UNKNOWN_OFFSET else None

    def lag(self, where: TopicPartition) -> int | None:
        """Return the number of records that a share group has not finished; None if unknown, or for other groups."""
        found = self.committed.get(where)
        return found.lag if found is not None else None

    @property
    def is_active(self) -> bool:
        """True if the group has members or consumers that are joining, so that only members may commit offsets."""
        return bool(self.members) or self.state not in WITHOUT_MEMBERS


class LogEnds(NamedTuple):
    """The two ends of a log: `start` is its first offset, `end` the offset of the next record to be written."""

    start: int
    end: int


class GroupDescriptions(NamedTuple):
    """The descriptions of groups and of the partitions that they read.

    `groups` holds the groups by id. `partitions` holds the number of partitions of each existing topic. `logs` holds
    the log ends of each partition whose leader has answered.
    """

    groups: Mapping[str, GroupDescription]
    partitions: Mapping[str, int] = {}
    logs: Mapping[TopicPartition, LogEnds] = {}


KEPT_S: Final = 300.0
"""The time in seconds for which a group is assumed to read the topics that its members have last reported.

Afterwards the group is assumed to read all topics for which it has committed offsets.
"""


class TopicsRead(NamedTuple):
    """The topics that a group's members read, and when they were last reported."""

    topics: frozenset[str]
    at_s: float


def with_topics_read(
    before: Mapping[str, TopicsRead], groups: Mapping[str, GroupReading], now_s: float
) -> dict[str, TopicsRead]:
    """Return the topics that each group reads.

    A group whose topics are missing in `groups` keeps its last reported topics if they are less than `KEPT_S` seconds
    old.
    """
    kept = {group_id: read for group_id, read in before.items() if now_s - read.at_s < KEPT_S}
    found = {group_id: TopicsRead(each.topics, now_s) for group_id, each in groups.items() if each.topics is not None}
    return {**kept, **found}


SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dhms])")


def duration_s(text: str) -> float:
    """Return the seconds of a duration such as `90s`, `1h30m` or `PT1H30M`; the schema has checked the format."""
    return float(sum(Decimal(number) * SECONDS[unit] for number, unit in PART.findall(text.lower())))


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


DATETIME_IN_FUTURE: Final = "DatetimeInFuture"
INVALID_RESET: Final = "InvalidReset"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


def reset_time_ms(to: ResetTo, now: datetime) -> int | Refusal | None:
    """Return the time that the reset names, in ms since 1970, or None if the reset names no time.

    Return a refusal if the time is invalid or in the future.
    """
    if to.by_duration is not None:
        return max(0, _milliseconds(now) - int(duration_s(to.by_duration) * 1000))
    if to.datetime is None:
        return None
    field = f"spec.offsets.reset.to.datetime is {to.datetime}"
    try:
        wanted = datetime.fromisoformat(to.datetime)
    except ValueError as error:
        return Refusal(INVALID_RESET, f"{field}: {error}; allowed: a time such as 2026-11-01T00:00:00Z")
    wanted = wanted if wanted.tzinfo is not None else wanted.replace(tzinfo=UTC)
    if wanted > now:
        problem = f"{field}, which is in the future; the current time is {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        return Refusal(DATETIME_IN_FUTURE, f"{problem}; use a time in the past, or to.latest")
    return max(0, _milliseconds(wanted))


def _milliseconds(time: datetime) -> int:
    """Return `time` in milliseconds since 1970, rounded up so that no record from before `time` is selected."""
    return -((EPOCH - time) // MILLISECOND)


TOPIC_NOT_FOUND: Final = "TopicNotFound"
PARTITION_NOT_FOUND: Final = "PartitionNotFound"
GROUP_NOT_FOUND: Final = "GroupNotFound"
NO_OFFSETS: Final = "NoOffsets"
OFFSET_OUT_OF_RANGE: Final = "OffsetOutOfRange"
LEADER_NOT_AVAILABLE: Final = "LeaderNotAvailable"
TOO_MANY_PARTITIONS: Final = "TooManyPartitions"
COMMIT_BYTES_MAX: Final = 384 * 1024
"""The limit on the bytes of one commit, which the coordinator writes as one batch, so that a reset is atomic."""
OFFSET_BYTES: Final = 64
"""The size of a committed offset in bytes, without group id, topic name and metadata."""

OffsetsOfTime = Mapping[TopicPartition, int | None]
"""The offset of each partition's first record at or after the time of the reset, or None without such a record."""


class Move(NamedTuple):
    """The reset of one partition: the committed offset or None, the requested offset, and the ends of the log.

    `lag` is the number of records that a share group has not finished, if it is known.
    """

    partition: TopicPartition
    before: int | None
    wanted: int
    log: LogEnds
    lag: int | None = None

    @property
    def to(self) -> int:
        """Return the offset to commit: `wanted`, limited to the ends of the log as in Kafka's tool."""
        return min(max(self.wanted, self.log.start), self.log.end)

    @property
    def delta(self) -> int:
        """Return the number of skipped records; negative for records read again, and 0 without a committed offset.

        A share group has finished records behind its start offset, too, so its lag decides if it is known.
        """
        if self.before is None:
            return 0
        before = self.before if self.lag is None else self.log.end - self.lag
        return self.to - min(max(before, self.log.start), self.log.end)


class ResetPlan(NamedTuple):
    """The plan of a reset: a `Move` for each partition, ordered by topic and partition."""

    moves: tuple[Move, ...]

    @property
    def skipped(self) -> int:
        """Return the number of records that are skipped."""
        return sum(max(0, each.delta) for each in self.moves)

    @property
    def again(self) -> int:
        """Return the number of records that are read again."""
        return sum(max(0, -each.delta) for each in self.moves)

    @property
    def clamped(self) -> tuple[Move, ...]:
        """Return each `Move` whose requested offset is outside the log of its partition."""
        return tuple(each for each in self.moves if each.to != each.wanted)

    def status(self, reset_id: str, done_at: str | None = None) -> ResetStatus:
        """Return the plan as `status.reset`, which lists at most `SHOWN_PLAN_MAX` partitions."""
        shown = (
            PlannedOffset(topic=each.partition.topic, partition=each.partition.partition, from_=each.before, to=each.to)
            for each in self.moves[:SHOWN_PLAN_MAX]
        )
        return ResetStatus(
            id=reset_id,
            done_at=done_at,
            partitions=len(self.moves),
            skipped=self.skipped,
            again=self.again,
            plan=tuple(shown),
        )

    def __str__(self) -> str:
        counts = (
            f"the offsets of {counted(len(self.moves), 'partition')} are set; "
            f"the group skips {counted(self.skipped, 'record')}"
        )
        text = f"{counts} and reads {self.again:,} again"
        if not self.clamped:
            return text
        at_end = listed(f"{each.partition} at {each.to}" for each in self.clamped)
        return (
            f"{text}; the requested offset is outside the log of some partitions, which get the log start or log end "
            f"offset: {at_end}"
        )


def counted(count: int, noun: str) -> str:
    """Return the count with its noun, such as "1 record" or "2,000 records"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def plan_reset(reset: Reset, group_id: str, described: GroupDescriptions, found: OffsetsOfTime) -> ResetPlan | Refusal:
    """Return the plan of a reset, or a refusal that says why there is no plan.

    All partitions must exist, and all their leaders must have answered. If the reset names a time, `found` holds the
    offset of each partition at that time.
    """
    partitions = reset_partitions(reset, group_id, described)
    if isinstance(partitions, Refusal):
        return partitions
    names_a_time = reset.to.datetime is not None or reset.to.by_duration is not None
    unknown = [each for each in partitions if each not in described.logs or (names_a_time and each not in found)]
    if unknown:
        return Refusal(LEADER_NOT_AVAILABLE, f"no leader reports the offsets of {listed(sorted(unknown))}")
    group = described.groups[group_id]
    wanted = _wanted(reset, group_id, described, found)
    moves = []
    for each in sorted(partitions):
        offset = wanted(each)
        if offset is None:
            return _nothing_to_shift(group_id, [each for each in partitions if group.offset(each) is None])
        moves.append(Move(each, group.offset(each), offset, described.logs[each], group.lag(each)))
    plan = ResetPlan(tuple(moves))
    return _out_of_range(plan) if reset.to.offsets and plan.clamped else plan


def _wanted(
    reset: Reset, group_id: str, described: GroupDescriptions, found: OffsetsOfTime
) -> Callable[[TopicPartition], int | None]:
    """Return a function that returns the requested offset of a partition.

    The function returns None if `shiftBy` is set and the group has committed no offset in the partition.
    """
    to, logs, group = reset.to, described.logs, described.groups[group_id]
    if to.earliest is not None:
        return lambda each: logs[each].start
    if to.shift_by is not None:
        by = to.shift_by
        return lambda each: None if (before := group.offset(each)) is None else before + by
    if to.offsets:
        named = {TopicPartition(each.topic, each.partition): each.offset for each in to.offsets}
        return named.__getitem__
    if to.group is not None:
        others = described.groups[to.group].committed
        return lambda each: others[each].offset
    return lambda each: logs[each].end if (first := found.get(each)) is None else first


def refuse_size(plan: ResetPlan, group_id: str, mark: str) -> Refusal | None:
    """Refuse a plan whose OffsetCommit request would be too large.

    The request contains the metadata `mark` once for each offset.
    """
    of_each = len(group_id.encode()) + len(mark) + OFFSET_BYTES
    size_bytes = sum(of_each + len(each.partition.topic) for each in plan.moves)
    if size_bytes <= COMMIT_BYTES_MAX:
        return None
    allowed = max(1, len(plan.moves) * COMMIT_BYTES_MAX // size_bytes)
    problem = (
        f"the reset covers {counted(len(plan.moves), 'partition')}; allowed: about {allowed:,} partitions in one commit"
    )
    message = (
        f"{problem}; name fewer topics in spec.offsets.reset.topics, and reset the other topics later with another id"
    )
    return Refusal(TOO_MANY_PARTITIONS, message)


def reset_partitions(reset: Reset, group_id: str, described: GroupDescriptions) -> Collection[TopicPartition] | Refusal:
    """Return the partitions to reset, or a refusal that says why they cannot be determined.

    `to.offsets`, else `to.group`, else `topics` selects the partitions. Without these fields, all partitions are reset
    in which the group has committed offsets.
    """
    missing = [each for each in named_topics(reset) if each not in described.partitions]
    if missing:
        field = "to.offsets" if reset.to.offsets else "topics"
        problem = f"spec.offsets.reset.{field}: the cluster has no topic {', '.join(missing[:LISTED_MAX])}"
        return Refusal(TOPIC_NOT_FOUND, f"{problem}; allowed: the names of existing topics in Kafka")
    if reset.to.offsets:
        return _of_offsets(reset, described)
    if reset.to.group is not None:
        return _of_group(reset, reset.to.group, described)
    if reset.topics:
        return {
            TopicPartition(topic, number) for topic in reset.topics for number in range(described.partitions[topic])
        }
    group = described.groups[group_id]
    return _there(group, described) or _nothing_committed(group, group_id)


def named_topics(reset: Reset) -> tuple[str, ...]:
    """Return the topics that the reset names, each once."""
    return tuple(dict.fromkeys((*reset.topics, *(each.topic for each in reset.to.offsets))))


def _of_offsets(reset: Reset, described: GroupDescriptions) -> Collection[TopicPartition] | Refusal:
    named: set[TopicPartition] = set()
    for each in reset.to.offsets:
        where, count = TopicPartition(each.topic, each.partition), described.partitions[each.topic]
        field = f"spec.offsets.reset.to.offsets: {where}"
        if reset.topics and each.topic not in reset.topics:
            return Refusal(
                INVALID_RESET, f"{field} is not in spec.offsets.reset.topics; allowed: only topics in that list"
            )
        if each.partition >= count:
            has = f"{each.topic} has {counted(count, 'partition')}"
            return Refusal(PARTITION_NOT_FOUND, f"{field}: {has}; allowed: partitions 0 to {count - 1}")
        if where in named:
            return Refusal(INVALID_RESET, f"{field} is given twice; give each partition only once")
        named.add(where)
    return named


def _of_group(reset: Reset, other: str, described: GroupDescriptions) -> Collection[TopicPartition] | Refusal:
    field = f"spec.offsets.reset.to.group is {other}"
    there = _there(described.groups[other], described)
    known = {each for each in there if described.groups[other].offset(each) is not None}
    chosen = {each for each in known if not reset.topics or each.topic in reset.topics}
    without = [each for each in reset.topics if each not in {one.topic for one in chosen}]
    if without:
        problem = f"{field}, which has committed no offsets in {', '.join(without[:LISTED_MAX])}"
        return Refusal(NO_OFFSETS, f"{problem}; allowed: topics with committed offsets of that group")
    if not chosen:
        return Refusal(NO_OFFSETS, f"{field}, which has committed no offsets; allowed: a group with committed offsets")
    return chosen


def _there(group: GroupDescription, described: GroupDescriptions) -> set[TopicPartition]:
    return {each for each in group.committed if each.partition < described.partitions.get(each.topic, 0)}


def _nothing_committed(group: GroupDescription, group_id: str) -> Refusal:
    what = "has committed no offsets" if group.is_there else "does not exist: no consumer has joined or committed"
    reason = NO_OFFSETS if group.is_there else GROUP_NOT_FOUND
    return Refusal(reason, f"group {group_id} {what}; spec.offsets.reset.topics must name the topics to read")


def _nothing_to_shift(group_id: str, without: Collection[TopicPartition]) -> Refusal:
    problem = f"spec.offsets.reset.to.shiftBy: group {group_id} has committed no offset in {listed(sorted(without))}"
    return Refusal(
        NO_OFFSETS,
        f"{problem}; set earliest, latest or datetime in spec.offsets.reset.to, "
        "or name only topics with committed offsets",
    )


def _out_of_range(plan: ResetPlan) -> Refusal:
    first = plan.clamped[0]
    problem = f"spec.offsets.reset.to.offsets: the log of {first.partition} has no offset {first.wanted}"
    more = f"; number of other partitions with this problem: {len(plan.clamped) - 1}" if len(plan.clamped) > 1 else ""
    return Refusal(OFFSET_OUT_OF_RANGE, f"{problem}; allowed: {first.log.start} to {first.log.end}{more}")

"""The state of a consumer group at one observation of the brokers, and the comparison of its lag with the objective."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal, NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import WITHOUT_MEMBERS, Consumer, GroupLags, GroupReading, PartitionLag
from barnabas_operator.planning.conditions import listed
from barnabas_operator.resources.consumer_group import LagObjective

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


def with_look(
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

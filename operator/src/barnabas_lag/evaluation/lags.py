"""The lags of consumer groups, computed from the offsets that one round has read."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from barnabas_core.topic_partition import TopicPartition

NO_LEADER: Final = -1
WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})


class PartitionReading(NamedTuple):
    """A partition; `oldest` and `end` are offsets, None if no leader reported them.

    `topic_id` is None in old clusters.
    """

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    oldest: int | None = None
    end: int | None = None
    topic_id: UUID | None = None
    stable: int | None = None
    """The last stable offset, at which consumers with `read_committed` stop."""

    @property
    def held_back(self) -> int | None:
        """The number of offsets that open transactions withhold from consumers with `read_committed`."""
        return None if self.stable is None or self.end is None else max(0, self.end - self.stable)


class GroupReading(NamedTuple):
    """A group; `members` is None if the cluster does not report their number."""

    state: str
    members: int | None
    committed: Mapping[TopicPartition, int]
    resets: Mapping[TopicPartition, str] = {}
    """The ids of a ConsumerGroup's latest resets by partition, read from the metadata of the committed offsets."""
    topics: frozenset[str] | None = None
    """The topics with partitions assigned to members; None if unknown, as during a rebalance."""
    group_type: str = "classic"
    """The protocol of the group: classic, consumer (KIP-848), share (KIP-932) or another one, as it is listed."""
    lags: Mapping[TopicPartition, int] | None = None
    """The lags that the coordinator reports (KIP-1226), for a share group; partitions with an unknown lag are left out.

    `committed` then has the start offsets, before which all records are acknowledged. None for any other group, whose
    lag follows from its committed offsets.
    """

    @property
    def has_members(self) -> bool:
        """True unless the state of the group says that it has no members."""
        return self.state not in WITHOUT_MEMBERS

    def reads(self, topic: str) -> bool:
        """True if a member of the group reads the topic, or if the group has members with unknown assignments."""
        return self.has_members and (self.topics is None or topic in self.topics)


class Consumer(NamedTuple):
    """A member of a group, and its assigned partitions."""

    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class Readings(NamedTuple):
    """The brokers, partitions and groups that one round has read from a cluster.

    `silent` has the groups that exist, but whose committed offsets could not be read.
    """

    brokers: int
    partitions: Mapping[TopicPartition, PartitionReading]
    groups: Mapping[str, GroupReading]
    silent: frozenset[str] = frozenset()
    is_complete: bool = True
    """True if every broker listed its groups; otherwise a group that is not listed may still exist."""
    offsets_retention_s: float | None = None
    """The seconds for which brokers keep the offsets of a group without members; None if no broker reports the time."""


class Names(Protocol):
    """The wanted names: a Filter with regular expressions, or a set of exact names."""

    def __contains__(self, name: object, /) -> bool: ...


class Filter(NamedTuple):
    """A filter of names by regular expressions, which may match anywhere in a name."""

    wanted: re.Pattern[str]
    excluded: re.Pattern[str]

    def __contains__(self, name: object) -> bool:
        text = str(name)
        return self.wanted.search(text) is not None and self.excluded.search(text) is None


MOVES_KEPT: Final = 10
"""The number of latest commits by which a group's progress in a partition is judged, the same as in Burrow."""


class Status(IntEnum):
    """The states of a partition or group, with Burrow's names and numbers."""

    OK = 1
    WARN = 2
    STOP = 4
    STALL = 5
    REWIND = 6


WORSE: Final = (Status.OK, Status.WARN, Status.REWIND, Status.STOP, Status.STALL)
"""The states from best to worst.

REWIND comes before STOP, because a group makes progress again after a rewind.
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a group in one partition.

    `moves` are the times of the last commits that moved the offset, and `read_s` is the time when the offset was last
    read. Times are in seconds since the epoch.
    """

    committed: int
    lag: int
    read_s: float
    moves: tuple[float, ...]
    behind_since_s: float | None
    """The time when the present period with lag began; None without lag.

    A commit that moves the offset begins a new period. If the offset could not be read for some seconds, the beginning
    of the period is moved later by these seconds, so that they do not count as time with lag.
    """
    waits_s: tuple[float, ...] = ()
    """The seconds with lag before each of the last commits that moved the offset, counted from the previous one."""
    caught_up_s: float | None = None
    """The last time when there was no lag."""
    lag_when_moved: int = 0
    worse_moves: int = 0
    """The number of commits at which the lag had grown, since the last commit at which the lag had fallen."""
    rewound_from: int | None = None
    """The highest committed offset before a rewind; None without a rewind.

    It becomes None again when the group reaches this offset, or has moved its offset MOVES_KEPT times since the rewind.
    """
    moves_since_rewind: int = 0
    reset: str = ""
    """The id of a ConsumerGroup's latest reset, read from the committed offset's metadata; "" if it has none."""


def first_progress(now_s: float, committed: int, lag: int, reset: str = "") -> Progress:
    """Return the progress of a group in a partition after the first reading of the committed offset."""
    behind_since_s, caught_up_s = (now_s, None) if lag else (None, now_s)
    return Progress(
        committed, lag, now_s, (now_s,), behind_since_s, caught_up_s=caught_up_s, lag_when_moved=lag, reset=reset
    )


def next_progress(before: Progress | None, now_s: float, committed: int, lag: int, reset: str = "") -> Progress:
    """Return the progress after another reading of the committed offset; `before` is None at the first reading.

    `reset` is the id of a ConsumerGroup's latest reset, read from the committed offset's metadata; "" if it has none.
    """
    if before is None:
        return first_progress(now_s, committed, lag, reset)
    was_reset = reset not in ("", before.reset)
    seen = before if committed == before.committed else _moved(before, now_s, committed, lag, was_reset=was_reset)
    seen = replace(seen, read_s=now_s, reset=reset)
    if lag == 0:
        return replace(seen, lag=0, caught_up_s=now_s, behind_since_s=None)
    return replace(seen, lag=lag, behind_since_s=now_s if seen.behind_since_s is None else seen.behind_since_s)


def after_silence(before: Progress, now_s: float) -> Progress:
    """Return the progress after a period in which the offset was not read, which does not count as time with lag."""
    if before.behind_since_s is None:
        return before
    silent_s = max(0.0, now_s - before.read_s)
    return replace(before, read_s=now_s, behind_since_s=before.behind_since_s + silent_s)


def _moved(before: Progress, now_s: float, committed: int, lag: int, *, was_reset: bool) -> Progress:
    """Return the progress after a commit that moved the offset.

    A move to a lower offset is a rewind, unless a reset by a ConsumerGroup made it.
    """
    rewound_from, since = (None, 0) if was_reset else _rewind(before, committed)
    waited_s = 0.0 if before.behind_since_s is None else now_s - before.behind_since_s
    return replace(
        before,
        committed=committed,
        moves=(*before.moves, now_s)[-MOVES_KEPT:],
        behind_since_s=None,
        waits_s=(*before.waits_s, waited_s)[1 - MOVES_KEPT :],
        lag_when_moved=lag,
        worse_moves=0 if lag < before.lag_when_moved else before.worse_moves + (lag > before.lag_when_moved),
        rewound_from=rewound_from,
        moves_since_rewind=since,
    )


def _rewind(before: Progress, committed: int) -> tuple[int | None, int]:
    """Return the `rewound_from` and `moves_since_rewind` of Progress after a commit that moved the offset.

    Return None and 0 if there was no rewind, or if the group has reached `rewound_from` again. Return them also if the
    group has moved its offset MOVES_KEPT times since the rewind.
    """
    if committed < before.committed:
        return max(before.committed, before.rewound_from or 0), 0
    since = before.moves_since_rewind + 1
    if before.rewound_from is None or committed >= before.rewound_from or since >= MOVES_KEPT:
        return None, 0
    return before.rewound_from, since


def status(progress: Progress, now_s: float, patience_s: float, *, has_members: bool) -> Status:
    """Return the status of a group in a partition; the first of Burrow's rules that applies decides.

    A group without progress has the status STALL if members read the partition (`has_members`), and STOP otherwise.
    Burrow chooses STALL if the group still commits, but the exporter cannot see a commit of the same offset.

    STALL or STOP needs a time without progress that is longer than `patience_s` and than the sum of `progress.waits_s`.
    Time without unread records, or in which the offset was not read, does not count.
    """
    if progress.behind_since_s is None:
        return Status.OK
    if now_s - progress.behind_since_s > max(sum(progress.waits_s), patience_s):
        return Status.STALL if has_members else Status.STOP
    if progress.rewound_from is not None:
        return Status.REWIND
    if progress.caught_up_s is not None and progress.caught_up_s >= progress.moves[0]:
        return Status.OK
    return Status.WARN if progress.worse_moves >= MOVES_KEPT - 1 else Status.OK


def worst(statuses: Iterable[Status]) -> Status:
    """Return the worst of the statuses; there must be at least one status."""
    return max(statuses, key=WORSE.index)


class PartitionLag(NamedTuple):
    """The lag of a group in one partition.

    `committed` is None without a commit; then the lag counts from the log start offset. `seconds` is None if the write
    time of the next record is unknown.
    """

    committed: int | None
    end: int
    lag: int
    lead: int
    """The next offset to read minus the log start offset; a negative number counts offsets that were deleted unread."""
    seconds: float | None
    retention_percent: float
    """The unread records in percent of the records in the log; at 100, retention next deletes an unread record."""
    status: Status


class TopicLag(NamedTuple):
    """The lag of a group in one topic; `status` is the worst of its partitions."""

    lag: int
    lag_max: int
    lead_min: int
    committed: int
    velocity: float
    catch_up_s: float
    status: Status


class GroupLags(NamedTuple):
    """The lags of a group in the topics to which it has committed, for partitions whose leaders report log ends."""

    members: int | None
    partitions: Mapping[TopicPartition, PartitionLag]
    topics: Mapping[str, TopicLag]
    offsets_expire_s: float | None = None
    """The seconds until all committed offsets have expired; None if unknown, or if the group has members."""


class Evaluation(NamedTuple):
    """The lags of all groups, and the state of the cluster from which the lags were computed."""

    readings: Readings
    groups: Mapping[str, GroupLags]


def retention_percent(committed: int, oldest: int, end: int) -> float:
    """Return the unread records in percent of the log; 100 also if records were deleted before the group read them."""
    if end <= committed:
        return 0.0
    if committed <= oldest:
        return 100.0
    return 100.0 * (end - committed) / (end - oldest)

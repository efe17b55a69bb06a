"""The state that is kept between two rounds of reading a cluster, and how each round changes the state.

The times at which the records of a partition were written are estimated without reading them. The estimate uses points
(offset, time): every record below the offset was written at or before the time, and every other record at or after the
time. Each evaluation of the lag adds a point with the present log end offset and time. Points for older records come
from ListOffsets, which returns the first record with at least a given timestamp.
"""

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from math import inf
from typing import Final, NamedTuple

from barnabas_core import group_lag
from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import (
    Evaluation,
    GroupLags,
    GroupReading,
    PartitionLag,
    PartitionReading,
    Progress,
    Readings,
    Status,
    TopicLag,
    after_silence,
    next_progress,
    retention_percent,
    status,
    worst,
)

POINTS_MAX: Final = 128
POINTS_KEPT: Final = 96
KEPT_GAP: Final = 0.2
"""A point may be removed if the time between its two neighbours is at most this fraction of the older one's age."""
ASKED_GAP: Final = 0.05
"""The largest gap in time between two points at which no request is made for the time of a record between them.

The time of the record is then interpolated. The gap is a fraction of the older point's age.
"""
GAP_MIN_S: Final = 1.0


class Found(NamedTuple):
    """The first record with at least the asked timestamp; `time_s` is in seconds since the epoch."""

    offset: int
    time_s: float


class Timeline:
    """The timeline of one partition.

    Times are in seconds since the epoch; times and offsets never decrease.
    """

    __slots__ = ("_offsets", "_times")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._times = array("d")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, now_s: float, end_offset: int) -> None:
        """Add a point for the end of the log at `now_s`, and remove some points if there are too many.

        If the log has become shorter, records were lost, so points above its end are removed.
        """
        keep = bisect_right(self._offsets, end_offset)
        del self._offsets[keep:], self._times[keep:]
        if self._times:
            now_s = max(now_s, self._times[-1])
        if len(self) >= 2 and self._offsets[-2] == self._offsets[-1] == end_offset:
            # The last two points have the present log end, so only the time of the last point changes.
            self._times[-1] = now_s
        else:
            self._insert(len(self), end_offset, now_s)
        if len(self) > POINTS_MAX:
            self._thin(now_s)

    def written_s(self, offset: int) -> float | None:
        """Return when the record at this offset was written, interpolated between the nearest (offset, time) points.

        Return None if the record is older than all points, or not yet written.
        """
        after = bisect_right(self._offsets, offset)
        if after in (0, len(self)):
            return None
        before, (low, high) = after - 1, (self._times[after - 1], self._times[after])
        share = (offset - self._offsets[before]) / (self._offsets[after] - self._offsets[before])
        return low + share * (high - low)

    def question(self, offset: int, now_s: float) -> float | None:
        """Return the timestamp for a ListOffsets request that narrows down when the record at `offset` was written.

        Return 0 if the record is older than all (offset, time) points, and None if no request is needed.
        """
        after = bisect_right(self._offsets, offset)
        if not self or after == len(self):
            return None
        if after == 0:
            return 0.0
        low, high = self._times[after - 1], self._times[after]
        if high - low <= max(GAP_MIN_S, ASKED_GAP * (now_s - low)):
            return None
        return (low + high) / 2

    def answered(self, offset: int, asked_s: float, found: Found | None) -> None:
        """Add (offset, time) points from the response to a ListOffsets request about the record at `offset`.

        `asked_s` is the timestamp in the request, as returned by `question(offset)`. `found` is the first record with
        this timestamp or a later one; None if the log has no such record.
        """
        after = bisect_right(self._offsets, offset)
        if not self or after == len(self):
            return
        if after == 0:
            self._answered_first(offset, found)
            return
        low, high = self._times[after - 1], self._times[after]
        at = min(max(found.offset, self._offsets[after - 1]), self._offsets[after]) if found else self._offsets[after]
        time_s = max(found.time_s, asked_s) if found and at <= offset else asked_s
        self._insert_found(after, at, min(max(time_s, low), high), offset)

    def _insert_found(self, index: int, found: int, time_s: float, asked: int) -> None:
        """Insert the point (`found`, `time_s`) for the record at offset `found`.

        If this record is also the one at `asked`, whose time was looked up, insert the point (`found` + 1, `time_s`),
        too. Then the time of the record is exactly `time_s`.
        """
        self._insert(index, found, time_s)
        if found == asked:
            self._insert(index + 1, found + 1, time_s)

    def _answered_first(self, offset: int, found: Found | None) -> None:
        """Add (offset, time) points after a request about the record at `offset`, which is older than all points.

        `found` is the first record of the log, or None if the leader returned no record.
        """
        oldest = min(found.offset, offset) if found else offset
        time_s = found.time_s if found else self._times[0]
        self._insert_found(0, oldest, min(time_s, self._times[0]), offset)

    def _insert(self, index: int, offset: int, time_s: float) -> None:
        self._offsets.insert(index, offset)
        self._times.insert(index, time_s)

    def _thin(self, now_s: float) -> None:
        """Remove each point whose two neighbours are close together in time; KEPT_GAP says how close.

        Then remove the oldest points until POINTS_KEPT remain. A later ListOffsets request can get removed points
        again.
        """
        kept = [len(self) - 1]
        for index in range(len(self) - 2, 0, -1):
            older = self._times[index - 1]
            if self._times[kept[-1]] - older > KEPT_GAP * (now_s - older):
                kept.append(index)
        kept = sorted({*kept, 0})[-POINTS_KEPT:]
        self._offsets = array("q", (self._offsets[index] for index in kept))
        self._times = array("d", (self._times[index] for index in kept))


SUMS_KEPT: Final = 10


class LagSum(NamedTuple):
    """A time in seconds since the epoch, the sum of the lags at this time, and the number of partitions in the sum."""

    time_s: float
    lag: int
    partitions: int


class Question(NamedTuple):
    """A ListOffsets request for the first record with a timestamp of at least `time_s`.

    The response shows whether the record at `offset` was written before `time_s`.
    """

    offset: int
    time_s: float


class _Place(NamedTuple):
    """The committed offset of a group in a partition (None if there is none), and the start and end of the log."""

    committed: int | None
    oldest: int
    end: int
    reported: int | None = None
    """The lag that the coordinator of a share group reports; None for other groups."""

    @property
    def offset(self) -> int:
        return group_lag.place(self.committed, self.oldest)

    @property
    def lag(self) -> int:
        return group_lag.lag(self.committed, self.oldest, self.end) if self.reported is None else self.reported

    @property
    def next_offset(self) -> int:
        """The offset of the next record that the group can read."""
        return max(self.offset, self.oldest)


Groups = Mapping[str, Mapping[TopicPartition, _Place]]
NOTHING_READ = Readings(0, {}, {})


class History:
    """The history of one cluster.

    `patience_s` is the shortest time after which a group without progress has the status STALL or STOP.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._readings = NOTHING_READ
        self._places: Groups = {}
        self._timelines: dict[TopicPartition, Timeline] = {}
        self._progress: dict[str, dict[TopicPartition, Progress]] = {}
        self._sums: dict[str, dict[str, tuple[LagSum, ...]]] = {}
        self._without_members_since_s: dict[str, float] = {}

    def add(self, readings: Readings, now_s: float) -> None:
        """Add `readings` to the history, and drop the history of groups and partitions that no longer exist."""
        self._forget(gone(self._readings.partitions, readings.partitions))
        self._readings = readings
        topics = group_lag.by_topic(readings.partitions)
        read_before, self._places = (
            self._places,
            {
                group_id: dict(_places(reading, topics, readings.partitions))
                for group_id, reading in readings.groups.items()
            },
        )
        kept = self._kept_groups()
        self._progress = {each: self._progress[each] for each in kept if each in self._progress}
        self._sums = {each: self._sums[each] for each in kept if each in self._sums}
        self._note_members(kept, now_s)
        self._note_ends(now_s)
        for group_id, places in self._places.items():
            self._note_group(group_id, places, read_before.get(group_id, {}), now_s)

    def unheard(self) -> None:
        """Drop the offsets that were read last, because no broker answers; keep the progress of groups."""
        self._places = {}

    def _forget(self, partitions: Set[TopicPartition]) -> None:
        """Forget partitions, and the progress of all groups in these partitions."""
        if not partitions:
            return
        topics = {each.topic for each in partitions}
        self._timelines = {each: known for each, known in self._timelines.items() if each not in partitions}
        for group_id, progress in self._progress.items():
            self._progress[group_id] = {each: known for each, known in progress.items() if each not in partitions}
        for group_id, sums in self._sums.items():
            self._sums[group_id] = {topic: known for topic, known in sums.items() if topic not in topics}

    def _kept_groups(self) -> set[str]:
        """Return the groups that exist, or may exist because their broker does not answer."""
        there = {*self._readings.groups, *self._readings.silent}
        return there if self._readings.is_complete else there | self._progress.keys()

    def _note_members(self, kept: Set[str], now_s: float) -> None:
        """Record since when each group has had no members.

        If the coordinator of a group does not answer, the recorded time stays.
        """
        before, groups = self._without_members_since_s, self._readings.groups
        self._without_members_since_s = {
            **{each: since_s for each, since_s in before.items() if each in kept and each not in groups},
            **{each: before.get(each, now_s) for each, reading in groups.items() if may_expire(reading)},
        }

    def _note_ends(self, now_s: float) -> None:
        """Add the present log end offset to the Timeline of each partition that a group reads."""
        ends = {partition: place.end for places in self._places.values() for partition, place in places.items()}
        for partition, end in ends.items():
            self._timelines.setdefault(partition, Timeline()).add(now_s, end)

    def _note_group(
        self,
        group_id: str,
        places: Mapping[TopicPartition, _Place],
        read_before: Collection[TopicPartition],
        now_s: float,
    ) -> None:
        """Record the progress of a group.

        `read_before` has the partitions of the group that were also read in the previous round. For all others,
        the time since their last reading does not count as time with lag, because the lag in that time is unknown.
        """
        before = {
            each: known if each in read_before else after_silence(known, now_s)
            for each, known in self._progress.get(group_id, {}).items()
        }
        reading = self._readings.groups[group_id]
        self._progress[group_id] = {each: known for each, known in before.items() if each in reading.committed} | {
            partition: next_progress(
                before.get(partition), now_s, place.committed, place.lag, reading.resets.get(partition, "")
            )
            for partition, place in places.items()
            if place.committed is not None
        }
        sums: dict[str, tuple[int, int]] = {}
        for partition, place in places.items():
            lag, count = sums.get(partition.topic, (0, 0))
            sums[partition.topic] = lag + place.lag, count + 1
        earlier = self._sums.get(group_id, {})
        self._sums[group_id] = {
            topic: with_sum(earlier.get(topic, ()), LagSum(now_s, lag, count)) for topic, (lag, count) in sums.items()
        }

    def questions(self, now_s: float) -> dict[TopicPartition, Question]:
        """Return requests that narrow down when a group's first unread record was written, one for each partition."""
        asked: dict[TopicPartition, Question] = {}
        for places in self._places.values():
            for partition, place in places.items():
                if place.lag and partition not in asked:
                    time_s = self._timelines[partition].question(place.next_offset, now_s)
                    if time_s is not None:
                        asked[partition] = Question(place.next_offset, time_s)
        return asked

    def answered(self, partition: TopicPartition, question: Question, found: Found | None) -> None:
        """Record the response to a request: the first record at or after `question.time_s`.

        `found` is None if the log has no such record.
        """
        self._timelines[partition].answered(question.offset, question.time_s, found)

    def evaluate(self, now_s: float) -> Evaluation:
        """Return the present lag and state of every group."""
        groups = {group_id: self._group(group_id, places, now_s) for group_id, places in self._places.items()}
        return Evaluation(self._readings, groups)

    def _group(self, group_id: str, places: Mapping[TopicPartition, _Place], now_s: float) -> GroupLags:
        reading, progress = self._readings.groups[group_id], self._progress[group_id]
        lags = {
            partition: PartitionLag(
                committed=place.committed,
                end=place.end,
                lag=place.lag,
                lead=place.offset - place.oldest,
                seconds=self._seconds(partition, place, now_s),
                retention_percent=retention_percent(place.offset, place.oldest, place.end),
                status=self._status(progress.get(partition), now_s, has_members=reading.reads(partition.topic)),
            )
            for partition, place in places.items()
        }
        topics = dict(self._topics(group_id, lags))
        return GroupLags(reading.members, lags, topics, self._offsets_expire_s(group_id, now_s))

    def _status(self, progress: Progress | None, now_s: float, *, has_members: bool) -> Status:
        """Return the status of a group in a partition.

        The status is OK if the group has no committed offset there, because Burrow's rules apply only to commits.
        """
        return Status.OK if progress is None else status(progress, now_s, self._patience_s, has_members=has_members)

    def _offsets_expire_s(self, group_id: str, now_s: float) -> float | None:
        retention_s = self._readings.offsets_retention_s
        since_s = self._without_members_since_s.get(group_id)
        if retention_s is None or since_s is None:
            return None
        moves_s = (each.moves[-1] for each in self._progress[group_id].values())
        return expire_s(retention_s, since_s, moves_s, now_s)

    def _seconds(self, partition: TopicPartition, place: _Place, now_s: float) -> float | None:
        if not place.lag or place.next_offset >= place.end:
            return 0.0
        written_s = self._timelines[partition].written_s(place.next_offset)
        return None if written_s is None else max(0.0, now_s - written_s)

    def _topics(self, group_id: str, lags: Mapping[TopicPartition, PartitionLag]) -> Iterator[tuple[str, TopicLag]]:
        by_topic: dict[str, list[PartitionLag]] = {}
        for partition, lag in lags.items():
            by_topic.setdefault(partition.topic, []).append(lag)
        for topic, parts in by_topic.items():
            total, pace = sum(each.lag for each in parts), velocity(self._sums[group_id][topic])
            yield (
                topic,
                TopicLag(
                    lag=total,
                    lag_max=max(each.lag for each in parts),
                    lead_min=min(each.lead for each in parts),
                    committed=sum(each.committed or 0 for each in parts),
                    velocity=pace,
                    catch_up_s=catch_up_s(total, pace),
                    status=worst(each.status for each in parts),
                ),
            )


def _places(
    group: GroupReading,
    topics: Mapping[str, Iterable[TopicPartition]],
    partitions: Mapping[TopicPartition, PartitionReading],
) -> Iterator[tuple[TopicPartition, _Place]]:
    """Yield the group's offsets in each partition of its topics whose leader reports the start and end of the log.

    A share group has only the partitions in which its lag is known.
    """
    committed, lags = group.committed, group.lags
    of_group = committed if lags is None else {**committed, **lags}
    for partition in group_lag.partitions_read(of_group, lambda topic: topics.get(topic, ())):
        reading = partitions.get(partition)
        if reading is not None and reading.end is not None and reading.oldest is not None:
            reported = None if lags is None else group_lag.share_lag(lags.get(partition), reading.oldest, reading.end)
            if lags is None or reported is not None:
                yield partition, _Place(committed.get(partition), reading.oldest, reading.end, reported)


def gone(
    before: Mapping[TopicPartition, PartitionReading], now: Mapping[TopicPartition, PartitionReading]
) -> set[TopicPartition]:
    """Return the partitions that no longer exist, including those of a topic that was created again with another id."""
    return {each for each, known in before.items() if each not in now or now[each].topic_id != known.topic_id}


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


def may_expire(group: GroupReading) -> bool:
    """True if the group has committed offsets but no members, as far as the cluster reports.

    The state of a share group never expires.
    """
    return not group.has_members and bool(group.committed) and group.lags is None


def expire_s(retention_s: float, seen_since_s: float, moves_s: Iterable[float], now_s: float) -> float:
    """Return the seconds until all committed offsets have expired (KIP-211), between 0 and `retention_s`.

    The result is an upper bound, because the protocol reports neither the time of a commit nor the time at which the
    last member left. The exporter counts from when it first saw the group without members, or last saw a new commit.

    `seen_since_s` is the time at which the exporter first saw the group without members. `moves_s` has, for each
    partition, the time at which the exporter saw the last commit. These times are in seconds since the epoch. A commit
    restarts the retention time, because a member may have joined, committed and left between two readings of the group.
    """
    idle_s = now_s - max((seen_since_s, *moves_s))
    return min(max(0.0, retention_s - idle_s), retention_s)

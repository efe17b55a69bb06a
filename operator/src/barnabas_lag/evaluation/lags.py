"""The lags of consumer groups, computed from the offsets that one round has read."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.progress import Status
from barnabas_lag.evaluation.readings import Readings


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

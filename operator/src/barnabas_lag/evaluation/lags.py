"""The results of one round about groups."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.progress import Status
from barnabas_lag.evaluation.readings import Readings


class PartitionLag(NamedTuple):
    """A group in one partition. `committed` is None where it has committed nothing: it stands at the log's start then.

    `seconds` is None where it is not known when the next record was written.
    """

    committed: int | None
    end: int
    lag: int
    lead: int
    """Records between the oldest one and the next to be read; below 0, so many were deleted unread."""
    seconds: float | None
    retention_percent: float
    """The share of the partition's retained records that is still to be read: at 100 records are deleted unread."""
    status: Status


class TopicLag(NamedTuple):
    """A group in one topic; `status` is the worst of its partitions."""

    lag: int
    lag_max: int
    lead_min: int
    committed: int
    velocity: float
    catch_up_s: float
    status: Status


class GroupLags(NamedTuple):
    """A group in all partitions of the topics to which it has committed, where their leaders tell the ends."""

    members: int | None
    partitions: Mapping[TopicPartition, PartitionLag]
    topics: Mapping[str, TopicLag]
    offsets_expire_s: float | None = None
    """Seconds until what it has committed expires, at most; None where it has members or that is not known."""


class Evaluation(NamedTuple):
    """All of it, and what was read."""

    readings: Readings
    groups: Mapping[str, GroupLags]


def retention_percent(committed: int, oldest: int, end: int) -> float:
    """Return a value between 0 (all is read) and 100 (the next record to be read is deleted next, or was deleted)."""
    if end <= committed:
        return 0.0
    if committed <= oldest:
        return 100.0
    return 100.0 * (end - committed) / (end - oldest)

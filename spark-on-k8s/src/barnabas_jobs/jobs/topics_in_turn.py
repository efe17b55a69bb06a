"""The reading of topics one after the other; a topic that cannot be read is reported, and the next topic is read."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from barnabas_jobs.kafka.topics import Cluster, Topic
from barnabas_jobs.planning.archived import Bounds, OffsetRange, pending
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.page import Unread

TRIES: Final = 3
"""The maximum number of attempts to read a topic. An attempt fails if the oldest records are deleted meanwhile."""

Report = TypeVar("Report")


def read_in_turn(
    cluster: Cluster, names: Sequence[str], read: Callable[[Topic, Sequence[OffsetRange]], Report]
) -> tuple[list[Report], list[Unread]]:
    """Return the result of `read` for each topic, and the topics that could not be read.

    Raises JobFailed if no broker answers, or no topic at all can be read.
    """
    reports, unread, failures = list[Report](), list[Unread](), list[JobFailed]()
    for name in names:
        found: Topic | None = None
        try:
            found = cluster.topic(name)
            reports.append(_read(cluster, found, read))
        except JobFailed as failure:
            failures.append(failure)
            unread.append(_unread(cluster, name, found, failure))
    if failures and not reports:
        raise failures[0]
    return reports, unread


def records_of(cluster: Cluster, names: Sequence[str]) -> int:
    """Return the number of offsets in all topics; a topic whose offsets cannot be read counts as 0."""
    return sum(_records(cluster, name) for name in names)


def _records(cluster: Cluster, name: str) -> int:
    try:
        topic = cluster.topic(name)
        return 0 if topic.leaderless else sum(each.offsets for each in pending({}, cluster.bounds(topic)))
    except JobFailed:
        return 0  # `_read` meets the same failure later, and reports it.


def _read(cluster: Cluster, topic: Topic, read: Callable[[Topic, Sequence[OffsetRange]], Report]) -> Report:
    """Read a topic; read it again if Spark fails because the oldest records were deleted meanwhile."""
    if topic.leaderless:
        partitions = ", ".join(map(str, topic.leaderless))
        raise JobFailed(f"topic={topic.name}: the partitions {partitions} have no leader")
    for _ in range(TRIES - 1):
        bounds = cluster.bounds(topic)
        try:
            return read(topic, pending({}, bounds))
        except JobFailed:
            if not _lost_records(bounds, cluster.bounds(topic)):
                raise
    return read(topic, pending({}, cluster.bounds(topic)))


def _lost_records(before: dict[int, Bounds], now: dict[int, Bounds]) -> bool:
    return any(now[partition].earliest > bounds.earliest for partition, bounds in before.items())


def _unread(cluster: Cluster, name: str, found: Topic | None, failure: JobFailed) -> Unread:
    """Return why a topic was not read.

    Raises JobFailed if no broker answers, because then nothing is known about the topic itself.
    """
    is_gone = _is_gone(cluster, name, found)
    return Unread(
        topic=name, why="the topic was deleted while the job ran" if is_gone else str(failure), is_gone=is_gone
    )


def _is_gone(cluster: Cluster, name: str, found: Topic | None) -> bool:
    """True if the topic was deleted, even if a new topic has its name."""
    if not cluster.has(name):
        return True
    if found is None:
        return False
    try:
        return cluster.topic(name).topic_id != found.topic_id
    except JobFailed:
        return not cluster.has(name)

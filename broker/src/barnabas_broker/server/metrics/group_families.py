"""The metrics of consumer groups and their lag, under kafka_exporter's names, also for groups without members.

The coordinator of a group exports its lag. For partitions on other brokers, the coordinator asks their leaders at each
scrape (docs/decisions/lag.md). `group_lag` decides which partitions count.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.end_offsets import EARLIEST
from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.metrics.exposition import Family, Sample, escaped, labels, single
from barnabas_core import group_lag
from barnabas_core.fair_turns import GROUP_OFFSETS, in_turns
from barnabas_core.topic_partition import TopicPartition


class GroupPlace(NamedTuple):
    """The committed offset of a group in a partition; None if no offset is committed."""

    group_id: str
    topic_partition: TopicPartition
    committed: int | None


OffsetValue = Callable[[GroupPlace], int | None]
Places = Callable[[], Iterator[GroupPlace]]

LAG: Final = "High watermark minus the committed offset, or minus the log start offset if none is committed"


async def group_families(environment: HandlerEnvironment) -> list[Family]:
    """Return the metric families for offsets, lag, members and coordinators.

    The end offsets of partitions without a replica on this broker are requested from other brokers first.
    """
    prefix, groups = "kafka_consumergroup_", environment.groups
    lag, places = await _lag(environment), partial(_places, environment)
    return [
        _by_partition(
            places, f"{prefix}current_offset", "Offset that the group has committed for the partition", _offset
        ),
        _by_partition(places, f"{prefix}lag", LAG, lag),
        _by_topic(
            places,
            f"{prefix}current_offset_sum",
            "Sum of the group's committed offsets over the topic's partitions",
            _offset,
        ),
        _by_topic(places, f"{prefix}lag_sum", "Sum of the group's lag over the topic's partitions", lag),
        Family(f"{prefix}members", "gauge", "Number of members of the group", lambda: _members(groups)),
        Family(
            "barnabas_groups",
            "gauge",
            "Number of groups that this broker coordinates, by type and state",
            lambda: _by_type_and_state(groups),
        ),
        *_counters(groups),
        *_partitions(groups),
    ]


def _offset(each: GroupPlace) -> int | None:
    return each.committed


def _places(environment: HandlerEnvironment) -> Iterator[GroupPlace]:
    """Yield, for each group, the partitions with committed offsets, then the other partitions of the same topics."""
    for group_id, offsets in groupby(environment.groups.group_offsets(), key=attrgetter("group_id")):
        committed = set()
        for each in offsets:
            committed.add(each.topic_partition)
            yield GroupPlace(group_id, each.topic_partition, each.committed.offset)
        for topic_partition in group_lag.partitions_read(committed, partial(_of_topic, environment)):
            if topic_partition not in committed:
                yield GroupPlace(group_id, topic_partition, None)


def _of_topic(environment: HandlerEnvironment, topic: str) -> Iterator[TopicPartition]:
    document = environment.image.topics.get(topic)
    return (TopicPartition(topic, number) for number in range(len(document.partitions) if document is not None else 0))


async def _lag(environment: HandlerEnvironment) -> OffsetValue:
    """Request offsets from other brokers; return a function that returns a group's lag in a partition.

    The function returns None if the lag is unknown.
    """
    elsewhere: set[TopicPartition] = set()
    without_commit: set[TopicPartition] = set()
    async for each in in_turns(_places(environment), GROUP_OFFSETS):
        if _hosted(environment, each.topic_partition) is None:
            elsewhere.add(each.topic_partition)
            if each.committed is None:
                without_commit.add(each.topic_partition)
    ask = environment.end_offsets.ask
    ends, starts = await asyncio.gather(ask(elsewhere), ask(without_commit, EARLIEST))

    def lag(each: GroupPlace) -> int | None:
        hosted = _hosted(environment, each.topic_partition)
        if hosted is not None:
            return group_lag.lag(each.committed, hosted.log.log_start_offset, hosted.log.high_watermark)
        start, end = starts.get(each.topic_partition, each.committed), ends.get(each.topic_partition)
        return None if start is None or end is None else group_lag.lag(each.committed, start, end)

    return lag


def _hosted(environment: HandlerEnvironment, topic_partition: TopicPartition) -> Partition | None:
    """Return this broker's replica of a partition; None if this broker has no replica, or its replica has failed.

    If this broker is a follower, the high watermark of the replica is the one from the last fetch.
    """
    topic = environment.replicas.lookup.topics.get(topic_partition.topic)
    partition = topic.partitions.get(topic_partition.partition) if topic is not None else None
    return partition if partition is not None and partition.failure is None else None


def _by_partition(places: Places, name: str, help_text: str, value: OffsetValue) -> Family:
    def samples() -> Iterator[Sample | None]:
        for each in places():
            topic, partition = each.topic_partition
            number = value(each)
            if number is None:
                yield None
                continue
            place = f'consumergroup="{escaped(each.group_id)}",topic="{escaped(topic)}",partition="{partition}"'
            yield Sample(place, number)

    return Family(name, "gauge", help_text, samples)


def _by_topic(places: Places, name: str, help_text: str, value: OffsetValue) -> Family:
    def samples() -> Iterator[Sample | None]:
        for group_id, offsets in groupby(places(), key=attrgetter("group_id")):
            sums: dict[str, int] = defaultdict(int)
            for each in offsets:
                sums[each.topic_partition.topic] += value(each) or 0
                yield None
            for topic, total in sums.items():
                yield Sample(labels(consumergroup=group_id, topic=topic), total)

    return Family(name, "gauge", help_text, samples)


def _members(groups: GroupCoordinator) -> Iterator[Sample]:
    for group_id, member_count in groups.member_counts():
        yield Sample(labels(consumergroup=group_id), member_count)


def _by_type_and_state(groups: GroupCoordinator) -> Iterator[Sample | None]:
    counts: Counter[tuple[str, str]] = Counter()
    for each in groups.group_counts():
        counts[each] += 1
        yield None
    for (group_type, state), count in sorted(counts.items()):
        yield Sample(labels(type=group_type, state=state), count)


def _counters(groups: GroupCoordinator) -> list[Family]:
    prefix = "kafka_coordinator_group_"
    names = {
        "offset_commits": "Number of offsets that groups have committed since the start of the broker",
        "offset_expirations": "Number of committed offsets that have expired",
        "offset_deletions": "Number of committed offsets that were deleted",
        "completed_rebalances": "Number of completed rebalances",
        "consumer_group_rebalances": "Number of epochs that groups of the consumer protocol have begun",
    }
    return [
        single(f"{prefix}{name}_total", "counter", help_text, getattr(groups.counters, name))
        for name, help_text in names.items()
    ]


def _partitions(groups: GroupCoordinator) -> list[Family]:
    return [
        Family(
            "kafka_coordinator_group_num_partitions",
            "gauge",
            "Number of partitions of __consumer_offsets that this broker coordinates, by state; "
            "failed partitions serve no groups",
            lambda: [Sample(labels(state=state), count) for state, count in groups.runtime.partition_counts().items()],
        ),
        single(
            "barnabas_group_coordinator_records_left_out",
            "gauge",
            "Number of records of __consumer_offsets that could not be loaded; the broker's log "
            "names the first of them",
            groups.runtime.left_out_count(),
        ),
    ]

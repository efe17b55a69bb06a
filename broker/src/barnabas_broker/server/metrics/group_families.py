"""Groups and their lag, under kafka_exporter's names, also for groups without members.

The lag is exported by the broker that coordinates the group. Of partitions that are not on it, it asks the leaders at
the scrape (docs/decisions/consumer-lag.md).
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator, GroupOffset
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.metrics.exposition import Family, Sample, escaped, labels
from barnabas_core.topic_partition import TopicPartition

OffsetValue = Callable[[GroupOffset], int | None]

_AT_ONCE: Final = 1_000
"""Offsets; about a millisecond."""


async def group_families(environment: HandlerEnvironment) -> list[Family]:
    """Offsets, lag, members and what the coordinator has done. It waits for the answers of other brokers."""
    prefix, groups = "kafka_consumergroup_", environment.groups
    lag = await _lag(environment)
    return [
        _by_partition(groups, f"{prefix}current_offset", "Offset that the group has committed", _offset),
        _by_partition(groups, f"{prefix}lag", "Offsets between the committed one and the high watermark", lag),
        _by_topic(
            groups, f"{prefix}current_offset_sum", "Committed offsets, summed over the topic's partitions", _offset
        ),
        _by_topic(groups, f"{prefix}lag_sum", "Lag, summed over the topic's partitions", lag),
        Family(f"{prefix}members", "gauge", "Members of the group", lambda: _members(groups)),
        *_counters(groups),
        *_partitions(groups),
    ]


def _offset(each: GroupOffset) -> int:
    return each.committed.offset


async def _lag(environment: HandlerEnvironment) -> OffsetValue:
    """How far a group is behind in a partition; None where nobody tells how far the partition is."""
    elsewhere: set[TopicPartition] = set()
    for number, each in enumerate(environment.groups.group_offsets()):
        if _hosted(environment, each.topic_partition) is None:
            elsewhere.add(each.topic_partition)
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    ends = await environment.end_offsets.ask(elsewhere)

    def lag(each: GroupOffset) -> int | None:
        hosted = _hosted(environment, each.topic_partition)
        end = ends.get(each.topic_partition) if hosted is None else hosted.high_watermark
        return None if end is None else max(0, end - each.committed.offset)

    return lag


def _hosted(environment: HandlerEnvironment, topic_partition: TopicPartition) -> Partition | None:
    """The replica here, where it is one that works: a follower knows the high watermark as of its last fetch."""
    topic = environment.replicas.lookup.topics.get(topic_partition.topic)
    partition = topic.partitions.get(topic_partition.partition) if topic is not None else None
    return partition if partition is not None and partition.failure is None else None


def _by_partition(groups: GroupCoordinator, name: str, help_text: str, value: OffsetValue) -> Family:
    def samples() -> Iterator[Sample | None]:
        for each in groups.group_offsets():
            topic, partition = each.topic_partition
            number = value(each)
            if number is None:
                yield None
                continue
            place = f'consumergroup="{escaped(each.group_id)}",topic="{escaped(topic)}",partition="{partition}"'
            yield Sample(place, number)

    return Family(name, "gauge", help_text, samples)


def _by_topic(groups: GroupCoordinator, name: str, help_text: str, value: OffsetValue) -> Family:
    def samples() -> Iterator[Sample | None]:
        for group_id, offsets in groupby(groups.group_offsets(), key=attrgetter("group_id")):
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


def _counters(groups: GroupCoordinator) -> list[Family]:
    prefix = "kafka_coordinator_group_"
    names = {
        "offset_commits": "Offsets that were committed",
        "offset_expirations": "Offsets that have expired",
        "offset_deletions": "Offsets that were deleted",
        "completed_rebalances": "Rebalances that were completed",
    }
    return [
        Family(f"{prefix}{name}_total", "counter", help_text, partial(_counter, groups, name))
        for name, help_text in names.items()
    ]


def _counter(groups: GroupCoordinator, name: str) -> list[Sample]:
    return [Sample("", getattr(groups.counters, name))]


def _partitions(groups: GroupCoordinator) -> list[Family]:
    return [
        Family(
            "kafka_coordinator_group_num_partitions",
            "gauge",
            "Partitions of __consumer_offsets that this broker coordinates, by state; failed ones serve no groups",
            lambda: [Sample(labels(state=state), count) for state, count in groups.partition_counts().items()],
        ),
        Family(
            "barnabas_group_coordinator_records_left_out",
            "gauge",
            "Records of __consumer_offsets that could not be decoded or restored; the log names the first",
            lambda: [Sample("", groups.left_out_count())],
        ),
    ]

"""Groups and their lag, under kafka_exporter's names, also for groups without members.

The lag is told by the broker that coordinates the group. Of partitions that are not on it, it asks the leaders at the
scrape (docs/decisions/consumer-lag.md).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.handlers.services import Services
from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.metrics.exposition import Family, Sample, labels
from barnabas_core.topic_partition import TopicPartition


class GroupLag(NamedTuple):
    """One partition of one group; `lag` is None where nobody tells how far the partition is."""

    group: str
    topic: str
    partition: int
    offset: int
    lag: int | None


async def group_families(services: Services) -> list[Family]:
    """Offsets, lag, members and what the coordinator has done. It waits for the answers of other brokers."""
    prefix = "kafka_consumergroup_"
    lags = await _lags(services)
    return [
        _by_partition(lags, f"{prefix}current_offset", "Committed offset", lambda each: each.offset),
        _by_partition(lags, f"{prefix}lag", "Records behind the high watermark", lambda each: each.lag),
        _by_topic(lags, f"{prefix}current_offset_sum", "Committed offsets of a topic", lambda each: each.offset),
        _by_topic(lags, f"{prefix}lag_sum", "Records behind, over a topic", lambda each: each.lag),
        Family(f"{prefix}members", "gauge", "Members of the group", lambda: _members(services.groups)),
        *_counters(services.groups),
    ]


async def _lags(services: Services) -> list[GroupLag]:
    """All committed offsets of the groups that this broker coordinates."""
    offsets = list(services.groups.group_offsets())
    elsewhere = {each.topic_partition for each in offsets if _hosted(services, each.topic_partition) is None}
    ends = await services.end_offsets.ask(elsewhere)
    lags = []
    for group_id, topic_partition, committed, _, _ in offsets:
        hosted = _hosted(services, topic_partition)
        end = ends.get(topic_partition) if hosted is None else hosted.high_watermark
        lag = None if end is None else max(0, end - committed.offset)
        lags.append(GroupLag(group_id, topic_partition.topic, topic_partition.partition, committed.offset, lag))
    return lags


def _hosted(services: Services, topic_partition: TopicPartition) -> Partition | None:
    """The replica here, where it is one that works: a follower knows the high watermark as of its last fetch."""
    topic = services.replicas.topics.get(topic_partition.topic)
    partition = topic.partitions.get(topic_partition.partition) if topic is not None else None
    return partition if partition is not None and partition.failure is None else None


def _by_partition(
    lags: Sequence[GroupLag], name: str, help_text: str, value: Callable[[GroupLag], int | None]
) -> Family:
    def samples() -> Iterator[Sample]:
        for each in lags:
            number = value(each)
            if number is not None:
                yield Sample(labels(consumergroup=each.group, topic=each.topic, partition=each.partition), number)

    return Family(name, "gauge", help_text, samples)


def _by_topic(lags: Sequence[GroupLag], name: str, help_text: str, value: Callable[[GroupLag], int | None]) -> Family:
    def samples() -> Iterator[Sample]:
        sums: dict[tuple[str, str], int] = defaultdict(int)
        for each in lags:
            sums[each.group, each.topic] += value(each) or 0
        for (group, topic), total in sums.items():
            yield Sample(labels(consumergroup=group, topic=topic), total)

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

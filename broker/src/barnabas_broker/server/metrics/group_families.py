"""Groups and their lag, under kafka_exporter's names, also for groups without members.

The lag is told by the broker that coordinates the group, for the partitions that it holds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.handlers.services import Services
from barnabas_broker.server.metrics.exposition import Family, Sample, labels


class GroupLag(NamedTuple):
    """One partition of one group; `lag` is None where the partition is not on this broker."""

    group: str
    topic: str
    partition: int
    offset: int
    lag: int | None


def group_families(services: Services) -> list[Family]:
    """Offsets, lag, members and what the coordinator has done."""
    prefix = "kafka_consumergroup_"
    return [
        _by_partition(services, f"{prefix}current_offset", "Committed offset", lambda each: each.offset),
        _by_partition(services, f"{prefix}lag", "Records behind the high watermark", lambda each: each.lag),
        _by_topic(services, f"{prefix}current_offset_sum", "Committed offsets of a topic", lambda each: each.offset),
        _by_topic(services, f"{prefix}lag_sum", "Records behind, over a topic", lambda each: each.lag),
        Family(f"{prefix}members", "gauge", "Members of the group", lambda: _members(services.groups)),
        *_counters(services.groups),
    ]


def lags(services: Services) -> Iterator[GroupLag]:
    """All committed offsets of the groups that this broker coordinates."""
    for group_id, (topic, number), committed, _, _ in services.groups.group_offsets():
        hosted = services.replicas.topics.get(topic)
        partition = hosted.partitions.get(number) if hosted is not None else None
        lag = None if partition is None else max(0, partition.high_watermark - committed.offset)
        yield GroupLag(group_id, topic, number, committed.offset, lag)


def _by_partition(services: Services, name: str, help_text: str, value: Callable[[GroupLag], int | None]) -> Family:
    def samples() -> Iterator[Sample]:
        for each in lags(services):
            number = value(each)
            if number is not None:
                yield Sample(labels(consumergroup=each.group, topic=each.topic, partition=each.partition), number)

    return Family(name, "gauge", help_text, samples)


def _by_topic(services: Services, name: str, help_text: str, value: Callable[[GroupLag], int | None]) -> Family:
    def samples() -> Iterator[Sample]:
        sums: dict[tuple[str, str], int] = defaultdict(int)
        for each in lags(services):
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

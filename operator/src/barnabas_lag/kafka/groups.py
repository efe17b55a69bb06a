"""Groups, their members and their committed offsets, read from their coordinators."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka.errors import for_code
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest

from barnabas_core.errors import ErrorCode
from barnabas_core.reset_mark import reset_ids
from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.asking import Asking
from barnabas_kafka.batches import MANY_GROUPS_VERSION, describe_groups, fetch_offsets
from barnabas_kafka.consumer_groups import CONSUMER, ConsumerGroupDescribeRequest, describe_consumer_groups, owned
from barnabas_kafka.log_offsets import by_broker
from barnabas_kafka.share_groups import (
    SHARE,
    UNKNOWN,
    ShareGroupDescribeRequest,
    describe_share_groups,
    describe_share_offsets,
)
from barnabas_lag.evaluation.filters import Names
from barnabas_lag.evaluation.readings import GroupReading, PartitionReading
from barnabas_lag.kafka.described import CONSUMERS, SHARE_CONSUMERS, Described

CLASSIC: Final = "classic"

Known = Callable[[TopicPartition], TopicPartition | None]
"""A function that returns one shared object for all equal partitions, to save memory.

The function returns None for a partition that is to be skipped.
"""


class Listed(NamedTuple):
    """A group as its coordinator lists it; old clusters report no state, and have only classic groups."""

    coordinator: int
    state: str
    group_type: str


class Committed(NamedTuple):
    """The committed offsets of a group, and the ids of the latest resets by a ConsumerGroup, both by partition.

    A reset stores its id in the metadata of the committed offset.
    """

    offsets: dict[TopicPartition, int]
    resets: dict[TopicPartition, str]


def listed_groups(asking: Asking, broker_ids: Sequence[int], wanted: Names) -> tuple[dict[str, Listed], bool]:
    """Return the groups in `wanted`, and True if every broker has listed its groups.

    Brokers that fail to list their groups are recorded as failures.
    """
    found: dict[str, Listed] = {}
    answered = set()
    for broker_id, request, answer in asking.ask({each: [ListGroupsRequest()] for each in broker_ids}):
        if answer.error_code != ErrorCode.NONE:
            asking.failed(request, broker_id, for_code(answer.error_code).__name__)
            continue
        answered.add(broker_id)
        for each in answer.groups:
            group_type = (each.group_type or CLASSIC).lower()
            if each.group_id in wanted:
                found[each.group_id] = Listed(broker_id, each.group_state or "Unknown", group_type)
    return found, answered == set(broker_ids)


def read_groups(
    asking: Asking, listed: Mapping[str, Listed], partitions: Mapping[TopicPartition, PartitionReading]
) -> dict[str, GroupReading]:
    """Return the groups with their offsets in `partitions`; groups that could not be read are left out."""
    known = {each: each for each in partitions}
    return group_readings(asking, listed, described_groups(asking, listed), known.get)


def group_readings(
    asking: Asking, listed: Mapping[str, Listed], described: Mapping[str, Described], known: Known
) -> dict[str, GroupReading]:
    """Return the groups with their offsets, without the partitions for which `known` returns None."""
    readings = {
        group_id: group_reading(listed[group_id], described.get(group_id), committed)
        for group_id, committed in committed_offsets(asking, listed, known)
    }
    for group_id, (offsets, lags) in share_offsets(asking, listed, known):
        found = group_reading(listed[group_id], described.get(group_id), Committed(offsets, {}))
        readings[group_id] = found._replace(lags=lags)
    return readings


def group_reading(listed: Listed, described: Described | None, committed: Committed) -> GroupReading:
    """Return one group; without a description the number and topics of its members are unknown."""
    group_type = listed.group_type
    if described is None:
        return GroupReading(listed.state, None, *committed, group_type=group_type)
    return GroupReading(described.state, len(described.members), *committed, described.topics, group_type)


def described_groups(asking: Asking, listed: Mapping[str, Listed]) -> dict[str, Described]:
    """Return the descriptions of classic groups, of groups of the consumer protocol, and of share groups.

    Groups that could not be read are recorded as failures.
    """
    requests: dict[int, list[Any]] = {}
    kinds = ((CLASSIC, describe_groups), (CONSUMER, describe_consumer_groups), (SHARE, describe_share_groups))
    for group_type, describe in kinds:
        of_type = [group_id for group_id, each in listed.items() if each.group_type == group_type]
        for broker_id, some in by_broker(of_type, lambda group_id: listed[group_id].coordinator).items():
            requests.setdefault(broker_id, []).extend(describe(some))
    found: dict[str, Described] = {}
    for broker_id, request, answer in asking.ask(requests):
        for group in answer.groups:
            if group.error_code == ErrorCode.NONE:
                found[group.group_id] = _described(request, group)
        asking.refused(request, broker_id, ((each.error_code, f"group {each.group_id}") for each in answer.groups))
    return found


def _described(request: Any, group: Any) -> Described:
    if isinstance(request, ConsumerGroupDescribeRequest):
        return Described(group.group_state, CONSUMERS, group.members, owned, group.group_epoch)
    if isinstance(request, ShareGroupDescribeRequest):
        return Described(group.group_state, SHARE_CONSUMERS, group.members, owned, group.group_epoch)
    return Described(group.group_state, group.protocol_type, group.members)


def committed_offsets(asking: Asking, listed: Mapping[str, Listed], known: Known) -> Iterator[tuple[str, Committed]]:
    """Yield each group with its committed offsets, without the partitions for which `known` returns None.

    Groups whose offsets could not be read are left out.
    """
    many = asking.supports(OffsetFetchRequest, MANY_GROUPS_VERSION)
    committing = [group_id for group_id, each in listed.items() if each.group_type != SHARE]
    coordinated = by_broker(committing, lambda group_id: listed[group_id].coordinator)
    requests = {broker_id: fetch_offsets(some, many=many) for broker_id, some in coordinated.items()}
    for broker_id, request, answer in asking.ask(requests):
        groups = _answered(request, answer, many=many)
        for group_id, group in groups:
            if group.error_code == ErrorCode.NONE:
                yield group_id, _committed(group.topics, known)
        asking.refused(request, broker_id, ((group.error_code, f"group {group_id}") for group_id, group in groups))


def share_offsets(
    asking: Asking, listed: Mapping[str, Listed], known: Known
) -> Iterator[tuple[str, tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]]:
    """Yield each share group with its start offsets and its lags, without those that its coordinator does not know.

    Groups that could not be read are left out.
    """
    of_type = [group_id for group_id, each in listed.items() if each.group_type == SHARE]
    coordinated = by_broker(of_type, lambda group_id: listed[group_id].coordinator)
    requests = {broker_id: describe_share_offsets(some) for broker_id, some in coordinated.items()}
    for broker_id, request, answer in asking.ask(requests):
        for group in answer.groups:
            if group.error_code == ErrorCode.NONE:
                yield group.group_id, _share_offsets(group.topics, known)
        asking.refused(request, broker_id, ((each.error_code, f"group {each.group_id}") for each in answer.groups))


def _share_offsets(topics: Iterable[Any], known: Known) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    offsets: dict[TopicPartition, int] = {}
    lags: dict[TopicPartition, int] = {}
    for topic in topics:
        for part in topic.partitions:
            partition = known(TopicPartition(topic.topic_name, part.partition_index))
            if part.error_code != ErrorCode.NONE or partition is None:
                continue
            if part.start_offset > UNKNOWN:
                offsets[partition] = part.start_offset
            if part.lag > UNKNOWN:
                lags[partition] = part.lag
    return offsets, lags


def _answered(request: Any, answer: Any, *, many: bool) -> Sequence[tuple[str, Any]]:
    return [(each.group_id, each) for each in answer.groups] if many else [(request.group_id, answer)]


def _committed(topics: Iterable[Any], known: Known) -> Committed:
    """Collect committed offsets by partition. To save memory, the keys are the shared objects that `known` returns."""
    found = Committed({}, {})
    for topic in topics:
        for part in topic.partitions:
            if part.error_code == ErrorCode.NONE and part.committed_offset >= 0:
                partition = known(TopicPartition(topic.name, part.partition_index))
                if partition is not None:
                    found.offsets[partition] = part.committed_offset
                    for reset_id in reset_ids(part.metadata or "")[:1]:
                        found.resets[partition] = reset_id
    return found

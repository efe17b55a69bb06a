"""Groups, their members and their committed offsets, read from their coordinators."""

import struct
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

from kafka.errors import for_code
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.protocol.metadata import MetadataRequest

from barnabas_core.errors import ErrorCode
from barnabas_core.group_lag import reset_ids
from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.asking import (
    CONSUMER,
    MANY_GROUPS_VERSION,
    SHARE,
    UNKNOWN,
    Asking,
    ConsumerGroupDescribeRequest,
    ShareGroupDescribeRequest,
    by_broker,
    describe_consumer_groups,
    describe_groups,
    describe_share_groups,
    describe_share_offsets,
    fetch_offsets,
    owned,
)
from barnabas_lag.evaluation.history import History
from barnabas_lag.evaluation.lags import Consumer, Evaluation, Filter, GroupReading, Names, PartitionReading, Readings
from barnabas_lag.kafka.offsets import (
    ASKED,
    OffsetsRetention,
    answers,
    coordinators,
    partitions_of,
    with_ends,
    with_stable_offsets,
    without_coordinator,
)

STABLE: Final = "Stable"
CONSUMERS: Final = "consumer"
"""The protocol type of consumers. Groups of other types, such as Kafka Connect's, do not assign partitions."""
SHARE_CONSUMERS: Final = "share"
"""The protocol type that stands here for members of share groups, which ShareGroupDescribe does not name."""
KEPT_BYTES_MAX: Final = 32 << 20
"""The largest size of the cache of assignments in bytes, enough for about 280,000 partitions."""
ENTRY_BYTES: Final = 300
PARTITION_BYTES: Final = 112
"""The memory in bytes, as measured, of an assignment in the cache, and of each partition of the assignment."""


class Assignments:
    """A cache of decoded assignments, for many threads.

    `bytes_max` bounds the cache, which drops the least recently used entries.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._kept: OrderedDict[bytes, tuple[TopicPartition, ...] | None] = OrderedDict()
        self.kept_bytes = 0

    def decoded(self, assignment: bytes) -> tuple[TopicPartition, ...] | None:
        """Return the partitions of an encoded assignment, from the cache if it is there; None for another format."""
        with self._lock:
            if assignment in self._kept:
                self._kept.move_to_end(assignment)
                return self._kept[assignment]
        partitions = _decoded(assignment)
        with self._lock:
            if assignment not in self._kept:
                self._kept[assignment] = partitions
                self.kept_bytes += _bytes(assignment, partitions)
            while self.kept_bytes > self._bytes_max:
                self.kept_bytes -= _bytes(*self._kept.popitem(last=False))
        return partitions


def _bytes(assignment: bytes, partitions: Sequence[TopicPartition] | None) -> int:
    return ENTRY_BYTES + len(assignment) + PARTITION_BYTES * len(partitions or ())


def _decoded(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    try:
        decoded = ConsumerProtocolAssignment.decode(assignment) if assignment else None
    except (struct.error, ValueError, IndexError):
        return None
    if decoded is None:
        return ()
    topics = decoded.assigned_partitions
    if topics is None or any(None in (topic.topic, topic.partitions) for topic in topics):
        return None  # The leader of a group may write nulls into any field.
    return tuple(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)


assigned: Final = Assignments(KEPT_BYTES_MAX).decoded
"""The function that decodes an assignment, with one cache for all clusters of this process."""


PartitionsOf = Callable[[Any], tuple[TopicPartition, ...] | None]


def classic_partitions(member: Any) -> tuple[TopicPartition, ...] | None:
    """Return the partitions of a member of a classic group, or None if its assignment has another format."""
    return assigned(member.member_assignment)


class Described(NamedTuple):
    """The state and the protocol type of a group, and its members as in the response.

    `partitions_of` returns the partitions of a member, or None if they are not readable.
    """

    state: str
    protocol_type: str
    members: Sequence[Any]
    partitions_of: PartitionsOf = classic_partitions
    epoch: int | None = None
    """The epoch of the group, or None for a classic group."""

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics with partitions assigned to members, or None if unknown.

        For a share group these are the topics to which members subscribe, because the partitions of a new topic are
        assigned only after their state was made.
        """
        if self.protocol_type == SHARE_CONSUMERS and self.members:
            return frozenset(name for each in self.members for name in each.subscribed_topic_names)
        if self.state != STABLE or self.protocol_type != CONSUMERS:
            return None
        topics: set[str] = set()
        for each in self.members:
            partitions = self.partitions_of(each)
            if partitions is None:
                return None
            topics.update(where.topic for where in partitions)
        return frozenset(topics)


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


CONSUMERS_MAX: Final = 20
"""The maximum number of members for each group; further members, and their assignments, are left out."""


class Chosen(NamedTuple):
    """The state of the chosen groups, and at most CONSUMERS_MAX members of each group."""

    readings: Readings
    consumers: Mapping[str, Sequence[Consumer]]
    away: frozenset[str] = frozenset()
    """The groups whose coordinator is unavailable, so that nobody knows whether they exist."""


def read_chosen(
    asking: Asking,
    group_ids: Collection[str],
    topics_before: Mapping[str, Collection[str]],
    retention: OffsetsRetention,
) -> Chosen:
    """Read the committed offsets and members of the groups in `group_ids`, and all partitions of the groups' topics.

    If a group cannot be read, its topics are those of the previous round, which `topics_before` has for each group.
    Raises ClusterUnreachable if no broker answers.
    """
    metadata = asking.ask_any(MetadataRequest(topics=[ASKED], allow_auto_topic_creation=False))
    broker_ids = [each.node_id for each in metadata.brokers]
    asking.meet(broker_ids)
    listed, is_complete = listed_groups(asking, broker_ids, frozenset(group_ids))
    described = described_groups(asking, listed)
    consumers = {group_id: tuple(_consumers(each)) for group_id, each in described.items()}
    groups = group_readings(asking, listed, described, lambda each: each)
    away = without_coordinator(set(group_ids) - listed.keys(), coordinators(metadata), broker_ids)
    silent = frozenset(listed.keys() - groups.keys() | away)
    unheard = silent if is_complete else set(group_ids) - groups.keys()
    read = {where.topic for reading in groups.values() for where in reading.committed}
    had = {where.topic for some in consumers.values() for each in some for where in each.partitions}
    topics = read | had | {topic for group_id in unheard for topic in topics_before.get(group_id, ())}
    partitions = with_ends(asking, with_stable_offsets(asking, _partitions(asking, topics)))
    retention_s = retention.seconds(asking, broker_ids)
    readings = Readings(len(broker_ids), partitions, groups, silent, is_complete, retention_s)
    return Chosen(readings, consumers, frozenset(away))


def _partitions(asking: Asking, topics: Collection[str]) -> dict[TopicPartition, PartitionReading]:
    if not topics:
        return {}
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)]
    return partitions_of(asking.ask_any(MetadataRequest(topics=asked, allow_auto_topic_creation=False)), topics)


def _consumers(group: Described) -> Iterator[Consumer]:
    """Yield the first CONSUMERS_MAX members of a group with their assigned partitions.

    A member has no partitions during a rebalance, or if its assignment is not that of a consumer.
    """
    for each in group.members[:CONSUMERS_MAX]:
        partitions = group.partitions_of(each) or ()
        yield Consumer(each.client_id, each.client_host.removeprefix("/"), partitions)


QUESTIONS_A_ROUND: Final = 8
"""The maximum rounds of ListOffsets requests in one evaluation; the next evaluation asks what is still unknown."""


def evaluate(asking: Asking, readings: Readings, history: History, now_s: float) -> Evaluation:
    """Add `readings` to the history, and return the lags of all groups.

    To learn the age of the lag, ask the leaders when the first unread records of the groups were written. `now_s` is in
    seconds since the epoch. Raises ClusterUnreachable if no request can be sent.
    """
    history.add(readings, now_s)
    for _ in range(QUESTIONS_A_ROUND):
        questions = history.questions(now_s)
        found = answers(asking, readings.partitions, questions)
        for partition, answer in found.items():
            history.answered(partition, questions[partition], answer)
        if not found:
            break
    return history.evaluate(now_s)


class Filters(NamedTuple):
    """The filters of the topics and groups that the exporter reads."""

    topics: Filter
    groups: Filter


def read_cluster(asking: Asking, filters: Filters, retention: OffsetsRetention) -> Readings:
    """Read committed offsets, then stable offsets, then log ends, so that no committed offset is ahead of its log end.

    Raises ClusterUnreachable if no broker answers.
    """
    metadata = asking.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    broker_ids = [each.node_id for each in metadata.brokers]
    asking.meet(broker_ids)
    partitions = partitions_of(metadata, filters.topics)
    listed, is_complete = listed_groups(asking, broker_ids, filters.groups)
    groups = read_groups(asking, listed, partitions)
    return Readings(
        brokers=len(broker_ids),
        partitions=with_ends(asking, with_stable_offsets(asking, partitions)),
        groups=groups,
        silent=frozenset(listed.keys() - groups.keys()),
        is_complete=is_complete and set(coordinators(metadata)) <= set(broker_ids),
        offsets_retention_s=retention.seconds(asking, broker_ids),
    )

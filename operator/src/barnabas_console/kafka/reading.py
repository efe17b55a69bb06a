"""Read the cluster once, with a bounded number of requests to each broker, however many topics and groups it has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kafka.errors import for_code
from kafka.protocol.admin import (
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from barnabas_console.model.snapshot import (
    Broker,
    Figure,
    GroupSeen,
    LogDir,
    Member,
    Reassignment,
    Seen,
    Unknown,
    leaders_and_replicas,
)
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.asking import SHARE, Asking
from barnabas_lag.evaluation.lags import NO_LEADER, PartitionReading
from barnabas_lag.kafka.groups import (
    Described,
    Listed,
    committed_offsets,
    described_groups,
    listed_groups,
    share_offsets,
)
from barnabas_lag.kafka.offsets import partitions_of, with_ends, with_stable_offsets

REASSIGNMENTS_MS: Final = 10_000
ELIGIBLE_TOPICS_MAX: Final = 200
"""The topics without a leader whose eligible leader replicas are asked for in a round."""
REFUSALS: Final = ("AuthorizationFailed", "AUTHORIZATION_FAILED")
"""The words in the names of Kafka's errors about missing rights."""


class Everything:
    """The names of all topics or groups."""

    def __contains__(self, name: object) -> bool:
        return True


def read_cluster_once(asking: Asking, now_s: float) -> Seen:
    """Read brokers, topics, groups and disks. Raises ClusterUnreachable if no broker answers.

    Committed offsets are read before the ends of logs, so that no group is ahead of the log.
    """
    metadata = asking.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    broker_ids = sorted(each.node_id for each in metadata.brokers)
    asking.meet(broker_ids)
    listed, _ = listed_groups(asking, broker_ids, Everything())
    groups = _groups(asking, listed)
    readings = with_ends(asking, with_stable_offsets(asking, partitions_of(metadata, Everything())))
    disks = _disks(asking, broker_ids)
    reassignments = _reassignments(asking, metadata.controller_id)
    eligible = _eligible(asking, readings)
    return Seen(
        at_s=now_s,
        cluster_id=metadata.cluster_id or "",
        brokers=tuple(_brokers(metadata, readings, disks)),
        partitions=readings,
        sizes=_sizes(disks),
        groups=groups,
        failures=tuple(dict.fromkeys(map(str, asking.failures))),
        reassignments=reassignments,
        futures=_parts(disks, are_future=True),
        eligible=eligible,
    )


def why_unknown(asking: Asking, about: str) -> Unknown:
    """Return the reason why a request of this round gave nothing: a missing right, or no answer."""
    reasons = [each.reason for each in asking.failures if each.request == about]
    return Unknown.NO_RIGHT if any(word in each for word in REFUSALS for each in reasons) else Unknown.NO_ANSWER


def _groups(asking: Asking, listed: Mapping[str, Listed]) -> dict[str, GroupSeen]:
    described = described_groups(asking, listed)
    committed = {group_id: some.offsets for group_id, some in committed_offsets(asking, listed, lambda each: each)}
    shares = dict(share_offsets(asking, listed, lambda each: each))
    committed |= {group_id: starts for group_id, (starts, _) in shares.items()}
    lags = {group_id: found for group_id, (_, found) in shares.items()}
    without_members, without_offsets = why_unknown(asking, "DescribeGroups"), why_unknown(asking, "OffsetFetch")
    without_starts = why_unknown(asking, "DescribeShareGroupOffsets")
    return {
        group_id: GroupSeen(
            group_id=group_id,
            group_type=each.group_type,
            state=described[group_id].state if group_id in described else each.state,
            coordinator=each.coordinator,
            members=_members(described[group_id]) if group_id in described else without_members,
            committed=committed.get(group_id, without_starts if each.group_type == SHARE else without_offsets),
            epoch=described[group_id].epoch if group_id in described else None,
            lags=lags.get(group_id),
        )
        for group_id, each in listed.items()
    }


def _members(group: Described) -> tuple[Member, ...]:
    return tuple(
        Member(
            each.member_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            group.partitions_of(each),
            each.member_epoch if group.epoch is not None else None,
        )
        for each in group.members
    )


def _disks(asking: Asking, broker_ids: Sequence[int]) -> dict[int, Sequence[Any] | Unknown]:
    """Return the log dirs of each broker as in its response, or why they are not known."""
    found: dict[int, Sequence[Any] | Unknown] = dict.fromkeys(broker_ids, Unknown.NO_ANSWER)
    for broker_id, _, answer in asking.ask({each: [DescribeLogDirsRequest(topics=None)] for each in broker_ids}):
        code = answer.error_code or ErrorCode.NONE
        # Before version 3 of the request, brokers answer a client without the right with no log dirs.
        if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED or (code == ErrorCode.NONE and not answer.results):
            found[broker_id] = Unknown.NO_RIGHT
        elif code == ErrorCode.NONE:
            found[broker_id] = answer.results
    return found


def _sizes(disks: Mapping[int, Sequence[Any] | Unknown]) -> dict[tuple[int, str, int], int] | Unknown:
    if disks and all(each is Unknown.NO_RIGHT for each in disks.values()):
        return Unknown.NO_RIGHT
    return _parts(disks, are_future=False)


def _parts(disks: Mapping[int, Sequence[Any] | Unknown], *, are_future: bool) -> dict[tuple[int, str, int], int]:
    return {
        (broker_id, topic.name, part.partition_index): part.partition_size
        for broker_id, some in disks.items()
        for log_dir in _readable(some)
        for topic in log_dir.topics
        for part in topic.partitions
        if part.is_future_key == are_future
    }


def _reassignments(asking: Asking, controller_id: int) -> Sequence[Reassignment] | Unknown:
    """Return the partitions whose replicas move. Only the controller of old clusters answers."""
    if not asking.supports(ListPartitionReassignmentsRequest, 0):
        return Unknown.NOT_KEPT
    request = ListPartitionReassignmentsRequest(timeout_ms=REASSIGNMENTS_MS, topics=None)
    for _, _, answer in asking.ask({controller_id: [request]}):
        if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return Unknown.NO_RIGHT
        if answer.error_code == ErrorCode.NONE:
            return [
                Reassignment(
                    TopicPartition(topic.name, each.partition_index),
                    tuple(each.adding_replicas),
                    tuple(each.removing_replicas),
                )
                for topic in answer.topics
                for each in topic.partitions
            ]
    return Unknown.NO_ANSWER


def _eligible(
    asking: Asking, readings: Mapping[TopicPartition, PartitionReading]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the eligible leader replicas of partitions without a leader; none if brokers do not report them."""
    topics = dict.fromkeys(where.topic for where, found in readings.items() if found.leader == NO_LEADER)
    if not topics or not asking.supports(DescribeTopicPartitionsRequest, 0):
        return {}
    of_topic = DescribeTopicPartitionsRequest.TopicRequest
    asked = [of_topic(name=each) for each in sorted(topics)[:ELIGIBLE_TOPICS_MAX]]
    answer = asking.ask_any(DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=2_000, cursor=None))
    return {
        TopicPartition(topic.name, each.partition_index): tuple(each.eligible_leader_replicas)
        for topic in answer.topics
        for each in topic.partitions
        if each.leader_id == NO_LEADER and each.eligible_leader_replicas
    }


def _readable(log_dirs: Sequence[Any] | Unknown) -> Sequence[Any]:
    return () if isinstance(log_dirs, Unknown) else log_dirs


def _brokers(
    metadata: Any,
    readings: Mapping[TopicPartition, PartitionReading],
    disks: Mapping[int, Sequence[Any] | Unknown],
) -> Iterator[Broker]:
    leads, replicas = leaders_and_replicas(readings.values())
    for each in sorted(metadata.brokers, key=lambda broker: int(broker.node_id)):
        found = disks[each.node_id]
        yield Broker(
            broker_id=each.node_id,
            address=f"{each.host}:{each.port}",
            rack=each.rack,
            is_controller=each.node_id == metadata.controller_id,
            leads=leads[each.node_id],
            replicas=replicas[each.node_id],
            size=found if isinstance(found, Unknown) else sum(map(_used, found)),
            log_dirs=found if isinstance(found, Unknown) else tuple(map(_log_dir, found)),
        )


def _used(log_dir: Any) -> int:
    return sum(part.partition_size for topic in log_dir.topics for part in topic.partitions)


def _log_dir(found: Any) -> LogDir:
    error = "" if found.error_code == ErrorCode.NONE else for_code(found.error_code).__name__
    replicas = sum(len(topic.partitions) for topic in found.topics)
    return LogDir(found.log_dir, error, _bytes(found.total_bytes), _bytes(found.usable_bytes), replicas)


def _bytes(value: int | None) -> Figure:
    return Unknown.NOT_KEPT if value is None or value < 0 else value

"""Reads a ClusterReport from any Kafka cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka import structs
from kafka.admin import OffsetSpec

from barnabas_core import kafka_uuid
from barnabas_core.group_lag import by_topic, lag, partitions_read, share_lag
from barnabas_core.topic_partition import TRANSACTION_STATE, TopicPartition
from barnabas_kafka.asking import SHARE, Asking
from barnabas_kafka.connection import ClusterUnreachable, reachable
from barnabas_lag.kafka.groups import Described, Listed, described_groups, listed_groups, share_offsets
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kafka.step_requests import PartitionKey, lost_partitions, overrides, stray_logs
from barnabas_operator.planning.cluster_state import StrayLog


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """A live broker in the report."""

    broker_id: int
    address: str
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """A partition in the report.

    Offsets are None if no leader answers. `size_bytes` is the size of the leader's log. `lost` describes the loss
    if the partition is offline because every replica has lost records; otherwise it is None.
    """

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    earliest_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    lost: str | None = None

    @property
    def state(self) -> str:
        """The state: `offline` without a leader, `under-replicated` if a replica is not in sync, otherwise `ok`."""
        if self.leader is None:
            return "offline"
        return "under-replicated" if set(self.replicas) - set(self.isr) else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """A topic in the report, with its partitions in order."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionReport, ...]

    @property
    def records(self) -> int:
        """The number of offsets in the logs of all partitions. A compacted topic has fewer records than offsets."""
        return sum((part.end_offset or 0) - (part.earliest_offset or 0) for part in self.partitions)

    @property
    def size_bytes(self) -> int:
        """The size of the leaders' logs in bytes."""
        return sum(part.size_bytes or 0 for part in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReport:
    """A member of a group, and its assigned partitions."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    """The lag of a group in one partition.

    `lag` is None if the group has committed nothing to the topic, or no broker reports the log's ends.
    """

    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """A consumer group of the classic or the consumer protocol; `members` is None if they are unknown."""

    group_id: str
    type: str
    state: str
    members: tuple[MemberReport, ...] | None
    lags: tuple[LagReport, ...]

    @property
    def lag(self) -> int | None:
        """The sum of the known lags; None for a share group whose lag is unknown in one of its partitions."""
        lags = [part.lag for part in self.lags]
        return None if self.type == SHARE and None in lags else sum(filter(None, lags))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """The report that `barnabas status` shows."""

    bootstrap: str
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerReport, ...]
    topics: tuple[TopicReport, ...]
    groups: tuple[GroupReport, ...]
    stray_logs: tuple[StrayLog, ...] = ()
    refuses_transactions: bool = False
    """True if brokers refuse transactions, because `__transaction_state` lacks cleanup.policy=compact."""

    def partitions_in(self, state: str) -> int:
        """Return the number of partitions in `state`, which is `offline`, `under-replicated` or `ok`."""
        return sum(part.state == state for topic in self.topics for part in topic.partitions)


OffsetsByPartition = Mapping[PartitionKey, int]


class _Logs(NamedTuple):
    """The start and end offsets of logs, and by topic the partitions whose leader has reported both offsets."""

    topics: Mapping[str, Sequence[TopicPartition]]
    starts: OffsetsByPartition
    ends: OffsetsByPartition


WITH_OFFSETS: Final = frozenset({"classic", "consumer", SHARE})


def gather_report(admin: ClusterAdmin) -> ClusterReport:
    """Read brokers, topics, groups and stray logs as a report. Raises ClusterUnreachable if no broker answers."""
    with reachable():
        cluster = admin.client.describe_cluster()
        topics = [topic for topic in admin.client.describe_topics() if topic["error_code"] == 0]
        led = [
            (topic["name"], partition["partition_index"])
            for topic in topics
            for partition in topic["partitions"]
            if partition["leader_id"] >= 0
        ]
        earliest = _list_offsets(admin, led, OffsetSpec.EARLIEST)
        ends = _list_offsets(admin, led, OffsetSpec.LATEST)
        sizes = _sizes(admin)
        lost = lost_partitions(admin.client, [topic["name"] for topic in topics if _is_offline(topic)])
        alive = (broker for broker in cluster["brokers"] if not broker.get("is_fenced"))
        live = sorted(alive, key=itemgetter("broker_id"))
        groups = _groups(admin, [broker["broker_id"] for broker in live], earliest, ends)
        refuses = any(topic["name"] == TRANSACTION_STATE for topic in topics) and not _is_compacted(admin)
        strays = stray_logs(admin.client, [broker["broker_id"] for broker in live])
    return ClusterReport(
        bootstrap=admin.bootstrap,
        cluster_id=cluster["cluster_id"],
        controller_id=cluster["controller_id"],
        brokers=tuple(_broker(broker) for broker in live),
        topics=tuple(
            _topic(topic, earliest, ends, sizes, lost) for topic in sorted(topics, key=lambda topic: topic["name"])
        ),
        groups=groups,
        stray_logs=strays,
        refuses_transactions=refuses,
    )


def _is_compacted(admin: ClusterAdmin) -> bool:
    return overrides(admin.client, [TRANSACTION_STATE])[TRANSACTION_STATE].get("cleanup.policy") == "compact"


def _list_offsets(admin: ClusterAdmin, partitions: Iterable[PartitionKey], spec: int) -> OffsetsByPartition:
    wanted = {structs.TopicPartition(*key): spec for key in partitions}
    found = admin.client.list_partition_offsets(wanted) if wanted else {}
    return {(key.topic, key.partition): answer.offset for key, answer in found.items()}


def _sizes(admin: ClusterAdmin) -> Mapping[tuple[int, str, int], int]:
    return {
        (broker["broker"], topic["name"], partition["partition_index"]): partition["partition_size"]
        for broker in admin.client.describe_log_dirs()
        for log_dir in broker["log_dirs"]
        for topic in log_dir["topics"]
        for partition in topic["partitions"]
    }


def _is_offline(topic: Mapping[str, Any]) -> bool:
    return any(partition["leader_id"] < 0 for partition in topic["partitions"])


def _broker(broker: Mapping[str, Any]) -> BrokerReport:
    address = f"{broker['host']}:{broker['port']}"
    return BrokerReport(broker_id=broker["broker_id"], address=address, rack=broker["rack"])


def _topic(
    topic: Mapping[str, Any],
    earliest: OffsetsByPartition,
    ends: OffsetsByPartition,
    sizes: Mapping[tuple[int, str, int], int],
    lost: Mapping[PartitionKey, str],
) -> TopicReport:
    name = topic["name"]
    ordered = sorted(topic["partitions"], key=lambda partition: int(partition["partition_index"]))
    partitions = tuple(
        PartitionReport(
            topic=name,
            partition=number,
            leader=part["leader_id"] if part["leader_id"] >= 0 else None,
            replicas=tuple(part["replica_nodes"]),
            isr=tuple(part["isr_nodes"]),
            earliest_offset=earliest.get((name, number)),
            end_offset=ends.get((name, number)),
            size_bytes=sizes.get((part["leader_id"], name, number)),
            lost=lost.get((name, number)),
        )
        for part in ordered
        for number in (int(part["partition_index"]),)
    )
    topic_id = kafka_uuid.to_text(UUID(topic["topic_id"]))
    return TopicReport(name=name, topic_id=topic_id, internal=topic["is_internal"], partitions=partitions)


class _Everything:
    """The names of all groups."""

    def __contains__(self, name: object) -> bool:
        return True


def _groups(
    admin: ClusterAdmin, broker_ids: Sequence[int], earliest: OffsetsByPartition, ends: OffsetsByPartition
) -> tuple[GroupReport, ...]:
    """Return every consumer group, including groups without members that still have committed offsets."""
    asking = Asking(admin.client)
    listed, is_complete = listed_groups(asking, broker_ids, _Everything())
    if not is_complete:
        raise ClusterUnreachable("; ".join(map(str, asking.failures)))
    listed = {group_id: each for group_id, each in listed.items() if each.group_type in WITH_OFFSETS}
    if not listed:
        return ()
    described = described_groups(asking, listed)
    committing = dict.fromkeys(group_id for group_id, each in listed.items() if each.group_type != SHARE)
    committed = admin.client.list_group_offsets(committing) if committing else {}
    shares = dict(share_offsets(asking, listed, lambda each: each))
    logs = _Logs(by_topic(TopicPartition(*key) for key in sorted(ends) if key in earliest), earliest, ends)
    return tuple(
        _share_group(group, listed[group], described.get(group), logs, *shares.get(group, ({}, {})))
        if listed[group].group_type == SHARE
        else _group(group, listed[group], described.get(group), logs, committed[group])
        for group in sorted(listed)
    )


def _share_group(
    group_id: str,
    listed: Listed,
    described: Described | None,
    logs: _Logs,
    offsets: Mapping[TopicPartition, int],
    lags: Mapping[TopicPartition, int],
) -> GroupReport:
    """Return the report of a share group, whose lag is what its coordinator knows (KIP-1226)."""
    members = None if described is None else tuple(_member(described, each) for each in described.members)
    rows = tuple(
        LagReport(
            topic=each.topic,
            partition=each.partition,
            committed_offset=offsets.get(each),
            end_offset=logs.ends[each],
            lag=share_lag(lags.get(each), logs.starts[each], logs.ends[each]),
            client_id=None,
        )
        for each in sorted(partitions_read({*offsets, *lags}, lambda topic: logs.topics.get(topic, ())))
    )
    state = listed.state if described is None else described.state
    return GroupReport(group_id=group_id, type=SHARE, state=state, members=members, lags=rows)


def _group(
    group_id: str, listed: Listed, described: Described | None, logs: _Logs, committed: Mapping[Any, Any]
) -> GroupReport:
    """Return the report of a group; the members of a group that its coordinator did not describe are unknown."""
    members = None if described is None else tuple(_member(described, each) for each in described.members)
    offsets = {
        TopicPartition(key.topic, key.partition): answer.offset
        for key, answer in committed.items()
        if answer.offset >= 0
    }
    return GroupReport(
        group_id=group_id,
        type=listed.group_type,
        state=listed.state if described is None else described.state,
        members=members,
        lags=_lags(offsets, logs, members or ()),
    )


def _member(described: Described, member: Any) -> MemberReport:
    return MemberReport(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host.removeprefix("/"),
        partitions=tuple(described.partitions_of(member) or ()),
    )


def _lags(
    committed: Mapping[TopicPartition, int], logs: _Logs, members: Iterable[MemberReport]
) -> tuple[LagReport, ...]:
    """Return a row for each partition in which the group has a lag, a committed offset or an assigned member."""
    owners = {TopicPartition(*key): member.client_id for member in members for key in member.partitions}
    counted = set(partitions_read(committed, lambda topic: logs.topics.get(topic, ())))
    return tuple(
        LagReport(
            topic=each.topic,
            partition=each.partition,
            committed_offset=committed.get(each),
            end_offset=logs.ends.get(each),
            lag=lag(committed.get(each), logs.starts[each], logs.ends[each]) if each in counted else None,
            client_id=owners.get(each),
        )
        for each in sorted({*committed, *counted, *owners})
    )

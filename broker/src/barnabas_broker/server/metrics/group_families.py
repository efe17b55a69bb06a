"""The metrics of consumer groups and their lag, under kafka_exporter's names, also for groups without members.

The coordinator of a group exports its lag. For partitions on other brokers, the coordinator asks their leaders at each
scrape (docs/decisions/lag.md). `group_lag` decides which partitions count.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.share_delivery.led_partition import DeliveryCounts, LedPartition
from barnabas_broker.coordinators.share_delivery.window import RecordState
from barnabas_broker.coordinators.share_state.persister import ShareCoordinator
from barnabas_broker.coordinators.transactions.decisions import (
    DEAD,
    ONGOING,
    PREPARED,
    Transaction,
    TransactionState,
    state_name,
)
from barnabas_broker.coordinators.transactions.marker_sender import REFUSED
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.other_brokers import EARLIEST
from barnabas_broker.replication.partition import Partition
from barnabas_broker.server.metrics.exposition import Family, Hosted, Sample, by_partition, escaped, labels, single
from barnabas_broker.storage.logs.offset_lookup import held_back, undecided_since_ms
from barnabas_core import group_lag
from barnabas_core.loop_turns import GROUP_OFFSETS, in_turns
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


_TYPES: Final = ("gap", "accept", "release", "reject", "renew")
"""The names of the acknowledgement types, by their numbers."""


def share_families(environment: HandlerEnvironment) -> list[Family]:
    """Return the metric families for the share groups of this broker."""
    return [*_of_groups(environment), *_of_share_partitions(environment)]


_COUNTED: Final[Sequence[tuple[str, str, Callable[[DeliveryCounts], int]]]] = (
    (
        "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
        "Number of records that a share group has lost locks of, because their time was over",
        lambda counts: counts.lock_timeouts,
    ),
    (
        "kafka_server_sharegroupmetrics_deadletterqueue_recordcount_total",
        "Number of dead letters that were written for a share group",
        lambda counts: counts.dead_letters,
    ),
    (
        "kafka_server_sharegroupmetrics_deadletterqueue_failedproducerequests_total",
        "Number of failed tries to write dead letters of a share group; they are written later",
        lambda counts: counts.dead_letters_failed,
    ),
    (
        "barnabas_share_records_without_dead_letter_total",
        "Number of records of a share group that were archived without a dead letter, as its setting is broken",
        lambda counts: counts.dead_letters_impossible,
    ),
    (
        "barnabas_share_dead_letters_in_circle_total",
        "Number of dead letters of a share group whose records are dead letters of the topic that takes them",
        lambda counts: counts.dead_letters_in_circle,
    ),
)
"""The names, help texts and values of the counters of each share group."""


def _of_groups(environment: HandlerEnvironment) -> list[Family]:
    shares = environment.shares

    def family(name: str, help_text: str, count: Callable[[DeliveryCounts], int]) -> Family:
        def samples() -> Iterator[Sample]:
            for group_id, counts in list(shares.counts.items()):
                yield Sample(labels(group=group_id), count(counts))

        return Family(name, "counter", help_text, samples)

    return [
        single("barnabas_share_sessions", "gauge", "Number of share sessions on this broker", len(shares.sessions)),
        Family(
            "kafka_server_sharegroupmetrics_recordacknowledgements_total",
            "counter",
            "Number of records that members of a share group have acknowledged, by the type of acknowledgement",
            partial(_acknowledged, shares.counts),
        ),
        Family(
            "barnabas_share_deliveries_total",
            "counter",
            "Number of records that members of a share group got, for the first time or again",
            partial(_delivered, shares.counts),
        ),
        *(family(*each) for each in _COUNTED),
    ]


def _acknowledged(counts: Mapping[str, DeliveryCounts]) -> Iterator[Sample]:
    for group_id, each in list(counts.items()):
        for name, number in zip(_TYPES, each.acknowledgements, strict=True):
            yield Sample(labels(group=group_id, ack_type=name), number)


def _delivered(counts: Mapping[str, DeliveryCounts]) -> Iterator[Sample]:
    for group_id, each in list(counts.items()):
        yield Sample(labels(group=group_id, delivery="first"), each.first_deliveries)
        yield Sample(labels(group=group_id, delivery="again"), each.later_deliveries)


def _of_share_partitions(environment: HandlerEnvironment) -> list[Family]:
    def family(name: str, help_text: str, value: Callable[[LedPartition], float]) -> Family:
        def samples() -> Iterator[Sample]:
            for led in list(environment.shares.led()):
                topic, partition = led.hosted.topic_partition
                yield Sample(labels(group=led.group_id, topic=topic, partition=partition), value(led))

        return Family(name, "gauge", help_text, samples)

    return [
        family(
            "kafka_server_sharepartitionmetrics_inflightmessagecount",
            "Number of records from the first one that is not final to the last one that was acquired",
            lambda led: len(led.records.window),
        ),
        family(
            "barnabas_share_acquired_records",
            "Number of records that members of a share group have locked",
            lambda led: led.records.count(RecordState.ACQUIRED),
        ),
        family(
            "barnabas_share_records_waiting_for_dead_letters",
            "Number of records of a share group whose dead letters are not written yet",
            lambda led: led.records.count(RecordState.ARCHIVING),
        ),
        family(
            "barnabas_share_oldest_unacknowledged_seconds",
            "Seconds since the first record that is not final was first acquired, or since this broker leads; 0 if "
            "there is none",
            lambda led: led.oldest_age_ms / 1000,
        ),
    ]


def share_state_families(coordinator: ShareCoordinator) -> list[Family]:
    """Return the metric families of the share coordinator."""
    runtime = coordinator.runtime
    return [
        Family(
            "barnabas_share_coordinator_partitions",
            "gauge",
            "Number of partitions of __share_group_state that this broker coordinates, by state; "
            "no records of the share groups in failed partitions can be acknowledged",
            lambda: [Sample(labels(state=state), count) for state, count in runtime.partition_counts().items()],
        ),
        single(
            "barnabas_share_coordinator_records_left_out",
            "gauge",
            "Number of records of __share_group_state that could not be decoded; the broker's log "
            "names the first of them",
            runtime.left_out_count(),
        ),
        single(
            "kafka_coordinator_share_writes_total",
            "counter",
            "Number of changes of share group states that this broker has written",
            coordinator.counts.writes,
        ),
        Family(
            "kafka_coordinator_share_last_pruned_offset",
            "gauge",
            "Offset up to which this broker has deleted the records of a partition of __share_group_state; 0 if none",
            lambda: [Sample(labels(partition=shard.partition), shard.pruned_to) for shard in runtime.loaded()],
        ),
    ]


NAMED_MAX: Final = 20
"""The maximum number of transactional ids with a time series, because a series for each id would be too many."""
LATE_AFTER_MS: Final = 5 * 60_000
"""The ms beyond transaction.max.timeout.ms after which a transaction counts as hanging, as in Kafka."""


class _Ids(NamedTuple):
    """The transactional ids that this broker coordinates, at one scrape."""

    counts: Counter[TransactionState]
    overdue_ms: list[tuple[int, str]]
    """The NAMED_MAX most overdue transactions, the most overdue first.

    An item has the ms since the transaction's timeout, and the transactional id.
    """


async def transaction_families(environment: HandlerEnvironment, hosted: Hosted) -> list[Family]:
    """Return the metric families for the coordinator and for the partitions that this broker leads."""
    return [
        *_of_ids(await _counted_ids(environment)),
        *_of_coordinator(environment),
        *_of_partitions(environment, hosted),
    ]


async def _counted_ids(environment: HandlerEnvironment) -> _Ids:
    counts = Counter({state: 0 for state in TransactionState if state is not DEAD})
    overdue, now_ms = [], environment.clock.now_ms()
    async for name, each in in_turns(environment.transactions.loaded_transactions(), GROUP_OFFSETS):
        counts[each.state] += 1
        late_ms = _overdue_ms(each, now_ms)
        if late_ms > 0:
            overdue.append((late_ms, name))
    return _Ids(counts, nlargest(NAMED_MAX, overdue))


def _overdue_ms(transaction: Transaction, now_ms: int) -> int:
    """Return by how many ms an open transaction exceeds its timeout: negative before the timeout, 0 if none is open.

    A transaction that is prepared to commit or abort is open until its markers are written.
    """
    is_open = transaction.state is ONGOING or transaction.state in PREPARED
    return now_ms - transaction.started_ms - transaction.timeout_ms if is_open else 0


def _of_ids(ids: _Ids) -> list[Family]:
    return [
        Family(
            "barnabas_transactional_ids",
            "gauge",
            "Number of transactional ids that this broker coordinates, by the state of their last transaction",
            lambda: [Sample(labels(state=state_name(state)), count) for state, count in ids.counts.items()],
        ),
        Family(
            "barnabas_transaction_overdue_seconds",
            "gauge",
            f"Seconds since the timeout of an open transaction, for the {NAMED_MAX} transactions that "
            f"are overdue the longest",
            lambda: [Sample(labels(transactional_id=name), late_ms / 1000) for late_ms, name in ids.overdue_ms],
        ),
    ]


def _of_coordinator(environment: HandlerEnvironment) -> list[Family]:
    runtime, counts = environment.transactions.runtime, environment.transactions.counts
    return [
        Family(
            "barnabas_transactions_ended_total",
            "counter",
            "Number of transactions that have ended, with all markers written, by result",
            lambda: [Sample('result="committed"', counts.committed), Sample('result="aborted"', counts.aborted)],
        ),
        Family(
            "barnabas_transaction_markers_refused_total",
            "counter",
            "Number of transaction markers that the leader of a partition refused, by error; the "
            "transactions ended without these markers",
            lambda: [Sample(labels(error=code.name), counts.refused_markers[code]) for code in REFUSED],
        ),
        Family(
            "barnabas_transaction_coordinator_partitions",
            "gauge",
            "Number of partitions of __transaction_state that this broker coordinates, by state; "
            "the transactional ids of failed partitions cannot be used",
            lambda: [Sample(labels(state=state), count) for state, count in runtime.partition_counts().items()],
        ),
        single(
            "barnabas_transaction_coordinator_records_left_out",
            "gauge",
            "Number of records of __transaction_state that could not be decoded; the broker's log "
            "names the first of them",
            runtime.left_out_count(),
        ),
    ]


def _of_partitions(environment: HandlerEnvironment, hosted: Hosted) -> list[Family]:
    def lag(each: Partition) -> int | None:
        return None if each.leader is None else held_back(each.log)

    def stable_offset(each: Partition) -> int | None:
        held = lag(each)
        return each.log.high_watermark - held if held else None

    def late() -> Iterator[Sample | None]:
        before_ms = environment.clock.now_ms() - environment.config.transaction_max_timeout_ms - LATE_AFTER_MS
        count = 0
        for each in hosted.partitions:
            since_ms = undecided_since_ms(each.log) if each.leader is not None else None
            count += since_ms is not None and since_ms < before_ms
            yield None
        yield Sample("", count)

    return [
        by_partition(
            hosted,
            "kafka_cluster_partition_laststableoffsetlag",
            "Number of offsets from the last stable offset to the high watermark, which "
            "read_committed consumers cannot read yet",
            lag,
        ),
        by_partition(
            hosted,
            "barnabas_partition_last_stable_offset",
            "Last stable offset, up to which read_committed consumers can read; exported only "
            "while the offset is below the high watermark",
            stable_offset,
        ),
        Family(
            "kafka_server_replicamanager_partitionswithlatetransactionscount",
            "gauge",
            "Number of partitions led by this broker that have an open transaction whose producer has been "
            "silent for longer than transaction.max.timeout.ms plus 5 minutes",
            late,
        ),
    ]

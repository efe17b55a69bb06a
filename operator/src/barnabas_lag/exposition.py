"""The metrics for Prometheus.

The metric families of a cluster, created one at a time to save memory. The number of exported series is limited.
Per-partition series are left out first. Topics and groups are exported in the order of their names, but groups
without members last, because there are often thousands of abandoned groups.
"""

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from barnabas_lag.evaluation.lags import NO_LEADER, Evaluation, GroupLags, PartitionLag, PartitionReading, TopicLag

KAFKA_EXPORTER: Final = "kafka_exporter"
KAFKA_CONSUMER: Final = "kafka.consumer:type=consumer-fetch-manager-metrics: "


class Metric(NamedTuple):
    """The name, meaning and labels of a gauge."""

    name: str
    text: str
    labels: tuple[str, ...]
    origin: str = KAFKA_EXPORTER
    """The origin of the metric: another exporter that has it, or Kafka's MBean or setting with the same value."""


PARTITION: Final = ("topic", "partition")
GROUP: Final = ("consumergroup",)
GROUP_TOPIC: Final = ("consumergroup", "topic")
GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")

BROKERS: Final = Metric("kafka_brokers", "Number of brokers in the cluster.", ())
TOPIC_PARTITIONS: Final = Metric("kafka_topic_partitions", "Number of partitions of the topic.", ("topic",))
OFFSETS_RETENTION: Final = Metric(
    "kafka_offsets_retention_seconds",
    "Seconds for which brokers keep the offsets of a group without members; missing if no broker reports the setting.",
    (),
    "Kafka's setting: offsets.retention.minutes",
)

CURRENT_OFFSET: Final = Metric("kafka_topic_partition_current_offset", "Log end offset of the partition.", PARTITION)
OLDEST_OFFSET: Final = Metric("kafka_topic_partition_oldest_offset", "Log start offset of the partition.", PARTITION)
LEADER: Final = Metric(
    "kafka_topic_partition_leader", "Id of the broker that leads the partition; -1 if there is no leader.", PARTITION
)
IS_PREFERRED: Final = Metric(
    "kafka_topic_partition_leader_is_preferred", "1 if the preferred replica is the leader, else 0.", PARTITION
)
REPLICAS: Final = Metric("kafka_topic_partition_replicas", "Number of replicas of the partition.", PARTITION)
IN_SYNC: Final = Metric(
    "kafka_topic_partition_in_sync_replica", "Number of in-sync replicas of the partition.", PARTITION
)
UNDER_REPLICATED: Final = Metric(
    "kafka_topic_partition_under_replicated_partition",
    "1 if the partition has an out-of-sync replica, else 0.",
    PARTITION,
)
STABLE_OFFSET_LAG: Final = Metric(
    "kafka_cluster_partition_laststableoffsetlag",
    "Number of offsets from the last stable offset to the log end, which read_committed consumers cannot read yet.",
    PARTITION,
    "kafka.cluster:type=Partition,name=LastStableOffsetLag",
)

MEMBERS: Final = Metric(
    "kafka_consumergroup_members",
    "Number of members of the group; missing if the cluster does not describe the group.",
    GROUP,
)
STATE: Final = Metric(
    "kafka_consumergroup_state",
    "1 for the state of the group and its protocol: classic, share, or consumer (KIP-848).",
    ("consumergroup", "type", "state"),
    "kafka.server:type=group-coordinator-metrics: group-count, consumer-group-count",
)
OFFSETS_EXPIRE: Final = Metric(
    "kafka_consumergroup_offsets_expire_seconds",
    "Seconds until all offsets of a group without members have expired; missing while the group has members.",
    GROUP,
    "Kafka Minion: kafka_minion_group_topic_partition_expires_at",
)
GROUP_OFFSET: Final = Metric(
    "kafka_consumergroup_current_offset",
    "Offset that the group has committed for the partition; the start offset of a share group.",
    GROUP_PARTITION,
)
LAG: Final = Metric(
    "kafka_consumergroup_lag",
    "Log end offset minus the committed offset, or minus the log start offset if none is committed; of a share group "
    "the records that it has not finished (KIP-1226), missing if its coordinator does not know them.",
    GROUP_PARTITION,
)
LAG_SECONDS: Final = Metric(
    "kafka_consumergroup_lag_seconds",
    "Age in seconds of the first record that the group has not read, or a share group not acknowledged; 0 if there is "
    "none.",
    GROUP_PARTITION,
    "kafka-lag-exporter: kafka_consumergroup_group_lag_seconds",
)
RETENTION_PERCENT: Final = Metric(
    "kafka_consumergroup_retention_percent",
    "Percentage of the partition's records that the group has not read; at 100, retention next deletes unread records.",
    GROUP_PARTITION,
    "Klag: lag.retention_percent",
)
OFFSET_SUM: Final = Metric(
    "kafka_consumergroup_current_offset_sum",
    "Sum of the group's committed offsets over the topic's partitions.",
    GROUP_TOPIC,
)
LAG_SUM: Final = Metric(
    "kafka_consumergroup_lag_sum", "Sum of the group's lag over the topic's partitions.", GROUP_TOPIC
)
LAG_VELOCITY: Final = Metric(
    "kafka_consumergroup_lag_velocity",
    "Change of the lag in records per second; above 0, the group falls behind.",
    GROUP_TOPIC,
    "Klag: lag.velocity",
)
CATCH_UP: Final = Metric(
    "kafka_consumergroup_time_to_catch_up_seconds",
    "Seconds until the lag is 0 if it keeps falling as now; 0 without lag, +Inf if the lag does not fall.",
    GROUP_TOPIC,
    "Klag: lag.time_to_close_seconds",
)
STATUS: Final = Metric(
    "kafka_consumergroup_status",
    "Burrow's status of the worst partition: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND.",
    GROUP_TOPIC,
    "Burrow: the status of a partition",
)
RECORDS_LAG_MAX: Final = Metric(
    "kafka_consumer_fetch_manager_records_lag_max",
    "Largest lag of the group in a partition of the topic.",
    GROUP_TOPIC,
    f"{KAFKA_CONSUMER}records-lag-max",
)
RECORDS_LEAD_MIN: Final = Metric(
    "kafka_consumer_fetch_manager_records_lead_min",
    "Smallest distance of a committed offset from the log start offset; below 0, records were deleted unread.",
    GROUP_TOPIC,
    f"{KAFKA_CONSUMER}records-lead-min",
)

CATALOGUE: Final = (
    BROKERS,
    OFFSETS_RETENTION,
    TOPIC_PARTITIONS,
    CURRENT_OFFSET,
    OLDEST_OFFSET,
    LEADER,
    IS_PREFERRED,
    REPLICAS,
    IN_SYNC,
    UNDER_REPLICATED,
    STABLE_OFFSET_LAG,
    MEMBERS,
    STATE,
    OFFSETS_EXPIRE,
    GROUP_OFFSET,
    LAG,
    LAG_SECONDS,
    RETENTION_PERCENT,
    OFFSET_SUM,
    LAG_SUM,
    LAG_VELOCITY,
    CATCH_UP,
    STATUS,
    RECORDS_LAG_MAX,
    RECORDS_LEAD_MIN,
)


class Limits(NamedTuple):
    """The maximum numbers of exported partitions, of exported pairs of group and partition, and of exported groups."""

    topic_partitions: int
    group_partitions: int
    groups: int


class Shown(NamedTuple):
    """The topics and groups that are exported.

    The values of single partitions are left out for groups that are not in `detailed_groups`, and for topics that are
    not in `detailed_topics`.
    """

    detailed_topics: frozenset[str]
    groups: Mapping[str, GroupLags]
    detailed_groups: frozenset[str]
    cut_off: Mapping[str, int]
    """The number of topics or groups that each limit leaves out, by the command-line option of the limit."""


def shown(evaluation: Evaluation, topic_sizes: Mapping[str, int], limits: Limits) -> Shown:
    """Return the topics and groups that the limits allow; `topic_sizes` has the number of partitions of each topic."""
    names = sorted(evaluation.groups, key=lambda name: (evaluation.groups[name].members == 0, name))
    groups = {name: evaluation.groups[name] for name in names[: limits.groups]}
    topics = fitting(dict(sorted(topic_sizes.items())), limits.topic_partitions)
    detailed = fitting({name: len(each.partitions) for name, each in groups.items()}, limits.group_partitions)
    cut_off = {
        "max-topic-partitions": len(topic_sizes) - len(topics),
        "max-group-partitions": len(groups) - len(detailed),
        "max-groups": len(names) - len(groups),
    }
    return Shown(topics, groups, detailed, cut_off)


def fitting(sizes: Mapping[str, int], limit: int) -> frozenset[str]:
    """Return the names that fit, in the order of `sizes`.

    A name is skipped if its size would raise the sum of the sizes above `limit`.
    """
    room, found = limit, set()
    for name in sizes:
        if sizes[name] <= room:
            room -= sizes[name]
            found.add(name)
    return frozenset(found)


Row = tuple[tuple[str, ...], float | None]
"""The label values and the number of a sample; a sample whose number is None is not exported."""

OF_PARTITION: Final[Mapping[Metric, Callable[[PartitionReading], float | None]]] = {
    CURRENT_OFFSET: lambda part: part.end,
    OLDEST_OFFSET: lambda part: part.oldest,
    LEADER: lambda part: part.leader,
    IS_PREFERRED: lambda part: part.leader != NO_LEADER and part.replicas[:1] == (part.leader,),
    REPLICAS: lambda part: len(part.replicas),
    IN_SYNC: lambda part: len(part.isr),
    UNDER_REPLICATED: lambda part: len(part.isr) < len(part.replicas),
    STABLE_OFFSET_LAG: lambda part: part.held_back,
}
OF_GROUP_PARTITION: Final[Mapping[Metric, Callable[[PartitionLag], float | None]]] = {
    GROUP_OFFSET: lambda part: part.committed,
    LAG: lambda part: part.lag,
    LAG_SECONDS: lambda part: part.seconds,
    RETENTION_PERCENT: lambda part: part.retention_percent,
}
OF_GROUP_TOPIC: Final[Mapping[Metric, Callable[[TopicLag], float]]] = {
    OFFSET_SUM: lambda topic: topic.committed,
    LAG_SUM: lambda topic: topic.lag,
    LAG_VELOCITY: lambda topic: topic.velocity,
    CATCH_UP: lambda topic: topic.catch_up_s,
    STATUS: lambda topic: topic.status,
    RECORDS_LAG_MAX: lambda topic: topic.lag_max,
    RECORDS_LEAD_MIN: lambda topic: topic.lead_min,
}


class ClusterMetrics(Collector):
    """The metrics of one evaluation. Series that would exceed the limits on the number of series are left out."""

    def __init__(self, evaluation: Evaluation, limits: Limits) -> None:
        self._readings = evaluation.readings
        self._topic_sizes = collections.Counter(partition.topic for partition in evaluation.readings.partitions)
        self.shown: Final[Shown] = shown(evaluation, self._topic_sizes, limits)
        self._names = {each: (each.topic, str(each.partition)) for each in evaluation.readings.partitions}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metric families, each created only when the previous one is rendered."""
        yield _family(BROKERS, [((), self._readings.brokers)])
        yield _family(OFFSETS_RETENTION, [((), self._readings.offsets_retention_s)])
        yield _family(TOPIC_PARTITIONS, (((topic,), size) for topic, size in self._topic_sizes.items()))
        for of_partition, number in OF_PARTITION.items():
            yield _family(of_partition, ((names, number(part)) for names, part in self._partitions()))
        groups = self.shown.groups.items()
        yield _family(MEMBERS, (((group_id,), lags.members) for group_id, lags in groups))
        readings = self._readings.groups
        states = ((group_id, readings[group_id]) for group_id, _ in groups if group_id in readings)
        yield _family(STATE, (((name, each.group_type, each.state), 1) for name, each in states))
        expiries = (((group_id,), lags.offsets_expire_s) for group_id, lags in groups)
        yield _family(OFFSETS_EXPIRE, expiries)
        for of_group, lag_of in OF_GROUP_PARTITION.items():
            yield _family(of_group, ((names, lag_of(part)) for names, part in self._group_partitions()))
        for of_topic, of_lag in OF_GROUP_TOPIC.items():
            rows = (((group_id, name), of_lag(topic)) for group_id, name, topic in _topics(groups))
            yield _family(of_topic, rows)

    def _partitions(self) -> Iterator[tuple[tuple[str, ...], PartitionReading]]:
        for partition, reading in self._readings.partitions.items():
            if partition.topic in self.shown.detailed_topics:
                yield self._names[partition], reading

    def _group_partitions(self) -> Iterator[tuple[tuple[str, ...], PartitionLag]]:
        for group_id, lags in self.shown.groups.items():
            if group_id in self.shown.detailed_groups:
                for partition, lag in lags.partitions.items():
                    yield (group_id, *self._names[partition]), lag


def _topics(groups: Iterable[tuple[str, GroupLags]]) -> Iterator[tuple[str, str, TopicLag]]:
    for group_id, lags in groups:
        for name, topic in lags.topics.items():
            yield group_id, name, topic


def _family(metric: Metric, rows: Iterable[Row]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(metric.name, metric.text, labels=metric.labels)
    for names, number in rows:
        if number is not None:
            family.add_metric(names, float(number))
    return family


PREFIX = "barnabas_lag_exporter"


class OwnMetrics:
    """The exporter's own metrics, counted since the process began."""

    def __init__(self, age_s: Callable[[], float], interval_s: float) -> None:
        """Create the metrics; `age_s` returns the seconds since the last round in which brokers answered."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._up = self._gauge("up", "1 if the cluster answered the last round of requests, else 0.")
        self._gauge(
            "round_age_seconds",
            "Seconds since the exported values were read from the cluster; +Inf before they are first read.",
        ).set_function(age_s)
        self._gauge(
            "interval_seconds", "Seconds between the starts of two consecutive rounds of requests to the brokers."
        ).set(interval_s)
        self._seconds = self._gauge(
            "round_seconds", "Duration of the last round of requests to the brokers in seconds."
        )
        self._rounds = self._counter("rounds", "Number of rounds of requests to the brokers, successful or failed.")
        self._failed = self._counter("failed_rounds", "Number of rounds of requests that the cluster did not answer.")
        self._failures = self._counter(
            "request_failures", "Number of requests that a broker refused or did not answer.", "request"
        )
        self._cut_off = self._gauge(
            "cut_off",
            "Number of topics or groups that are not exported in full, because an option limits the series.",
            "option",
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def round_ended(self, seconds: float, *, is_answered: bool) -> None:
        """Count one evaluation of the lag, and set its duration and the metric `up`.

        If no broker answered, count the evaluation as failed, too.
        """
        self._rounds.inc()
        self._seconds.set(seconds)
        self._up.set(is_answered)
        if not is_answered:
            self._failed.inc()

    def request_failed(self, request: str) -> None:
        """Count a failed request to a broker."""
        self._failures.labels(request).inc()

    def set_cut_off(self, names: Mapping[str, int]) -> None:
        """Set the metric `cut_off`: for each option, the number of topics or groups that are not exported in full."""
        for option, count in names.items():
            self._cut_off.labels(option).set(count)

"""The metric families of a cluster, created one at a time to save memory."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from barnabas_lag.evaluation.lags import Evaluation, GroupLags, PartitionLag, TopicLag
from barnabas_lag.evaluation.readings import NO_LEADER, PartitionReading
from barnabas_lag.exposition import catalogue
from barnabas_lag.exposition.catalogue import Metric
from barnabas_lag.exposition.limits import Limits, Shown, shown

Row = tuple[tuple[str, ...], float | None]
"""The label values and the number of a sample; a sample whose number is None is not exported."""

OF_PARTITION: Final[Mapping[Metric, Callable[[PartitionReading], float | None]]] = {
    catalogue.CURRENT_OFFSET: lambda part: part.end,
    catalogue.OLDEST_OFFSET: lambda part: part.oldest,
    catalogue.LEADER: lambda part: part.leader,
    catalogue.IS_PREFERRED: lambda part: part.leader != NO_LEADER and part.replicas[:1] == (part.leader,),
    catalogue.REPLICAS: lambda part: len(part.replicas),
    catalogue.IN_SYNC: lambda part: len(part.isr),
    catalogue.UNDER_REPLICATED: lambda part: len(part.isr) < len(part.replicas),
    catalogue.STABLE_OFFSET_LAG: lambda part: part.held_back,
}
OF_GROUP_PARTITION: Final[Mapping[Metric, Callable[[PartitionLag], float | None]]] = {
    catalogue.GROUP_OFFSET: lambda part: part.committed,
    catalogue.LAG: lambda part: part.lag,
    catalogue.LAG_SECONDS: lambda part: part.seconds,
    catalogue.RETENTION_PERCENT: lambda part: part.retention_percent,
}
OF_GROUP_TOPIC: Final[Mapping[Metric, Callable[[TopicLag], float]]] = {
    catalogue.OFFSET_SUM: lambda topic: topic.committed,
    catalogue.LAG_SUM: lambda topic: topic.lag,
    catalogue.LAG_VELOCITY: lambda topic: topic.velocity,
    catalogue.CATCH_UP: lambda topic: topic.catch_up_s,
    catalogue.STATUS: lambda topic: topic.status,
    catalogue.RECORDS_LAG_MAX: lambda topic: topic.lag_max,
    catalogue.RECORDS_LEAD_MIN: lambda topic: topic.lead_min,
}


class ClusterMetrics(Collector):
    """The metrics of one evaluation. Series that would exceed the limits on the number of series are left out."""

    def __init__(self, evaluation: Evaluation, limits: Limits) -> None:
        self._readings = evaluation.readings
        self._topic_sizes = Counter(partition.topic for partition in evaluation.readings.partitions)
        self.shown: Final[Shown] = shown(evaluation, self._topic_sizes, limits)
        self._names = {each: (each.topic, str(each.partition)) for each in evaluation.readings.partitions}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metric families, each created only when the previous one is rendered."""
        yield _family(catalogue.BROKERS, [((), self._readings.brokers)])
        yield _family(catalogue.OFFSETS_RETENTION, [((), self._readings.offsets_retention_s)])
        yield _family(catalogue.TOPIC_PARTITIONS, (((topic,), size) for topic, size in self._topic_sizes.items()))
        for of_partition, number in OF_PARTITION.items():
            yield _family(of_partition, ((names, number(part)) for names, part in self._partitions()))
        groups = self.shown.groups.items()
        yield _family(catalogue.MEMBERS, (((group_id,), lags.members) for group_id, lags in groups))
        readings = self._readings.groups
        states = ((group_id, readings[group_id]) for group_id, _ in groups if group_id in readings)
        yield _family(catalogue.STATE, (((name, each.group_type, each.state), 1) for name, each in states))
        expiries = (((group_id,), lags.offsets_expire_s) for group_id, lags in groups)
        yield _family(catalogue.OFFSETS_EXPIRE, expiries)
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

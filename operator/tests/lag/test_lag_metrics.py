"""The metrics of an evaluation as Prometheus' parser reads them, and what limits leave of them."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.history import History
from barnabas_lag.evaluation.lags import GroupReading, PartitionReading, Readings
from barnabas_lag.exposition import CATALOGUE, IS_PREFERRED, OF_PARTITION, ClusterMetrics, Limits, fitting, shown

ENOUGH = Limits(1_000, 1_000, 1_000)
ODD_NAME = 'a "group"\\ with\nanything é'


def told(limits: Limits, *group_ids: str) -> Mapping[str, list[tuple[dict[str, str], float]]]:
    """Return the metrics of topics `a` with one partition and `b` with two, which each of these groups reads."""
    partitions = {
        TopicPartition(topic, number): PartitionReading(1, (1, 2), (1,), 0, 10, stable=8)
        for topic, number in (("a", 0), ("b", 0), ("b", 1))
    }
    offline = {TopicPartition("c", 0): PartitionReading(-1, (1, 2), (), None, None)}
    groups = {each: GroupReading("Empty", 0, dict.fromkeys(partitions, 10)) for each in group_ids}
    history = History(60.0)
    history.add(Readings(2, partitions | offline, groups, offsets_retention_s=604_800.0), 1_000.0)
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(history.evaluate(1_000.0), limits))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {each.name: [(sample.labels, sample.value) for sample in each.samples] for each in families}


def test_exactly_the_metrics_of_the_catalogue_are_exported_with_their_labels() -> None:
    found = told(ENOUGH, "billing")
    assert list(found) == [each.name for each in CATALOGUE]
    for metric in CATALOGUE:
        assert {tuple(sorted(labels)) for labels, _ in found[metric.name]} == {tuple(sorted(metric.labels))}


def test_a_partition_without_a_leader_has_no_offsets_and_leader_minus_one() -> None:
    found = told(ENOUGH, "billing")
    of_c = {name: value for name, rows in found.items() for labels, value in rows if labels.get("topic") == "c"}
    assert of_c == {
        "kafka_topic_partitions": 1,
        "kafka_topic_partition_leader": -1,
        "kafka_topic_partition_leader_is_preferred": 0,
        "kafka_topic_partition_replicas": 2,
        "kafka_topic_partition_in_sync_replica": 0,
        "kafka_topic_partition_under_replicated_partition": 1,
    }


def test_a_partition_without_known_replicas_has_no_preferred_leader() -> None:
    part = PartitionReading(1, (), (), 0, 10)
    assert OF_PARTITION[IS_PREFERRED](part) is False


def test_the_name_of_a_group_is_exported_unchanged() -> None:
    assert told(ENOUGH, ODD_NAME)["kafka_consumergroup_members"] == [({"consumergroup": ODD_NAME}, 0.0)]


def test_limits_cut_off_details_first_and_only_whole_groups_and_topics() -> None:
    found = told(Limits(topic_partitions=2, group_partitions=5, groups=2), "x", "y", "z")
    assert {labels["topic"] for labels, _ in found["kafka_topic_partition_leader"]} == {"a", "c"}
    assert len(found["kafka_topic_partitions"]) == 3
    assert {labels["consumergroup"] for labels, _ in found["kafka_consumergroup_lag"]} == {"x"}
    assert {labels["consumergroup"] for labels, _ in found["kafka_consumergroup_lag_sum"]} == {"x", "y"}


def test_groups_without_members_are_cut_off_before_those_with_members() -> None:
    partition = TopicPartition("a", 0)
    members = {"console-consumer-1": 0, "console-consumer-2": 0, "payments": 3, "kip-848": None}
    groups = {name: GroupReading("", number, {partition: 5}) for name, number in members.items()}
    history = History(60.0)
    history.add(Readings(1, {partition: PartitionReading(1, (1,), (1,), 0, 10)}, groups), 1_000.0)
    of_them = shown(history.evaluate(1_000.0), {"a": 1}, Limits(topic_partitions=9, group_partitions=1, groups=3))
    assert set(of_them.groups) == {"kip-848", "payments", "console-consumer-1"}
    assert of_them.detailed_groups == {"kip-848"}
    assert of_them.cut_off == {"max-topic-partitions": 0, "max-group-partitions": 2, "max-groups": 1}


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 20)), st.integers(0, 60))
def test_the_chosen_names_stay_within_the_limit_and_no_other_would_fit(sizes: dict[str, int], limit: int) -> None:
    chosen = fitting(sizes, limit)
    total = sum(sizes[name] for name in chosen)
    assert total <= limit
    before = 0
    for name in sizes:
        assert (name in chosen) == (before + sizes[name] <= limit)
        before += sizes[name] if name in chosen else 0


def test_a_share_group_has_the_lag_of_its_coordinator_no_lag_without_records_and_else_an_unknown_one() -> None:
    partitions = {TopicPartition("tasks", number): PartitionReading(1, (1,), (1,), 0, 10) for number in range(3)}
    known, finished, unknown = partitions
    partitions[empty := TopicPartition("tasks", 3)] = PartitionReading(1, (1,), (1,), 7, 7)
    group = GroupReading("Stable", 2, {known: 4, finished: 6}, group_type="share", lags={known: 3, finished: 0})
    history = History(60.0)
    history.add(Readings(1, partitions, {"workers": group}), 1_000.0)
    lags = history.evaluate(1_000.0).groups["workers"]
    assert {where: (each.committed, each.lag) for where, each in lags.partitions.items()} == {
        known: (4, 3),
        finished: (6, 0),
        empty: (None, 0),
    }
    assert unknown not in lags.partitions, "unknown is neither 0 nor negative"
    assert lags.partitions[finished].seconds == 0.0, "all records up to the end are finished"
    assert lags.topics["tasks"].lag == 3


def test_the_state_of_a_share_group_without_members_never_expires() -> None:
    partition = TopicPartition("tasks", 0)
    group = GroupReading("Empty", 0, {partition: 4}, group_type="share", lags={partition: 6})
    history = History(60.0)
    readings = Readings(
        1, {partition: PartitionReading(1, (1,), (1,), 0, 10)}, {"workers": group}, offsets_retention_s=60
    )
    history.add(readings, 1_000.0)
    assert history.evaluate(2_000.0).groups["workers"].offsets_expire_s is None

"""The lags and topics of a group that a look derives from readings."""

from types import SimpleNamespace

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.asking import owned
from barnabas_lag.evaluation.history import History
from barnabas_lag.evaluation.lags import GroupReading, PartitionReading, Readings, Status
from barnabas_lag.kafka.groups import PARTITION_BYTES, Assignments, Chosen, Described, assigned
from barnabas_operator.kafka.group_admin import seen_of
from barnabas_operator.planning.groups.reset_plan import KEPT_S, with_topics_read

LED, AWAY, DELETED = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("gone", 0)
NEW = TopicPartition("flights", 2)
"""A partition without a committed offset."""


def test_partitions_without_a_leader_are_silent_and_those_of_deleted_topics_are_not() -> None:
    away = PartitionReading(-1, (2,), (2,))
    partitions = {LED: PartitionReading(1, (1,), (1,), 0, 9), AWAY: away, NEW: away}
    group = GroupReading("Stable", 1, {LED: 4, AWAY: 4, DELETED: 4})
    readings = Readings(2, partitions, {"billing": group})
    history = History(60.0)
    history.add(readings, 1000.0)
    topics = {"flights": [LED, AWAY, NEW]}
    found = seen_of("billing", Chosen(readings, {}), history.evaluate(1000.0).groups["billing"], topics, None)
    assert found.silent == (AWAY, NEW)
    assert found.lags.partitions.keys() == {LED}
    assert found.partition_counts == {"flights": 3}


def test_records_behind_the_start_of_an_open_transaction_count_as_held_back() -> None:
    open_at_6 = PartitionReading(1, (1,), (1,), oldest=0, end=9, stable=6)
    readings = Readings(1, {LED: open_at_6, NEW: open_at_6}, {"billing": GroupReading("Stable", 1, {LED: 4, NEW: 8})})
    history = History(60.0)
    history.add(readings, 1000.0)
    lags = history.evaluate(1000.0).groups["billing"]
    found = seen_of("billing", Chosen(readings, {}), lags, {"flights": [LED, NEW]}, None)
    assert found.held_back == 3 + 1


def test_the_topics_of_a_rebalancing_group_are_kept_for_some_minutes() -> None:
    stable = {"billing": GroupReading("Stable", 1, {LED: 4}, topics=frozenset({"flights"}))}
    restarting = {"billing": GroupReading("Empty", 0, {LED: 4})}
    known = with_topics_read({}, stable, 0.0)
    known = with_topics_read(known, restarting, KEPT_S - 1)
    assert known["billing"].topics == {"flights"}
    assert with_topics_read(known, restarting, KEPT_S) == {}


def member(**partitions: list[int]) -> SimpleNamespace:
    """Return a member as in a DescribeGroups response."""
    assignment = ConsumerProtocolAssignment(
        version=0,
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=some)
            for topic, some in partitions.items()
        ],
    )
    return SimpleNamespace(member_assignment=assignment.encode(version=0))


def owner(**partitions: list[int]) -> SimpleNamespace:
    """Return a member as in a ConsumerGroupDescribe response."""
    topics = [SimpleNamespace(topic_name=topic, partitions=some) for topic, some in partitions.items()]
    return SimpleNamespace(assignment=SimpleNamespace(topic_partitions=topics))


@pytest.mark.parametrize(
    ("group", "topics"),
    [
        (
            Described("Stable", "consumer", [member(flights=[0, 1]), member(orders=[0]), member()]),
            {"flights", "orders"},
        ),
        (Described("PreparingRebalance", "consumer", [member()]), None),
        (Described("Reconciling", "consumer", [owner(flights=[0])], owned), None),
        (Described("Stable", "consumer", [owner(flights=[0]), owner(orders=[1])], owned), {"flights", "orders"}),
        (Described("Stable", "connect", [member(flights=[0])]), None),
        (Described("Stable", "consumer", [member(flights=[0]), SimpleNamespace(member_assignment=b"\0")]), None),
    ],
    ids=["stable", "rebalance", "reconciling", "stable by the consumer protocol", "of others", "not readable"],
)
def test_the_topics_of_a_group_are_known_only_if_all_assignments_are_readable(
    group: Described, topics: set[str] | None
) -> None:
    assert group.topics == topics


@pytest.mark.parametrize(
    "written",
    ["0000ffffffffffffffff", "000000000001ffff00000000ffffffff", "000000000001000161ffffffff" * 2],
    ids=["no topics", "a topic without a name", "no partitions"],
)
def test_an_incomplete_assignment_is_unreadable_and_raises_no_error(written: str) -> None:
    odd = Described("Stable", "consumer", [SimpleNamespace(member_assignment=bytes.fromhex(written))])
    assert assigned(bytes.fromhex(written)) is None
    assert odd.topics is None


def test_a_topic_that_no_member_reads_any_more_is_stopped_and_not_stalled() -> None:
    old = TopicPartition("old", 0)
    partitions = {each: PartitionReading(1, (1,), (1,), 0, 9) for each in (LED, old)}
    history = History(60.0)
    for now_s in (1000.0, 1100.0):
        group = GroupReading("Stable", 1, {LED: 4, old: 4}, topics=frozenset({"flights"}))
        history.add(Readings(2, partitions, {"billing": group}), now_s)
    found = history.evaluate(1100.0).groups["billing"].topics
    assert {topic: each.status for topic, each in found.items()} == {"flights": Status.STALL, "old": Status.STOP}


def test_the_cache_of_assignments_is_bounded_in_bytes_and_drops_the_oldest_first() -> None:
    large = [member(flights=list(range(300 * number, 300 * (number + 1)))).member_assignment for number in range(20)]
    assignments = Assignments(bytes_max=10 * 300 * PARTITION_BYTES)
    for each in (*large, large[0]):
        partitions = assignments.decoded(each)
        assert partitions is not None
        assert len(partitions) == 300
        assert assignments.kept_bytes <= 10 * 300 * PARTITION_BYTES
    known = assignments.decoded(large[0])
    assert assignments.decoded(large[0]) is known
    assert assignments.decoded(large[5]) is assignments.decoded(large[5])

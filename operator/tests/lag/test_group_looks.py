"""What a look makes of what was read."""

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.history import History
from barnabas_lag.evaluation.readings import GroupReading, PartitionReading, Readings
from barnabas_lag.kafka.chosen_groups import Chosen
from barnabas_operator.kafka.group_looks import seen_of

LED, AWAY, DELETED = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("gone", 0)


def test_partitions_whose_leader_is_away_are_silent_and_those_of_deleted_topics_are_not() -> None:
    partitions = {LED: PartitionReading(1, (1,), (1,), 0, 9), AWAY: PartitionReading(-1, (2,), (2,))}
    group = GroupReading("Stable", 1, {LED: 4, AWAY: 4, DELETED: 4})
    readings = Readings(2, partitions, {"billing": group})
    history = History(60.0)
    history.look(readings, 1000.0)
    found = seen_of("billing", Chosen(readings, {}), history.evaluate(1000.0).groups["billing"], {"flights": 2})
    assert found.silent == (AWAY,)
    assert found.lags.partitions.keys() == {LED}
    assert found.partition_counts == {"flights": 2}

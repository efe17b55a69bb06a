"""How far a group is behind, with and without a commit."""

from barnabas_core.group_lag import by_topic, lag, partitions_read
from barnabas_core.topic_partition import TopicPartition


def test_lag_counts_from_the_commit_and_without_one_from_the_start_of_the_log() -> None:
    assert lag(90, 20, 100) == 10
    assert lag(None, 20, 100) == 80
    assert lag(10, 20, 100) == 90, "what was deleted unread is behind, too"
    assert lag(120, 20, 100) == 0, "the log was cut"


def test_all_partitions_count_of_topics_with_a_commit_and_none_of_others() -> None:
    flights = [TopicPartition("flights", number) for number in range(3)]
    topics = by_topic([*flights, TopicPartition("weather", 0)])
    committed = [flights[1], flights[0], TopicPartition("deleted", 0)]
    assert list(partitions_read(committed, lambda topic: topics.get(topic, ()))) == flights

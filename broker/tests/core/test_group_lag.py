"""The lag of a group, with and without a commit."""

from barnabas_core.group_lag import by_topic, lag, partitions_read
from barnabas_core.topic_partition import TopicPartition


def test_lag_is_counted_from_the_commit_or_else_from_the_log_start() -> None:
    assert lag(90, 20, 100) == 10
    assert lag(None, 20, 100) == 80
    assert lag(10, 20, 100) == 90, "the lag includes unread records that were deleted"
    assert lag(120, 20, 100) == 0, "the lag is 0 if the log was truncated"


def test_lag_includes_all_partitions_of_topics_with_a_commit_only() -> None:
    flights = [TopicPartition("flights", number) for number in range(3)]
    topics = by_topic([*flights, TopicPartition("weather", 0)])
    committed = [flights[1], flights[0], TopicPartition("deleted", 0)]
    assert list(partitions_read(committed, lambda topic: topics.get(topic, ()))) == flights

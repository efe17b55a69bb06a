"""The lag of a consumer group, the same in broker metrics, the lag exporter, `status` and ConsumerGroups.

A group reads a topic if it has committed an offset for one of the topic's partitions; then all partitions of the topic
count. In a partition without a committed offset, the group's position is the log start offset (docs/how-to/lag.md).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from barnabas_core.topic_partition import TopicPartition


def partitions_read(
    committed: Iterable[TopicPartition], of_topic: Callable[[str], Iterable[TopicPartition]]
) -> Iterator[TopicPartition]:
    """Yield all partitions of the topics in which a group has committed offsets.

    `of_topic` returns the partitions of a topic.
    """
    for topic in dict.fromkeys(each.topic for each in committed):
        yield from of_topic(topic)


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[TopicPartition]]:
    """Group `partitions` by topic; the partitions of a topic keep their order."""
    found: dict[str, list[TopicPartition]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each)
    return found


def place(committed: int | None, log_start: int) -> int:
    """Return the committed offset, even if it is below the log start offset; without one, the log start offset."""
    return log_start if committed is None else committed


def lag(committed: int | None, log_start: int, end: int) -> int:
    """Return the number of offsets between the group's position and the end of the log; 0 if the position is higher."""
    return max(0, end - place(committed, log_start))

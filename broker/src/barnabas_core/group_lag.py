"""The lag of a consumer group: the rule of brokers' metrics, lag exporter, `status` and ConsumerGroups. Pure.

A group reads a topic when it has committed to one of its partitions. Then all partitions of that topic count; where
nothing is committed, the group stands at the start of the log (docs/how-to/lag.md says why).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from barnabas_core.topic_partition import TopicPartition


def partitions_read(
    committed: Iterable[TopicPartition], of_topic: Callable[[str], Iterable[TopicPartition]]
) -> Iterator[TopicPartition]:
    """Return all partitions of the topics to which a group has committed; `of_topic` returns those of a topic."""
    for topic in dict.fromkeys(each.topic for each in committed):
        yield from of_topic(topic)


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[TopicPartition]]:
    """The partitions of each topic, in the order in which they come."""
    found: dict[str, list[TopicPartition]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each)
    return found


def place(committed: int | None, log_start: int) -> int:
    """Return the group's position; records between `committed` and a higher log start offset were deleted unread."""
    return log_start if committed is None else committed


def lag(committed: int | None, log_start: int, end: int) -> int:
    """Offsets between the group's place and the end of the log."""
    return max(0, end - place(committed, log_start))

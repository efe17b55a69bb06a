"""The lag of a consumer group, the same in broker metrics, the lag exporter, `status` and ConsumerGroups.

A group reads a topic if it has committed an offset for one of the topic's partitions; then all partitions of the topic
count. In a partition without a committed offset, the group's position is the log start offset (docs/how-to/lag.md).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

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


def share_lag(reported: int | None, log_start: int | None, end: int | None) -> int | None:
    """Return the lag of a share group in a partition, None if unknown; `reported` is what the coordinator knows.

    The coordinator knows no lag until a member has acknowledged a record, but a partition without records has no lag.
    """
    return 0 if reported is None and end is not None and log_start == end else reported


RESET_MARK: Final = "barnabas.dev/reset="
"""The beginning of the mark, which an offset reset puts before other metadata of a committed offset.

The ids of resets follow, the latest first, separated by commas; then a NUL.
"""
END: Final = "\0"
"""The NUL that ends the mark of an offset reset.

confluent-kafka reads metadata only up to a NUL, and ends its own metadata with a NUL.
"""
MARK_LENGTH_MAX: Final = 256
"""The maximum length in characters of the mark that an offset reset writes into a committed offset's metadata.

Marks are short, because each committed offset has one. Ids of resets that would exceed the length are left out.
"""


def is_marked(metadata: str) -> bool:
    """True if the metadata of a committed offset begins with the mark of an offset reset."""
    return metadata.startswith(RESET_MARK)


def lacks_content(metadata: str, member_id: str) -> bool:
    """True if the metadata of a committed offset has no content of the application.

    The metadata is then empty, or is the id of the group member, which franz-go commits by default.
    """
    return metadata in ("", END, member_id)


def reset_ids(metadata: str) -> tuple[str, ...]:
    """Return the ids of resets in the metadata of a committed offset, the latest first; empty if there is no mark."""
    if not is_marked(metadata):
        return ()
    return tuple(filter(None, metadata.removeprefix(RESET_MARK).rstrip(END).split(",")))


def reset_mark(reset_id: str, before: Iterable[str]) -> str:
    """Return the metadata of an offset that is committed by a reset: `reset_id`, then the ids of earlier resets.

    `before` has the ids of earlier resets; those that would exceed MARK_LENGTH_MAX are left out.
    """
    mark = RESET_MARK + reset_id
    for each in before:
        if each != reset_id and len(mark) + len(each) + 2 <= MARK_LENGTH_MAX:
            mark += f",{each}"
    return mark + END

"""Ask the leaders of partitions for the ends of logs and for the first record since a time."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.asking import Asking
from barnabas_kafka.batches import list_offsets

Item = TypeVar("Item")

LATEST: Final = -1
EARLIEST: Final = -2
NO_OFFSET: Final = -1
NOBODY: Final = -1
"""The broker id if there is no broker, for example if a partition has no leader."""


class LogOffset(NamedTuple):
    """An offset, and the timestamp of its record in ms, if the record has one."""

    offset: int
    timestamp_ms: int


def log_offsets(
    asking: Asking,
    leader_of: Callable[[TopicPartition], int],
    timestamps_ms: Mapping[TopicPartition, int],
    *,
    committed: bool = False,
) -> dict[TopicPartition, LogOffset]:
    """Return for each partition the offset of the first record at or after its timestamp; NO_OFFSET if there is none.

    The timestamp EARLIEST stands for the log start offset, and LATEST for the log end offset. If `committed` is true,
    LATEST stands for the last stable offset, below which no transaction is open. The result lacks partitions without a
    leader, and partitions whose leader does not respond or responds with an error. Failures are recorded in `asking`.
    """
    known = {each: each for each in timestamps_ms}
    found: dict[TopicPartition, LogOffset] = {}
    requests = by_broker(timestamps_ms, leader_of)
    batched = {
        leader: list_offsets({each: timestamps_ms[each] for each in some}, committed=committed)
        for leader, some in requests.items()
    }
    for broker_id, request, answer in asking.ask(batched):
        parts = [
            (TopicPartition(topic.name, part.partition_index), part)
            for topic in answer.topics
            for part in topic.partitions
        ]
        for partition, part in parts:
            if part.error_code == ErrorCode.NONE:
                found[known[partition]] = LogOffset(part.offset, part.timestamp)
        asking.refused(request, broker_id, ((part.error_code, str(each)) for each, part in parts))
    return found


def by_broker(items: Iterable[Item], broker_of: Callable[[Item], int]) -> dict[int, list[Item]]:
    """Group items, such as partitions, by the broker that `broker_of` returns; items without a broker are left out."""
    found: dict[int, list[Item]] = {}
    for item in items:
        if (broker_id := broker_of(item)) != NOBODY:
            found.setdefault(broker_id, []).append(item)
    return found

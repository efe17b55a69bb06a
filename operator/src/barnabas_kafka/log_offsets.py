"""Ends of logs, and the first record since a time, from the partitions' leaders."""

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
"""The broker of what has none, such as the leader of a partition that nobody leads."""


class LogOffset(NamedTuple):
    """An answer: the offset, and the record's timestamp in milliseconds where there is one."""

    offset: int
    timestamp_ms: int


def log_offsets(
    asking: Asking,
    leader_of: Callable[[TopicPartition], int],
    timestamps_ms: Mapping[TopicPartition, int],
    *,
    committed: bool = False,
) -> dict[TopicPartition, LogOffset]:
    """The first record of each partition with such a timestamp or a later one; LATEST and EARLIEST ask for the ends.

    `committed`: LATEST is the last stable offset then, below which no transaction is open.
    NO_OFFSET where there is no such record. What no leader answers is left out, and among the failures.
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
    """Return the items by broker; items without a broker are left out."""
    found: dict[int, list[Item]] = {}
    for item in items:
        if (broker_id := broker_of(item)) != NOBODY:
            found.setdefault(broker_id, []).append(item)
    return found

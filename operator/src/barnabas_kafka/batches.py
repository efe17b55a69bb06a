"""Build the requests that ask about many groups or partitions at once."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest

from barnabas_core.topic_partition import TopicPartition

Item = TypeVar("Item")

GROUPS_A_REQUEST: Final = 100
PARTITIONS_A_REQUEST: Final = 2_000
MANY_GROUPS_VERSION: Final = 8
"""The first version of OffsetFetch for many groups (KIP-709); later versions are not used, because version 10 replaces
topic names by topic ids."""
OFFSET_VERSION: Final = 1
"""The lowest usable version of ListOffsets, because version 0 returns lists of offsets."""


ISOLATION_VERSION: Final = 2
"""The first version of ListOffsets with an isolation level."""


def describe_groups(group_ids: Iterable[str]) -> list[Any]:
    """Return the requests that describe the groups and their members."""
    return [DescribeGroupsRequest(groups=list(some)) for some in batches(group_ids, GROUPS_A_REQUEST)]


def fetch_offsets(group_ids: Iterable[str], *, many: bool) -> list[Any]:
    """Return the requests for all committed offsets of groups.

    A request is for one group, or for up to GROUPS_A_REQUEST groups if `many` is True.
    """
    if many:
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup
        return [
            OffsetFetchRequest(
                groups=[of_group(group_id=each, topics=None) for each in some],
                min_version=MANY_GROUPS_VERSION,
                max_version=MANY_GROUPS_VERSION,
            )
            for some in batches(group_ids, GROUPS_A_REQUEST)
        ]
    return [
        OffsetFetchRequest(group_id=each, topics=None, min_version=2, max_version=MANY_GROUPS_VERSION - 1)
        for each in group_ids
    ]


def list_offsets(timestamps_ms: Mapping[TopicPartition, int], *, committed: bool = False) -> list[Any]:
    """Return the ListOffsets requests for partitions, each with a timestamp or the code of the start or end offset.

    With `committed`, the end is the last stable offset (read_committed).
    """
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    of_partition = of_topic.ListOffsetsPartition
    requests = []
    for some in batches(timestamps_ms.items(), PARTITIONS_A_REQUEST):
        topics: dict[str, list[Any]] = {}
        for (topic, number), timestamp_ms in some:
            topics.setdefault(topic, []).append(of_partition(partition_index=number, timestamp=timestamp_ms))
        asked = [of_topic(name=name, partitions=parts) for name, parts in topics.items()]
        version = ISOLATION_VERSION if committed else OFFSET_VERSION
        requests.append(ListOffsetsRequest(isolation_level=int(committed), topics=asked, min_version=version))
    return requests


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in order, in lists of at most `size`."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some

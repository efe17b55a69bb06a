"""The requests about share groups (KIP-932) and their lag (KIP-1226), which kafka-python does not have."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.batches import GROUPS_A_REQUEST, batches

SHARE: Final = "share"
"""The type of a share group, in ListGroups."""
SHARE_VERSION: Final = 1
"""The first version of ShareGroupDescribe that clusters have."""
UNKNOWN: Final = -1
"""The start offset or the lag that the coordinator does not know."""


class ShareGroupDescribeRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request for share groups and their members."""


class ShareGroupDescribeResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request for the start offsets and the lag of share groups."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request that sets start offsets of a share group."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


class DeleteShareGroupOffsetsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request that deletes start offsets of a share group."""


class DeleteShareGroupOffsetsResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


def describe_share_groups(group_ids: Iterable[str]) -> list[Any]:
    """Return the requests that describe share groups and their members."""
    request: Any = ShareGroupDescribeRequest
    return [
        request(group_ids=some, include_authorized_operations=False) for some in batches(group_ids, GROUPS_A_REQUEST)
    ]


def describe_share_offsets(group_ids: Iterable[str]) -> list[Any]:
    """Return the requests for the start offsets and the lag of share groups in all their partitions."""
    request: Any = DescribeShareGroupOffsetsRequest
    of_group = request.DescribeShareGroupOffsetsRequestGroup
    return [
        request(groups=[of_group(group_id=each, topics=None) for each in some])
        for some in batches(group_ids, GROUPS_A_REQUEST)
    ]


def known_lag(partition: Any) -> int | None:
    """Return the lag in a response to such a request, or None if the coordinator does not know it."""
    return None if partition.lag == UNKNOWN else int(partition.lag)


def alter_share_offsets(group_id: str, offsets: Mapping[TopicPartition, int]) -> Any:
    """Return the request that sets start offsets of a share group without members."""
    request: Any = AlterShareGroupOffsetsRequest
    of_topic = request.AlterShareGroupOffsetsRequestTopic
    of_partition = of_topic.AlterShareGroupOffsetsRequestPartition
    topics: dict[str, list[Any]] = {}
    for each in sorted(offsets):
        part = of_partition(partition_index=each.partition, start_offset=offsets[each])
        topics.setdefault(each.topic, []).append(part)
    return request(
        group_id=group_id, topics=[of_topic(topic_name=name, partitions=parts) for name, parts in topics.items()]
    )


def delete_share_offsets(group_id: str, topics: Iterable[str]) -> Any:
    """Return the request that deletes the start offsets of a share group in these topics."""
    request: Any = DeleteShareGroupOffsetsRequest
    of_topic = request.DeleteShareGroupOffsetsRequestTopic
    return request(group_id=group_id, topics=[of_topic(topic_name=name) for name in sorted(topics)])

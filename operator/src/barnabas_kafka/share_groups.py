"""The description of share groups (KIP-932) and of their lag (KIP-1226), which kafka-python does not have."""

from collections.abc import Iterable
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from barnabas_kafka.batches import GROUPS_A_REQUEST, batches

SHARE: Final = "share"
"""The type of a share group, in ListGroups."""
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

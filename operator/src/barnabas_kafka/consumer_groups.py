"""The description of groups of the consumer protocol (KIP-848), which kafka-python does not have."""

from collections.abc import Iterable
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.batches import GROUPS_A_REQUEST, batches

CONSUMER: Final = "consumer"
"""The type of a group of the consumer protocol, in ListGroups."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request for groups of the consumer protocol and their members."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""


def describe_consumer_groups(group_ids: Iterable[str]) -> list[Any]:
    """Return the requests that describe groups of the consumer protocol and their members."""
    request: Any = ConsumerGroupDescribeRequest
    return [
        request(group_ids=some, include_authorized_operations=False) for some in batches(group_ids, GROUPS_A_REQUEST)
    ]


def owned(member: Any) -> tuple[TopicPartition, ...]:
    """Return the partitions of a member in the response, with those that it is about to give up."""
    return tuple(
        TopicPartition(topic.topic_name, number)
        for topic in member.assignment.topic_partitions
        for number in topic.partitions
    )

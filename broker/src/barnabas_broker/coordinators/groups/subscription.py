"""The topics to which a consumer subscribes, read from the consumer's metadata in the group.

Each version of the consumer protocol's subscription begins with the version and an array of topic names. The broker
needs the topics for the expiry of offsets (KIP-211) and to refuse the deletion of offsets in use (KIP-496).
"""

import struct
from typing import Final

from barnabas_broker.coordinators.groups.records import MalformedRecord, read_string

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_VERSION_COUNT: Final = struct.Struct(">hi")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a consumer's subscription, None if the metadata is not a subscription."""
    topics, position = set(), _VERSION_COUNT.size
    try:
        _, count = _VERSION_COUNT.unpack_from(metadata)
        for _ in range(count):
            topic, position = read_string(metadata, position)
            topics.add(topic)
    except (struct.error, UnicodeDecodeError, MalformedRecord):
        return None
    return frozenset(topics)

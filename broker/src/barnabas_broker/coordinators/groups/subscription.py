"""The one thing a broker reads in a consumer's own metadata: the topics it subscribes to.

Every version of the consumer protocol's subscription begins like version 0: version, then an array of topic names, so
that is all that is looked at. Used for offset expiry (KIP-211) and for refusing to delete offsets in use (KIP-496).
"""

import struct
from typing import Final

from barnabas_broker.coordinators.groups.records import MalformedRecord, read_string

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_VERSION_COUNT: Final = struct.Struct(">hi")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics named in a consumer's subscription; None where it is not one."""
    topics, position = set(), _VERSION_COUNT.size
    try:
        _, count = _VERSION_COUNT.unpack_from(metadata)
        for _ in range(count):
            topic, position = read_string(metadata, position)
            topics.add(topic)
    except (struct.error, UnicodeDecodeError, MalformedRecord):
        return None
    return frozenset(topics)

"""The one thing a broker reads in a consumer's own metadata: the topics it subscribes to.

Every version of the consumer protocol's subscription begins like version 0: version, then an array of topic names, so
that is all that is looked at. Used for offset expiry (KIP-211) and for refusing to delete offsets in use (KIP-496).
"""

from typing import Final

from barnabas_broker.coordinators.groups.record_fields import STRING, MalformedRecord, Reader

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics named in a consumer's subscription; None where it is not one."""
    reader = Reader(metadata)
    try:
        reader.int16()
        return frozenset(STRING.read(reader, False) for _ in range(reader.int32()))
    except MalformedRecord:
        return None

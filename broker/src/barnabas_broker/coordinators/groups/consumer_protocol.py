"""The metadata and the assignments that consumers of the classic protocol exchange, in Kafka's format.

The coordinator reads and writes them for groups with members of both protocols (KIP-848).
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas_broker.coordinators.modern.targets import Topics
from barnabas_broker.coordinators.runtime.record_strings import MalformedRecord
from barnabas_broker.wire.decoder import decoder
from barnabas_broker.wire.encoder import encoder
from barnabas_broker.wire.framing import MalformedRequest

_SUBSCRIPTION: Final = "ConsumerProtocolSubscription"
_ASSIGNMENT: Final = "ConsumerProtocolAssignment"
_VERSION_MAX: Final = 3
"""The highest known version; later ones are read as this one, for they only add fields."""
_INT16: Final = struct.Struct(">h")


class Subscription(NamedTuple):
    """The topics to which a classic consumer subscribes, and the partitions that it still owns."""

    topics: tuple[str, ...]
    owned: Mapping[UUID, frozenset[int]]
    rack_id: str | None


def subscription(metadata: bytes, topics: Topics) -> Subscription:
    """Decode a consumer's metadata. Raises MalformedRecord."""
    found = _decoded(_SUBSCRIPTION, metadata)
    return Subscription(
        tuple(sorted(set(found.topics))),
        _by_id(found.owned_partitions, topics),
        found.rack_id or None,
    )


def assignment(data: bytes, topics: Topics) -> Mapping[UUID, frozenset[int]]:
    """Decode the assignment that a leader made; empty data is an empty assignment.

    Raises MalformedRecord, also for data of an assignor of the group's own, which nobody else could go on with.
    """
    if not data:
        return {}
    found = _decoded(_ASSIGNMENT, data)
    if found.user_data:
        raise MalformedRecord("an assignor of the group's own has stored user data in an assignment")
    return _by_id(found.assigned_partitions, topics)


def encoded_assignment(
    assigned: Mapping[UUID, Collection[int]], metadata: bytes, name_of: Callable[[UUID], str | None]
) -> bytes:
    """Encode an assignment in the version of a member's metadata; topics that were deleted are left out."""
    names = ((name_of(topic_id), sorted(numbers)) for topic_id, numbers in assigned.items())
    partitions = [_Topic(name, numbers) for name, numbers in sorted(each for each in names if each[0] is not None)]
    version = _version(metadata)
    out = bytearray(_INT16.pack(version))
    encoder(_ASSIGNMENT, version)(out, _Assignment(partitions, None))
    return bytes(out)


class _Topic(NamedTuple):
    topic: str | None
    partitions: Collection[int]


class _Assignment(NamedTuple):
    assigned_partitions: Collection[_Topic]
    user_data: bytes | None


def _version(data: bytes) -> int:
    (version,) = _INT16.unpack_from(data)
    return min(int(version), _VERSION_MAX)


def _decoded(name: str, data: bytes) -> Any:
    try:
        version = _version(data)
        return decoder(name, version)(memoryview(data)[_INT16.size :])
    except (struct.error, MalformedRequest, ValueError, LookupError) as error:
        raise MalformedRecord(f"{name}: {error}") from error


def _by_id(partitions: Iterable[Any], topics: Topics) -> dict[UUID, frozenset[int]]:
    """Return partitions by topic id, without topics that do not exist."""
    known = ((topics.find(each.topic), each.partitions) for each in partitions)
    return {found.topic_id: frozenset(numbers) for found, numbers in known if found is not None and numbers}

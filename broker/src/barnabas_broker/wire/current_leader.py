"""The current leader of a partition in responses to Produce (v10) and Fetch (v16) (KIP-951).

The client can then send its requests to the current leader without a Metadata request.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas_broker.wire.framing import encode_unsigned_varint
from barnabas_broker.wire.strings import write_name

ENDPOINTS_TAG: Final = 0
NO_TAGS: Final = b"\0"
_INT32: Final = struct.Struct(">i")
_LEADER: Final = struct.Struct(">ii")


class LeaderEndpoint(NamedTuple):
    """The address of a broker on the listener of the client."""

    node_id: int
    host: str
    port: int
    rack: str | None


class CurrentLeader(NamedTuple):
    """The current leader; `endpoint` is None if the leader is not alive, or has no address on the client's listener."""

    leader_id: int
    leader_epoch: int
    endpoint: LeaderEndpoint | None


def leader_fields(tag: int, leader: CurrentLeader) -> bytes:
    """Return the tagged fields of a partition, with the leader as the only field."""
    return bytes((1, tag, _LEADER.size + 1)) + _LEADER.pack(leader.leader_id, leader.leader_epoch) + NO_TAGS


def endpoint_fields(leaders: Iterable[CurrentLeader]) -> bytes:
    """Return the tagged fields of a response: the endpoints of all leaders, without repetitions."""
    endpoints = dict.fromkeys(each.endpoint for each in leaders if each.endpoint is not None)
    if not endpoints:
        return NO_TAGS
    array = encode_unsigned_varint(len(endpoints) + 1) + b"".join(map(_encode_endpoint, endpoints))
    return bytes((1, ENDPOINTS_TAG)) + encode_unsigned_varint(len(array)) + array


def _encode_endpoint(endpoint: LeaderEndpoint) -> bytes:
    rack = b"\0" if endpoint.rack is None else write_name(endpoint.rack, flexible=True)
    address = write_name(endpoint.host, flexible=True) + _INT32.pack(endpoint.port)
    return _INT32.pack(endpoint.node_id) + address + rack + NO_TAGS

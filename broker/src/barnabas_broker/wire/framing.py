"""The request header, and the primitives of the protocol that all parsers share.

A frame is a size of 4 bytes, followed by a header and a body that together have this size. Parsers get the whole buffer
with a start and an end, never read past the end, and raise MalformedRequest for invalid bytes.

The strings and array lengths of Produce and Fetch, in classic and flexible versions. The `read` functions return a
value, and the position of the byte after the value. If the data is invalid or incomplete, they raise
MalformedRequest or an exception in `BROKEN_BYTES`.

The current leader of a partition in responses to Produce (v10) and Fetch (v16) (KIP-951). The client can then send
its requests to the current leader without a Metadata request.

The APIs and versions that this broker supports, for framing, codec and ApiVersions. The versions are those of Kafka
4.4.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

PARTITIONS_MAX: Final = 50_000
"""The maximum number of array elements in a request about topics and partitions."""
NAMED_TOPICS_MAX: Final = 30_000
"""The maximum number of array elements in a request that names topics, and few of their partitions."""
SHARE_STATES_MAX: Final = 20_000
"""The maximum number of array elements in a request of a broker to a share coordinator, which has a few thousand."""
NAMES_MAX: Final = 10_000
"""The maximum number of array elements in any other request, for example of groups, users or ACLs."""
LED_MAX: Final = 30_000
"""The maximum number of topics and partitions in a Fetch or DeleteRecords, which goes to the leader of all of them."""


class ApiSpec(NamedTuple):
    """An API: its key, Kafka's name, the supported versions (inclusive), and the first flexible version."""

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible_version: int | None
    elements_max: int = NAMES_MAX

    def supports(self, version: int) -> bool:
        """True if this broker supports the version."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """True if requests of this version have compact lengths and tagged fields (KIP-482)."""
        return self.first_flexible_version is not None and version >= self.first_flexible_version

    @property
    def advertised_min_version(self) -> int:
        """The minimum version of the API that ApiVersions responses list.

        It differs from `min_version` only for Produce: v0 to v2 are listed although the broker refuses them, because
        librdkafka does not compress for a broker that does not list them (KAFKA-18659).
        """
        return 0 if self.key == PRODUCE else self.min_version


PRODUCE: Final = 0
FETCH: Final = 1
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36

_SPECS: Final = (
    ApiSpec(PRODUCE, "Produce", 3, 13, 9),
    ApiSpec(FETCH, "Fetch", 4, 18, 12, LED_MAX),
    ApiSpec(2, "ListOffsets", 1, 11, 6, PARTITIONS_MAX),
    ApiSpec(3, "Metadata", 0, 13, 9, PARTITIONS_MAX),
    ApiSpec(8, "OffsetCommit", 2, 10, 8, PARTITIONS_MAX),
    ApiSpec(9, "OffsetFetch", 1, 10, 6, PARTITIONS_MAX),
    ApiSpec(10, "FindCoordinator", 0, 6, 3),
    ApiSpec(11, "JoinGroup", 0, 9, 6),
    ApiSpec(12, "Heartbeat", 0, 4, 4),
    ApiSpec(13, "LeaveGroup", 0, 5, 4),
    ApiSpec(14, "SyncGroup", 0, 5, 4),
    ApiSpec(15, "DescribeGroups", 0, 6, 5),
    ApiSpec(16, "ListGroups", 0, 5, 3),
    ApiSpec(SASL_HANDSHAKE, "SaslHandshake", 0, 1, None),
    ApiSpec(API_VERSIONS, "ApiVersions", 0, 5, 3),
    ApiSpec(19, "CreateTopics", 2, 7, 5, PARTITIONS_MAX),
    ApiSpec(20, "DeleteTopics", 1, 6, 4, NAMED_TOPICS_MAX),
    ApiSpec(21, "DeleteRecords", 0, 2, 2, LED_MAX),
    ApiSpec(22, "InitProducerId", 0, 5, 2),
    ApiSpec(23, "OffsetForLeaderEpoch", 2, 4, 4, PARTITIONS_MAX),
    ApiSpec(24, "AddPartitionsToTxn", 0, 5, 3),
    ApiSpec(25, "AddOffsetsToTxn", 0, 4, 3),
    ApiSpec(26, "EndTxn", 0, 5, 3),
    ApiSpec(27, "WriteTxnMarkers", 1, 2, 1),
    ApiSpec(28, "TxnOffsetCommit", 0, 6, 3),
    ApiSpec(29, "DescribeAcls", 1, 3, 2),
    ApiSpec(30, "CreateAcls", 1, 3, 2),
    ApiSpec(31, "DeleteAcls", 1, 3, 2),
    ApiSpec(32, "DescribeConfigs", 1, 4, 4, PARTITIONS_MAX),
    ApiSpec(33, "AlterConfigs", 0, 2, 2, PARTITIONS_MAX),
    ApiSpec(34, "AlterReplicaLogDirs", 1, 2, 2, PARTITIONS_MAX),
    ApiSpec(35, "DescribeLogDirs", 1, 5, 2, PARTITIONS_MAX),
    ApiSpec(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
    ApiSpec(37, "CreatePartitions", 0, 3, 2, NAMED_TOPICS_MAX),
    ApiSpec(38, "CreateDelegationToken", 1, 3, 2),
    ApiSpec(39, "RenewDelegationToken", 1, 2, 2),
    ApiSpec(40, "ExpireDelegationToken", 1, 2, 2),
    ApiSpec(41, "DescribeDelegationToken", 1, 3, 2),
    ApiSpec(42, "DeleteGroups", 0, 3, 2),
    ApiSpec(43, "ElectLeaders", 0, 2, 2, PARTITIONS_MAX),
    ApiSpec(44, "IncrementalAlterConfigs", 0, 1, 1, PARTITIONS_MAX),
    ApiSpec(45, "AlterPartitionReassignments", 0, 1, 0, PARTITIONS_MAX),
    ApiSpec(46, "ListPartitionReassignments", 0, 0, 0, PARTITIONS_MAX),
    ApiSpec(47, "OffsetDelete", 0, 0, None),
    ApiSpec(48, "DescribeClientQuotas", 0, 1, 1),
    ApiSpec(49, "AlterClientQuotas", 0, 1, 1),
    ApiSpec(50, "DescribeUserScramCredentials", 0, 0, 0),
    ApiSpec(51, "AlterUserScramCredentials", 0, 0, 0),
    ApiSpec(55, "DescribeQuorum", 0, 2, 0),
    ApiSpec(57, "UpdateFeatures", 0, 2, 0),
    ApiSpec(60, "DescribeCluster", 0, 2, 0),
    ApiSpec(61, "DescribeProducers", 0, 0, 0, PARTITIONS_MAX),
    ApiSpec(64, "UnregisterBroker", 0, 0, 0),
    ApiSpec(65, "DescribeTransactions", 0, 0, 0),
    ApiSpec(66, "ListTransactions", 0, 2, 0),
    ApiSpec(68, "ConsumerGroupHeartbeat", 0, 1, 0, NAMED_TOPICS_MAX),
    ApiSpec(69, "ConsumerGroupDescribe", 0, 1, 0),
    ApiSpec(74, "ListConfigResources", 0, 1, 0),
    ApiSpec(75, "DescribeTopicPartitions", 0, 0, 0, NAMED_TOPICS_MAX),
    ApiSpec(76, "ShareGroupHeartbeat", 1, 1, 0),
    ApiSpec(77, "ShareGroupDescribe", 1, 1, 0),
    ApiSpec(78, "ShareFetch", 1, 2, 0, PARTITIONS_MAX),
    ApiSpec(79, "ShareAcknowledge", 1, 2, 0, PARTITIONS_MAX),
    ApiSpec(83, "InitializeShareGroupState", 0, 0, 0, SHARE_STATES_MAX),
    ApiSpec(84, "ReadShareGroupState", 0, 0, 0, SHARE_STATES_MAX),
    ApiSpec(85, "WriteShareGroupState", 0, 1, 0, SHARE_STATES_MAX),
    ApiSpec(86, "DeleteShareGroupState", 0, 0, 0, SHARE_STATES_MAX),
    ApiSpec(87, "ReadShareGroupStateSummary", 0, 1, 0, SHARE_STATES_MAX),
    ApiSpec(90, "DescribeShareGroupOffsets", 0, 1, 0, PARTITIONS_MAX),
    ApiSpec(91, "AlterShareGroupOffsets", 0, 0, 0),
    ApiSpec(92, "DeleteShareGroupOffsets", 0, 0, 0),
)

API_SPECS: Final[Mapping[int, ApiSpec]] = {spec.key: spec for spec in _SPECS}
"""The supported APIs by API key."""

ABSENT_APIS: Final[Mapping[int, str]] = {
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    93: "StreamsGroupTopologyDescriptionUpdate",
    94: "UnregisterController",
}
"""The names of APIs of Kafka 4.4 that this broker does not support, for error messages."""


class SendableFile(Protocol):
    """An open file whose bytes `sendfile` can send."""

    def fileno(self) -> int:
        """Return the file descriptor, which is valid as long as this object is referenced."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes from `position`, for transports without `sendfile`."""
        ...


class FileSlice(NamedTuple):
    """A slice of `length` bytes of `file` from `position`; the slice keeps the file open, even after its deletion."""

    file: SendableFile
    position: int
    length: int


Buffer = bytes | bytearray | memoryview

Part = Buffer | FileSlice
"""One part of a response, which is a list of parts; the first begins with the 4-byte size."""


_NEVER: Final = 2**15
_FLEXIBLE_SINCE: Final = {
    key: _NEVER if spec.first_flexible_version is None else spec.first_flexible_version
    for key, spec in API_SPECS.items()
}

_FIXED_HEADER: Final = struct.Struct(">hhih")
_FIXED_HEADER_BYTES: Final = 10
_unpack_fixed_header: Final = _FIXED_HEADER.unpack_from
ELEMENTS_MAX: Final = 250_000
"""The maximum number of array elements in a message that is not a request; `elements_max_of` has those of requests."""
ELEMENT_BYTES: Final = 300
"""The memory in bytes that a decoded element takes at most, without the bytes of its strings."""
HANDLED_BYTES: Final = 1_000
"""The memory in bytes that an element of a large request takes at most, with what its handler makes of it."""
_ELEMENTS_MAX: Final = {f"{spec.name}Request": spec.elements_max for spec in API_SPECS.values()}

TAGGED_FIELDS_MAX: Final = 16
"""The maximum number of tagged fields in one section; the protocol has at most 3.

Without this limit, skipping the tagged fields of a request of 100 MB could take many seconds.
"""

ONE_BYTE_VARINT: Final = 0x80
"""The limit below which a varint has one byte; hot code reads such varints without a call."""
_LATER_SHIFTS: Final = (14, 21, 28)
"""The shifts of the third to fifth byte of a 32-bit varint."""


class MalformedRequest(Exception):
    """The error for bytes that are not a valid request; the connection is closed, as later bytes may be wrong, too."""


BROKEN_BYTES: Final = (struct.error, IndexError, ValueError)
"""The exceptions of parsers if bytes are missing (struct.error, IndexError) or UTF-8 is invalid (ValueError)."""


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a request; the body begins at `body_start` of the buffer."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def elements_max_of(name: str) -> int:
    """Return the maximum number of array elements in a message, such as `MetadataRequest`."""
    return _ELEMENTS_MAX.get(name, ELEMENTS_MAX)


def locate_body(buffer: memoryview, start: int, end: int) -> tuple[int, int, int, int]:
    """Return API key, version, correlation id and start of the body of the request in `buffer[start:end]`.

    The size of the frame is before `start`. Every request passes through this function, so it creates no object but the
    tuple. The version may be unsupported, because ApiVersions must be answered in any version. Raises MalformedRequest
    if the header is incomplete or the API key is unknown.
    """
    try:
        api_key, api_version, correlation_id, client_id_bytes = _unpack_fixed_header(buffer, start)
        position = start + _FIXED_HEADER_BYTES
        if client_id_bytes > 0:
            position += client_id_bytes
        if api_version >= _FLEXIBLE_SINCE[api_key]:
            position = skip_tagged_fields(buffer[:end], position) if buffer[position] else position + 1
    except (struct.error, IndexError) as error:
        raise MalformedRequest(f"request header: {error}") from None
    except KeyError:
        raise MalformedRequest(f"this broker does not support the API {ABSENT_APIS.get(api_key, api_key)}") from None
    if position > end:
        raise MalformedRequest(f"the request header is longer than the request of {end - start} bytes")
    return api_key, api_version, correlation_id, position


def parse_request_header(buffer: memoryview, start: int, end: int) -> RequestHeader:
    """Return the request header (v1, or v2 in flexible versions) in `buffer[start:end]`. Raises MalformedRequest."""
    api_key, api_version, correlation_id, body_start = locate_body(buffer, start, end)
    client_id_bytes = _FIXED_HEADER.unpack_from(buffer, start)[3]
    client_id = None
    if client_id_bytes >= 0:
        client_id_start = start + _FIXED_HEADER_BYTES
        try:
            client_id = str(buffer[client_id_start : client_id_start + client_id_bytes], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"client_id: {error}") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, body_start)


def read_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return an unsigned 32-bit varint, and the position after it.

    Raises MalformedRequest if the varint has more than 5 bytes, and IndexError if `data` ends within the varint.
    """
    value = data[position]
    if value < ONE_BYTE_VARINT:
        return value, position + 1
    byte = data[position + 1]
    value += byte - 1 << 7  # Subtract the continuation bit of the previous byte.
    if byte < ONE_BYTE_VARINT:
        return value, position + 2
    position += 1
    for shift in _LATER_SHIFTS:
        position += 1
        byte = data[position]
        value += byte - 1 << shift
        if byte < ONE_BYTE_VARINT:
            return value & 0xFFFFFFFF, position + 1
    raise MalformedRequest("a varint has more than 5 bytes")


def locate_tagged_fields(data: Buffer, position: int) -> tuple[dict[int, tuple[int, int]], int]:
    """Return the position and size of each tagged field by tag, and the position after all tagged fields.

    Raises MalformedRequest. Callers ignore unknown tags, as KIP-482 requires.
    """
    fields: dict[int, tuple[int, int]] = {}
    try:
        count, position = read_unsigned_varint(data, position)
        if count > TAGGED_FIELDS_MAX:
            raise MalformedRequest(f"{count} tagged fields are too many; at most {TAGGED_FIELDS_MAX} are allowed")
        for _ in range(count):
            tag, position = read_unsigned_varint(data, position)
            size, position = read_unsigned_varint(data, position)
            fields[tag] = position, size
            position += size
    except IndexError:
        raise MalformedRequest("the tagged fields are longer than the rest of the request") from None
    if position > len(data):
        raise MalformedRequest("the tagged fields are longer than the rest of the request")
    return fields, position


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """Skip a section of tagged fields, and return the position after it. Raises MalformedRequest."""
    return locate_tagged_fields(data, position)[1]


_ONE_BYTE_VARINTS: Final = tuple(bytes((value,)) for value in range(ONE_BYTE_VARINT))


def encode_unsigned_varint(value: int) -> bytes:
    """Return the encoding of an unsigned varint."""
    if value < ONE_BYTE_VARINT:
        return _ONE_BYTE_VARINTS[value]
    if value < ONE_BYTE_VARINT << 7:
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
UUID_BYTES: Final = 16


def read_name(data: memoryview, position: int, *, flexible: bool) -> tuple[str, int]:
    """Return a string, which must not be null, and the position after it. Raises MalformedRequest."""
    name, position = read_nullable_string(data, position, flexible=flexible)
    if name is None:
        raise MalformedRequest("a name must not be null")
    return name, position


def read_nullable_string(data: memoryview, position: int, *, flexible: bool) -> tuple[str | None, int]:
    """Return a string, or None for null, and the position after it. Raises MalformedRequest."""
    if flexible:
        length = data[position]
        if length < ONE_BYTE_VARINT:
            position += 1
        else:
            length, position = read_unsigned_varint(data, position)
        length -= 1
    else:
        (length,) = _INT16.unpack_from(data, position)
        position += 2
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise MalformedRequest(f"a string of {length} bytes is longer than the rest of the request")
    return str(data[position:end], "utf-8"), end


def read_count(data: memoryview, position: int, *, flexible: bool) -> tuple[int, int]:
    """Return the number of elements of an array, and the position of its first element.

    The number is 0 for a null array. Raises MalformedRequest if the number is too large.
    """
    if flexible:
        count = data[position]
        if count < ONE_BYTE_VARINT:
            return (count or 1) - 1, position + 1
        count, position = read_unsigned_varint(data, position)
        count -= 1
    else:
        (count,) = _INT32.unpack_from(data, position)
        position += 4
    return check_count(count, data, position), position


def check_count(count: int, data: memoryview, position: int) -> int:
    """Return the array length, 0 for null.

    Raises MalformedRequest if the length is above ELEMENTS_MAX or the number of bytes left.
    """
    if count > len(data) - position or count > ELEMENTS_MAX:
        raise MalformedRequest(
            f"an array claims {count} elements; allowed are at most {ELEMENTS_MAX}, and at most one for each of the "
            f"{len(data) - position} bytes left"
        )
    return count if count > 0 else 0


def write_name(name: str, *, flexible: bool) -> bytes:
    """Return the encoding of a string that is not null."""
    encoded = name.encode()
    if flexible:
        return encode_unsigned_varint(len(encoded) + 1) + encoded
    return _INT16.pack(len(encoded)) + encoded


def write_count(count: int, *, flexible: bool) -> bytes:
    """Return the encoding of an array length."""
    return encode_unsigned_varint(count + 1) if flexible else _INT32.pack(count)


ENDPOINTS_TAG: Final = 0
NO_TAGS: Final = b"\0"
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

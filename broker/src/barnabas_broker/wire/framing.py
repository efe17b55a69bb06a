"""The request header, and the primitives of the protocol that all parsers share.

A frame is a size of 4 bytes, followed by a header and a body that together have this size. Parsers get the whole buffer
with a start and an end, never read past the end, and raise MalformedRequest for invalid bytes.
"""

import struct
from typing import Final

import msgspec

from barnabas_broker.wire.apis import ABSENT_APIS, API_SPECS
from barnabas_broker.wire.parts import Buffer

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

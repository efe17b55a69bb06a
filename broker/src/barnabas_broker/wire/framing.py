"""The head of a request, and the pieces of Kafka's encoding that every parser below shares.

A frame is a 4-byte size and as many bytes: header, then body. Parsers take the whole buffer and where their bytes start
and end, and never read past that end: whatever does not fit is a `MalformedRequest`.
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
"""The most array elements of a request. One of 2 bytes takes 56 bytes of memory, the largest 300."""

TAGGED_FIELDS_MAX: Final = 16
"""The tagged fields in one section; the protocol has 3 at most.

A request of 100 MB can hold 50 million: it would take many seconds to skip them.
"""

ONE_BYTE_VARINT: Final = 0x80
"""Varints below are one byte: nearly all of them, so that they are read without a call where that matters."""
_VARINT_SHIFTS: Final = (7, 14, 21, 28)
"""A 32-bit varint has at most five bytes of seven bits."""


class MalformedRequest(Exception):
    """The bytes are no request of the protocol: the connection is closed, as nothing behind them can be trusted."""


BROKEN_BYTES: Final = (struct.error, IndexError, ValueError)
"""The errors of reading past the end (struct.error, IndexError), or of text that is not UTF-8 (ValueError)."""


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a request; the body starts at `body_start` of the buffer that the header was parsed from."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def locate_body(buffer: memoryview, start: int, end: int) -> tuple[int, int, int, int]:
    """Return API key, version, correlation id and start of the body, of the request in `buffer[start:end]` (no size).

    Every request passes here, so no object is made but the tuple. The version is not compared with those of this
    broker, since an unsupported ApiVersions is to be answered. Raises MalformedRequest: the request ends before its
    header does, or the API key is unknown, and with it the header.
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
        raise MalformedRequest(f"this broker has no API {ABSENT_APIS.get(api_key, api_key)}") from None
    if position > end:
        raise MalformedRequest(f"the request header does not end within its {end - start} bytes")
    return api_key, api_version, correlation_id, position


def parse_request_header(buffer: memoryview, start: int, end: int) -> RequestHeader:
    """All of the request header (v1, or v2 for flexible versions) of `buffer[start:end]`. Raises MalformedRequest."""
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
    """An unsigned 32-bit varint and the position behind it.

    Raises MalformedRequest; IndexError at the end of `data`.
    """
    value = data[position]
    if value < ONE_BYTE_VARINT:
        return value, position + 1
    for shift in _VARINT_SHIFTS:
        position += 1
        byte = data[position]
        value += byte - 1 << shift  # Less the highest bit of the byte before.
        if byte < ONE_BYTE_VARINT:
            return value & 0xFFFFFFFF, position + 1
    raise MalformedRequest("a varint of more than 5 bytes")


def locate_tagged_fields(data: Buffer, position: int) -> tuple[dict[int, tuple[int, int]], int]:
    """Return the position and size of the value of each tag, and the position behind them all.

    Raises MalformedRequest. Unknown tags are to be ignored, as KIP-482 wants.
    """
    fields: dict[int, tuple[int, int]] = {}
    try:
        count, position = read_unsigned_varint(data, position)
        if count > TAGGED_FIELDS_MAX:
            raise MalformedRequest(f"{count} tagged fields; {TAGGED_FIELDS_MAX} are allowed")
        for _ in range(count):
            tag, position = read_unsigned_varint(data, position)
            size, position = read_unsigned_varint(data, position)
            fields[tag] = position, size
            position += size
    except IndexError:
        raise MalformedRequest("tagged fields end after the request") from None
    if position > len(data):
        raise MalformedRequest("tagged fields end after the request")
    return fields, position


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """Return the position after a section of tagged fields, which are skipped. Raises MalformedRequest."""
    return locate_tagged_fields(data, position)[1]


_ONE_BYTE_VARINTS: Final = tuple(bytes((value,)) for value in range(ONE_BYTE_VARINT))


def encode_unsigned_varint(value: int) -> bytes:
    """Return the bytes of an unsigned varint."""
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

"""The head of a request, and the pieces of Kafka's encoding that every parser below shares.

A frame is a 4-byte size and as many bytes: header, then body. Parsers take the whole buffer and where their bytes start
and end, and never read past that end: whatever does not fit is a `MalformedRequest`.
"""

import struct
from typing import Final, NamedTuple

from barnabas_broker.wire.apis import API_SPECS

Buffer = bytes | bytearray | memoryview

_FIXED_HEADER: Final = struct.Struct(">hhih")
_FIXED_HEADER_BYTES: Final = 10
_VARINT_LAST_SHIFT: Final = 28
"""A 32-bit varint has at most five bytes of seven bits."""


class MalformedRequest(Exception):
    """These bytes are no request of the protocol: the connection is closed, as nothing behind them can be trusted."""


BROKEN_BYTES: Final = (struct.error, IndexError, ValueError)
"""What reading past the end (struct.error, IndexError) or text that is not UTF-8 (ValueError) raises."""


class RequestHeader(NamedTuple):
    """Who asks for what; the body starts at `body_start` of the buffer that the header was parsed from."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_start: int


def parse_request_header(buffer: Buffer, start: int, end: int) -> RequestHeader:
    """The request header (v1, or v2 for flexible versions) in `buffer[start:end]`, size not included.

    The version is not held against what this broker speaks, since an unsupported ApiVersions is to be answered;
    an unknown API key is malformed, as its header's shape is unknown too.
    """
    data = memoryview(buffer)[:end]
    try:
        api_key, api_version, correlation_id, client_id_bytes = _FIXED_HEADER.unpack_from(data, start)
        position = start + _FIXED_HEADER_BYTES
        client_id = None
        if client_id_bytes >= 0:
            client_id_end = position + client_id_bytes
            client_id = str(data[position:client_id_end], "utf-8")
            position = client_id_end
    except BROKEN_BYTES as error:
        raise MalformedRequest(f"request header: {error}") from None
    spec = API_SPECS.get(api_key)
    if spec is None:
        raise MalformedRequest(f"api_key {api_key}: this broker does not have it")
    if spec.is_flexible(api_version):
        position = skip_tagged_fields(data, position)
    if position > end:
        raise MalformedRequest(f"client_id of {client_id_bytes} bytes ends behind the request")
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def read_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned 32-bit varint and the position behind it; IndexError at the end of `data`."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in range(7, _VARINT_LAST_SHIFT + 1, 7):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position + 1
    raise MalformedRequest("a varint of more than 5 bytes")


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """The position behind a section of tagged fields, none of which is looked at; MalformedRequest if it does not fit.

    Unknown tags are ignored, as KIP-482 wants.
    """
    try:
        count, position = read_unsigned_varint(data, position)
        for _ in range(count):
            _, position = read_unsigned_varint(data, position)
            size, position = read_unsigned_varint(data, position)
            position += size
    except IndexError:
        raise MalformedRequest("tagged fields end behind the request") from None
    if position > len(data):
        raise MalformedRequest("tagged fields end behind the request")
    return position


def encode_unsigned_varint(value: int) -> bytes:
    """An unsigned 32-bit varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)

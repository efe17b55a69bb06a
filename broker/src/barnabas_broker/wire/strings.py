"""Strings and arrays' lengths as the straight-line parsers of Produce and Fetch read them, classic and compact.

Each gives the value and the position behind it. They raise what `framing.BROKEN_BYTES` names where the bytes end, or
MalformedRequest.
"""

import struct
from typing import Final

from barnabas_broker.wire.framing import (
    ELEMENTS_MAX,
    ONE_BYTE_VARINT,
    MalformedRequest,
    encode_unsigned_varint,
    read_unsigned_varint,
)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
UUID_BYTES: Final = 16


def read_name(data: memoryview, position: int, *, flexible: bool) -> tuple[str, int]:
    """A string that is not null. Raises MalformedRequest."""
    name, position = read_nullable_string(data, position, flexible=flexible)
    if name is None:
        raise MalformedRequest("null for a name")
    return name, position


def read_nullable_string(data: memoryview, position: int, *, flexible: bool) -> tuple[str | None, int]:
    """A string; None for null. Raises MalformedRequest."""
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
        raise MalformedRequest(f"a string of {length} bytes ends behind the request")
    return str(data[position:end], "utf-8"), end


def read_count(data: memoryview, position: int, *, flexible: bool) -> tuple[int, int]:
    """Read the number of elements of an array, 0 for null. A reader of the elements notices if it is cut short."""
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
    """The count, 0 for null. MalformedRequest when it is more than the bytes left: each element takes one at least."""
    if count > len(data) - position or count > ELEMENTS_MAX:
        raise MalformedRequest(
            f"an array of {count} elements; {len(data) - position} bytes are left, {ELEMENTS_MAX} allowed"
        )
    return count if count > 0 else 0


def write_name(name: str, *, flexible: bool) -> bytes:
    """A string that is not null."""
    encoded = name.encode()
    if flexible:
        return encode_unsigned_varint(len(encoded) + 1) + encoded
    return _INT16.pack(len(encoded)) + encoded


def write_count(count: int, *, flexible: bool) -> bytes:
    """Encode the number of elements that follow."""
    return encode_unsigned_varint(count + 1) if flexible else _INT32.pack(count)

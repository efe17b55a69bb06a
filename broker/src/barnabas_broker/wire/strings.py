"""The strings and array lengths of Produce and Fetch, in classic and flexible versions.

The `read` functions return a value, and the position of the byte after the value. If the data is invalid or incomplete,
they raise MalformedRequest or an exception in `framing.BROKEN_BYTES`.
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

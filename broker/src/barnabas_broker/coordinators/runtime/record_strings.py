"""Strings in the records of the coordinators, and the error for a record that cannot be decoded."""

import struct
from typing import Final

_INT16: Final = struct.Struct(">h")


class MalformedRecord(ValueError):
    """The error for a record that cannot be decoded, or that describes an impossible group."""


def encode_string(text: str) -> bytes:
    """Return a string with its 16-bit length."""
    blob = text.encode()
    return _INT16.pack(len(blob)) + blob


def read_string(data: bytes, position: int) -> tuple[str, int]:
    """Return a string with a 16-bit length, and the position after the string.

    Raises MalformedRecord, or struct.error or UnicodeDecodeError for a length or text that cannot be decoded.
    """
    (length,) = _INT16.unpack_from(data, position)
    end = position + 2 + length
    if length < 0 or end > len(data):
        raise MalformedRecord(
            f"a string of {length} bytes at position {position} does not fit into data of {len(data)} bytes"
        )
    return data[position + 2 : end].decode(), end

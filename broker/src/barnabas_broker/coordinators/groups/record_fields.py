"""How fields of a stored record become bytes: the primitive types of Kafka's message format, classic and flexible.

A record's layout is a table of `RecordField`s with the versions that hold them; one loop reads it, one writes it.
kafka-python knows requests and responses only, not the records of the internal topics, hence this small codec.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_STRING_BYTES_MAX: Final = 2**15 - 1


class MalformedRecord(ValueError):
    """The bytes are not a record of the version they claim to be."""


class Reader:
    """A position in a record's bytes."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._position = position

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises MalformedRecord where fewer are left."""
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise MalformedRecord(f"{count} bytes wanted at {self._position}, {len(self._data)} in all")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def int16(self) -> int:
        """The next two bytes as a signed number. Raises MalformedRecord."""
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        """The next four bytes as a signed number. Raises MalformedRecord."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        """The next eight bytes as a signed number. Raises MalformedRecord."""
        return int.from_bytes(self.take(8), "big", signed=True)

    def varint(self) -> int:
        """An unsigned number of seven bits a byte, at most 32 bits. Raises MalformedRecord."""
        value = shift = 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise MalformedRecord("a varint of more than five bytes")

    def tags(self) -> dict[int, bytes]:
        """The tagged fields that end a flexible struct."""
        return {self.varint(): self.take(self.varint()) for _ in range(self.varint())}


def varint(value: int) -> bytes:
    """`value` in seven bits a byte, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_blob(reader: Reader, flexible: bool, length_bytes: int) -> bytes | None:
    """A length and as many bytes; None for the length that stands for null."""
    if flexible:
        length = reader.varint() - 1
    else:
        length = reader.int16() if length_bytes == 2 else reader.int32()
    return None if length < 0 else reader.take(length)


def _write_blob(value: bytes | None, flexible: bool, length: struct.Struct) -> bytes:
    if flexible:
        return b"\0" if value is None else varint(len(value) + 1) + value
    return length.pack(-1) if value is None else length.pack(len(value)) + value


def _text(blob: bytes) -> str:
    """What the compact encoding could hold and no other: a string that no old client can be told."""
    if len(blob) > _STRING_BYTES_MAX:
        raise MalformedRecord(f"a string of {len(blob)} bytes; {_STRING_BYTES_MAX} are allowed")
    try:
        return blob.decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"a string that is not UTF-8: {error}") from error


def _read_string(reader: Reader, flexible: bool) -> str:
    return _read_nullable_string(reader, flexible) or ""


def _read_nullable_string(reader: Reader, flexible: bool) -> str | None:
    blob = _read_blob(reader, flexible, 2)
    return None if blob is None else _text(blob)


def _write_string(value: str | None, flexible: bool) -> bytes:
    return _write_blob(None if value is None else value.encode(), flexible, _INT16)


def _read_bytes(reader: Reader, flexible: bool) -> bytes:
    return _read_blob(reader, flexible, 4) or b""


def _write_bytes(value: bytes, flexible: bool) -> bytes:
    return _write_blob(value, flexible, _INT32)


class Kind(NamedTuple):
    """One type of field: how it is read and written, in the classic or the flexible encoding."""

    read: Callable[[Reader, bool], Any]
    write: Callable[[Any, bool], bytes]


INT32: Final = Kind(lambda reader, _: reader.int32(), lambda value, _: _INT32.pack(value))
INT64: Final = Kind(lambda reader, _: reader.int64(), lambda value, _: _INT64.pack(value))
STRING: Final = Kind(_read_string, _write_string)
NULLABLE_STRING: Final = Kind(_read_nullable_string, _write_string)
BYTES: Final = Kind(_read_bytes, _write_bytes)


class RecordField(NamedTuple):
    """One field of a struct, since which version it is there, and its value before."""

    name: str
    kind: Kind
    since: int = 0
    default: object = None


FIRST_FLEXIBLE_VERSION: Final = 4
"""Of both value types of `__consumer_offsets`."""


def read_struct(reader: Reader, fields: Sequence[RecordField], version: int) -> dict[str, Any]:
    """Every field by name, absent ones with their defaults; tagged fields, which are all unknown, are passed over."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    values = {
        field.name: field.kind.read(reader, flexible) if version >= field.since else field.default for field in fields
    }
    if flexible:
        reader.tags()
    return values


def write_struct(values: Mapping[str, Any], fields: Sequence[RecordField], version: int) -> bytes:
    """The fields that `version` has."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    parts = [field.kind.write(values[field.name], flexible) for field in fields if version >= field.since]
    return b"".join(parts) + (b"\0" if flexible else b"")


def array(fields: Sequence[RecordField], version: int) -> Kind:
    """An array of structs with these fields, in this version."""

    def read(reader: Reader, flexible: bool) -> list[dict[str, Any]]:
        count = reader.varint() - 1 if flexible else reader.int32()
        return [read_struct(reader, fields, version) for _ in range(count)]

    def write(values: Sequence[Mapping[str, Any]], flexible: bool) -> bytes:
        head = varint(len(values) + 1) if flexible else _INT32.pack(len(values))
        return head + b"".join(write_struct(value, fields, version) for value in values)

    return Kind(read, write)

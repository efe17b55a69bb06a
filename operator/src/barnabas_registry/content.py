"""The content of messages that begin with the number of a schema. Anybody may have written them.

A reader is made of a schema once. It refuses a schema by which a short message could become large or deep, because
fastavro has no bounds of its own.
"""

import base64
import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader
from google.protobuf import any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from barnabas_registry.schemas import Schema

MAGIC: Final = 0
HEAD_BYTES: Final = 5
"""The bytes before the content: MAGIC, and the number of the schema in four bytes."""
VALUES_PER_BYTE_MAX: Final = 100
VALUES_MAX: Final = 10_000
"""The most values that one byte of a message, and its parts that are no lists, may become."""
DEPTH_MAX: Final = 50
INDEXES_MAX: Final = 20
WELL_KNOWN: Final = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)


class CannotDecode(Exception):
    """The error that bytes do not have a schema, or that the schema cannot be used; the message has the reason."""


def schema_id_of(part: bytes) -> int | None:
    """Return the number of the schema at the beginning of a key or value, or None if it does not begin with one."""
    return int.from_bytes(part[1:HEAD_BYTES]) if len(part) >= HEAD_BYTES and part[0] == MAGIC else None


class AvroReader:
    """The reader of content by an Avro schema, which has all names that it uses in `named`."""

    def __init__(self, schema: Schema) -> None:
        self.named: dict[str, Any] = {}
        for _, text in schema.references:
            parse_schema(json.loads(text), named_schemas=self.named)
        self.schema = parse_schema(json.loads(schema.text), named_schemas=self.named)
        if _Size(self.named).of(self.schema, 0)[1] > VALUES_MAX:
            raise CannotDecode(f"by this schema a message without a byte has more than {VALUES_MAX} values")
        self.name: str = self.schema.get("name", "") if isinstance(self.schema, dict) else ""

    def read(self, body: bytes) -> Any:
        """Return the value that the content is."""
        stream = BytesIO(body)
        found = schemaless_reader(stream, self.schema, None)
        if stream.tell() != len(body):
            raise CannotDecode(f"{len(body) - stream.tell()} bytes are behind what the schema describes")
        return found


class _Size:
    """The fewest bytes of a value, and the number of values in it, by its type. Lists count as one value.

    Raises CannotDecode where that has no bound: in a type that contains itself, in a list whose items need no bytes.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._done: dict[str, tuple[int, int] | None] = {}

    def of(self, schema: Any, depth: int) -> tuple[int, int]:
        """Return both for a schema."""
        if depth > DEPTH_MAX:
            raise CannotDecode(f"the schema is more than {DEPTH_MAX} levels deep")
        if isinstance(schema, list):
            branches = [self.of(each, depth + 1) for each in schema]
            return max(((1 + size, 1 + count) for size, count in branches), key=lambda each: each[1] / each[0])
        if isinstance(schema, str):
            known = self._named.get(schema)
            return self.of(known, depth + 1) if known is not None else (int(schema != "null"), 1)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, depth)
        if kind in ("array", "map"):
            return self._list(schema["items"] if kind == "array" else schema["values"], int(kind == "map"), depth)
        if kind == "fixed":
            return int(schema["size"]), 1
        return (1, 1) if kind == "enum" else self.of(kind, depth + 1)

    def _record(self, schema: Mapping[str, Any], depth: int) -> tuple[int, int]:
        name = schema["name"]
        if name not in self._done:
            self._done[name] = None
            sizes = [self.of(each["type"], depth + 1) for each in schema["fields"]]
            self._done[name] = sum(size for size, _ in sizes), 1 + sum(count for _, count in sizes)
        found = self._done[name]
        if found is None:
            raise CannotDecode(f"the type {name} contains itself, and has no bound")
        return found

    def _list(self, items: Any, key_bytes: int, depth: int) -> tuple[int, int]:
        size, count = self.of(items, depth + 1)
        if count > VALUES_PER_BYTE_MAX * (size + key_bytes):
            raise CannotDecode(f"by this schema a byte of a list becomes more than {VALUES_PER_BYTE_MAX} values")
        return 1, 1


def as_json(value: object) -> bytes:
    """Return a value of Avro as JSON."""
    return json.dumps(value, ensure_ascii=False, default=_text).encode(errors="replace")


def _text(value: Any) -> str:
    """Return what JSON does not have as text: bytes as hex, times as in ISO 8601."""
    if isinstance(value, bytes):
        return value.hex(" ")
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


class ProtobufReader:
    """The reader of content by the message types of a file, which begins with indexes that name the type."""

    def __init__(self, schema: Schema) -> None:
        self.pool = DescriptorPool()
        for each in WELL_KNOWN:
            self.pool.AddSerializedFile(each.DESCRIPTOR.serialized_pb)
        for name, text in schema.references:
            if not name.startswith("google/protobuf/"):
                self.pool.AddSerializedFile(_file(text, name).SerializeToString())
        self.file = _file(schema.text, f"schema-{schema.schema_id}.proto")
        self.pool.AddSerializedFile(self.file.SerializeToString())

    def read(self, body: bytes) -> tuple[str, Any]:
        """Return the full name of the message's type, and the message."""
        name, content = _type_and_rest(self.file, body)
        return name, GetMessageClass(self.pool.FindMessageTypeByName(name)).FromString(content)


def _file(text: str, name: str) -> FileDescriptorProto:
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except Exception as error:  # Base64 and Protobuf have errors of their own, which say the same.
        raise CannotDecode("the registry does not give a file descriptor for format=serialized") from error
    file.name = name
    return file


def _type_and_rest(file: FileDescriptorProto, body: bytes) -> tuple[str, bytes]:
    """Return the full name of the type that the first bytes of a message name, and the bytes behind them."""
    stream = BytesIO(body)
    count = _zigzag(stream)
    if not 0 <= count <= INDEXES_MAX:
        raise CannotDecode(f"the message has {count} indexes; allowed: 0 to {INDEXES_MAX}")
    names, types = [file.package] if file.package else [], file.message_type
    for index in [_zigzag(stream) for _ in range(count)] or [0]:
        if not 0 <= index < len(types):
            raise CannotDecode(f"the schema has no message type {index} in {'.'.join(names) or 'its file'}")
        names.append(types[index].name)
        types = types[index].nested_type
    return ".".join(names), stream.read()


def _zigzag(stream: BytesIO) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = stream.read(1)
        if not byte:
            raise CannotDecode("the message ends in its indexes")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
    raise CannotDecode("an index of the message has more than 5 bytes")

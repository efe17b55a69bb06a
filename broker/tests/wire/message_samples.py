"""Random messages for every API and version, and the same message as kafka-python has it."""

import importlib
import uuid
from typing import Any

from hypothesis import strategies as st

from barnabas_broker.wire import schema
from barnabas_broker.wire.framing import API_SPECS, FETCH, PRODUCE
from barnabas_broker.wire.messages import struct_class

NAMES = tuple(f"kafka.protocol.{name}" for name in ("producer", "consumer", "metadata", "admin", "sasl"))
MODULES = [importlib.import_module(name) for name in ("own_messages", *NAMES)]

CODEC_APIS = [spec for spec in API_SPECS.values() if spec.key not in (PRODUCE, FETCH)]
CODEC_MESSAGES = [
    (f"{spec.name}{direction}", version)
    for spec in CODEC_APIS
    for direction in ("Request", "Response")
    for version in range(spec.min_version, spec.max_version + 1)
]

INTEGERS = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **INTEGERS,
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=12),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
    "uuid": st.none() | st.uuids().filter(lambda value: value.int),
    "operations": st.none() | st.sets(st.integers(0, 30), max_size=5),
}
SMALL_VALUES = VALUES | {kind: st.integers(0, 50) for kind in INTEGERS} | {"string": st.text("abc", max_size=150)}
"""Values that the types of every codec can hold: known error codes, short times."""

Tree = dict[str, Any]


class MemoryFile:
    """Bytes in place of a segment's file."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def fileno(self) -> int:
        raise NotImplementedError

    def read_at(self, position: int, length: int) -> bytes:
        return self.content[position : position + length]


def message_trees(name: str, version: int, values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Tree]:
    """The fields that the message has in this version, nested structs as trees too."""
    return struct_trees(schema.message(name).struct, version, values)


def struct_trees(
    struct: schema.Struct, version: int, values: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Tree]:
    return st.fixed_dictionaries(
        {
            field.name: field_values(field, version, values)
            for field in struct.fields
            if field.is_in_line(version) or field.is_tagged(version)
        }
    )


def field_values(
    field: schema.Field, version: int, values: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[Any]:
    one = values[field.kind] if field.struct is None else struct_trees(field.struct, version, values)
    strategy = st.lists(one, max_size=3) if field.is_array else one
    return st.none() | strategy if field.nullable.hold(version) else strategy


def our_message(struct: schema.Struct, tree: Tree) -> Any:
    """The tree as an instance of our class."""
    return struct_class(struct)(**_built(struct, tree, our_message))


def kafka_class(name: str) -> Any:
    """kafka-python's class of a message, such as `MetadataRequest`."""
    for module in MODULES:
        if hasattr(module, name):
            return getattr(module, name)
    raise LookupError(f"kafka-python has no {name}; put its class into own_messages.py")


def kafka_message(struct: schema.Struct, tree: Tree) -> Any:
    """The tree as an instance of kafka-python's class."""
    made = kafka_class(struct.path.split(".")[0])
    for part in struct.path.split(".")[1:]:
        made = getattr(made, part)
    return made(**_built(struct, tree, kafka_message))


def _built(struct: schema.Struct, tree: Tree, make: Any) -> Tree:
    fields = {field.name: field for field in struct.fields}
    return {name: _made(fields[name], value, make) for name, value in tree.items()}


def _made(field: schema.Field, value: Any, make: Any) -> Any:
    if field.struct is None or value is None:
        return value
    return [make(field.struct, element) for element in value] if field.is_array else make(field.struct, value)


SAMPLE_VALUES: dict[str, Any] = {
    **dict.fromkeys(INTEGERS, 7),
    "bool": True,
    "float64": 1.5,
    "string": "flights",
    "bytes": b"payload",
    "records": b"payload",
    "uuid": uuid.UUID(int=77),
    "operations": {3, 8},
}


def sample_tree(struct: schema.Struct, version: int) -> Tree:
    """One message with every field set and two elements in every array."""
    return {
        field.name: _sample_value(field, version)
        for field in struct.fields
        if field.is_in_line(version) or field.is_tagged(version)
    }


def _sample_value(field: schema.Field, version: int) -> Any:
    one = SAMPLE_VALUES[field.kind] if field.struct is None else sample_tree(field.struct, version)
    return [one, one] if field.is_array else one

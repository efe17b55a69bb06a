"""The columns of schemas in Avro, JSON Schema and Protobuf, and the functions that read values for these columns."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict

from barnabas_jobs.planning.columns import (
    TEXT_IN_JSON,
    Column,
    Convert,
    in_json,
    list_of,
    map_of,
    optional,
    record_of,
    same,
)
from barnabas_registry.content import AvroReader, CannotDecode, ProtobufReader
from barnabas_registry.schemas import AVRO, JSON, NAMES, PROTOBUF, Schema

SCHEMAS_KEPT: Final = 2_000
DECIMAL_DIGITS_MAX: Final = 38
PATH_MAX: Final = 1 << 10
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Values(NamedTuple):
    """The type of all values of a schema, and the function that reads one; it may raise CannotDecode or any error.

    The type is None if the values have no field that could be a column.
    """

    type: pa.DataType | None
    read: Callable[[bytes], Any]


@lru_cache(maxsize=SCHEMAS_KEPT)
def values_of(schema: Schema, message: str | None) -> Values:
    """Return the columns of a schema; `message` names the message type of Protobuf, instead of the first one.

    Raises CannotDecode if the schema is invalid or has no bounds.
    """
    kinds: dict[str, Callable[[Schema], Values]] = {AVRO: _avro, JSON: _json, PROTOBUF: partial(_protobuf, message)}
    if schema.kind not in kinds:
        raise CannotDecode(f"the schema is of the type {schema.kind}; known: {', '.join(NAMES)}")
    try:
        return kinds[schema.kind](schema)
    except CannotDecode:
        raise
    except Exception as error:  # A schema may be anything, and the libraries raise what they like.
        raise CannotDecode(f"the schema is invalid: {type(error).__name__}: {error}") from error


AVRO_TYPES: Final[Mapping[str, Column]] = {
    "boolean": Column(pa.bool_(), same),
    "int": Column(pa.int32(), same),
    "long": Column(pa.int64(), same),
    "float": Column(pa.float32(), same),
    "double": Column(pa.float64(), same),
    "bytes": Column(pa.binary(), same),
    "string": Column(pa.string(), same),
    "enum": Column(pa.string(), same),
    "fixed": Column(pa.binary(), same),
}
AVRO_LOGICAL_TYPES: Final[Mapping[tuple[str, str], Column]] = {
    ("int", "date"): Column(pa.date32(), same),
    ("int", "time-millis"): Column(pa.string(), str),
    ("long", "time-micros"): Column(pa.string(), str),
    ("long", "timestamp-millis"): Column(pa.timestamp("us", "UTC"), same),
    ("long", "timestamp-micros"): Column(pa.timestamp("us", "UTC"), same),
    ("long", "local-timestamp-millis"): Column(pa.timestamp("us"), same),
    ("long", "local-timestamp-micros"): Column(pa.timestamp("us"), same),
    ("string", "uuid"): Column(pa.string(), str),
}
"""The logical types that fastavro knows, but for decimals; Spark has no column for the time of a day."""


def _avro(schema: Schema) -> Values:
    reader = AvroReader(schema)
    column = _avro_column(reader.schema, reader.named)
    return Values(None, reader.read) if column is None else _values(column, reader.read)


def _values(column: Column, read: Callable[[bytes], Any]) -> Values:
    convert = optional(column)
    return Values(column.type, read if convert is same else lambda body: convert(read(body)))


def _avro_column(schema: Any, named: Mapping[str, Any]) -> Column | None:
    """Return the column of a type, or None if it has no content. Types that contain themselves were refused before."""
    if isinstance(schema, list):
        branches = [each for each in schema if each != "null"]
        return _avro_column(branches[0], named) if len(branches) == 1 else TEXT_IN_JSON if branches else None
    if isinstance(schema, str):
        return _avro_column(named[schema], named) if schema in named else AVRO_TYPES.get(schema)
    kind = schema["type"]
    if kind in ("record", "error"):
        fields = {each["name"]: _avro_column(each["type"], named) for each in schema["fields"]}
        return record_of({name: each for name, each in fields.items() if each is not None})
    if kind in ("array", "map"):
        item = _avro_column(schema["items"] if kind == "array" else schema["values"], named)
        return None if item is None else list_of(item) if kind == "array" else map_of(item)
    if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema)
    logical = AVRO_LOGICAL_TYPES.get((str(kind), str(schema.get("logicalType"))))
    return logical or _avro_column(kind, named)


def _decimal(schema: Mapping[str, Any]) -> Column:
    digits = schema["precision"]
    if digits > DECIMAL_DIGITS_MAX:
        return Column(pa.string(), str)
    return Column(pa.decimal128(digits, schema.get("scale", 0)), same)


def _whole(value: float) -> int:
    if value != int(value):
        raise CannotDecode(f"{value} is no integer")
    return int(value)


JSON_TYPES: Final[Mapping[str, tuple[pa.DataType, tuple[type, ...], Convert]]] = {
    "string": (pa.string(), (str,), same),
    "integer": (pa.int64(), (int, float), _whole),
    "number": (pa.float64(), (int, float), float),
    "boolean": (pa.bool_(), (bool,), same),
}


def _json(schema: Schema) -> Values:
    documents = {name: json.loads(text) for name, text in schema.references}
    column = _JsonSchema(json.loads(schema.text), documents).column("the value", "#", ())
    return _values(column, json.loads)


class _JsonSchema:
    """A JSON Schema; `documents` are those to which it refers, by name."""

    def __init__(self, root: Any, documents: Mapping[str, Any]) -> None:
        self._root = root
        self._documents = documents

    def column(self, path: str, place: Any, seen: tuple[str, ...]) -> Column:
        """Return the column of a schema, or of the one that a reference names.

        `seen` has the references on the way: one that comes twice, a deep one, and what is unknown, are text in JSON.
        """
        schema = {"$ref": place} if isinstance(place, str) else place
        while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            reference = schema["$ref"]
            if reference in seen:
                return TEXT_IN_JSON
            seen, schema = (*seen, reference), self._found(reference)
        if not isinstance(schema, dict) or len(path) > PATH_MAX:
            return TEXT_IN_JSON
        for name in ("oneOf", "anyOf"):
            branches = [each for each in schema.get(name, ()) if each != {"type": "null"}]
            if len(branches) == 1:
                return self.column(path, branches[0], seen)
        return self._of_type(path, schema, seen)

    def _found(self, reference: str) -> Any:
        document, _, pointer = reference.partition("#")
        found = self._documents.get(document) if document else self._root
        for each in filter(None, pointer.split("/")):
            found = found.get(each.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found

    def _of_type(self, path: str, schema: Mapping[str, Any], seen: tuple[str, ...]) -> Column:
        kind = schema.get("type")
        kinds = [str(each) for each in (kind if isinstance(kind, list) else [kind]) if each != "null"]
        if kinds == ["object"] and isinstance(schema.get("properties"), dict):
            return self._object(path, schema, seen)
        if kinds == ["array"] and isinstance(schema.get("items"), dict):
            found = list_of(self.column(f"{path}[]", schema["items"], seen))
            return Column(found.type, _checked(path, (list,), found.convert))
        if len(kinds) == 1 and kinds[0] in JSON_TYPES:
            arrow, allowed, convert = JSON_TYPES[kinds[0]]
            return Column(arrow, _checked(path, allowed, convert))
        return TEXT_IN_JSON

    def _object(self, path: str, schema: Mapping[str, Any], seen: tuple[str, ...]) -> Column:
        fields = {name: self.column(f"{path}.{name}", each, seen) for name, each in schema["properties"].items()}
        record = record_of(fields)
        if record is None:
            return TEXT_IN_JSON
        required = [each for each in schema.get("required", ()) if each in fields]

        def convert(value: Any) -> Any:
            if lacking := [each for each in required if each not in value]:
                raise CannotDecode(f"{path}.{lacking[0]} is missing, which the schema requires")
            return record.convert(value)

        return Column(record.type, _checked(path, (dict,), convert))


def _checked(path: str, allowed: tuple[type, ...], convert: Convert) -> Convert:
    """Return a function that raises CannotDecode for a value of another type; true and false are no numbers."""

    def checked(value: Any) -> Any:
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise CannotDecode(f"{path} is {json.dumps(value)[:100]}, which the schema does not allow")
        return convert(value)

    return checked


FIELD: Final = FieldDescriptor
PROTOBUF_TYPES: Final[Mapping[int, pa.DataType]] = {
    FIELD.TYPE_DOUBLE: pa.float64(),
    FIELD.TYPE_FLOAT: pa.float32(),
    FIELD.TYPE_INT64: pa.int64(),
    FIELD.TYPE_UINT64: pa.decimal128(20, 0),
    FIELD.TYPE_INT32: pa.int32(),
    FIELD.TYPE_FIXED64: pa.decimal128(20, 0),
    FIELD.TYPE_FIXED32: pa.int64(),
    FIELD.TYPE_BOOL: pa.bool_(),
    FIELD.TYPE_STRING: pa.string(),
    FIELD.TYPE_BYTES: pa.binary(),
    FIELD.TYPE_UINT32: pa.int64(),
    FIELD.TYPE_SFIXED32: pa.int32(),
    FIELD.TYPE_SFIXED64: pa.int64(),
    FIELD.TYPE_SINT32: pa.int32(),
    FIELD.TYPE_SINT64: pa.int64(),
}
WELL_KNOWN: Final = "google.protobuf."
WRAPPERS: Final = tuple(
    f"{WELL_KNOWN}{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def _protobuf(wanted: str | None, schema: Schema) -> Values:
    reader = ProtobufReader(schema)
    names = [each.name for each in reader.file.message_type]
    package = f"{reader.file.package}." if reader.file.package else ""
    name = wanted or f"{package}{names[0]}"
    column = _message(reader.pool.FindMessageTypeByName(name), reader.pool, ())

    def read(body: bytes) -> Any:
        found, message = reader.read(body)
        if found != name:
            raise CannotDecode(f"it is a {found}, and the columns are those of {name}")
        return column.convert(message) if column else None

    return Values(column.type if column else None, read)


def _message(kind: Any, pool: Any, seen: tuple[str, ...]) -> Column | None:
    """Return the column of a message type, or None if it has no fields; one that contains itself is text in JSON."""
    name = kind.full_name
    if name == f"{WELL_KNOWN}Timestamp":
        return Column(pa.timestamp("us", "UTC"), _time)
    if name in WRAPPERS:
        value = kind.fields_by_name["value"]
        return Column(PROTOBUF_TYPES[value.type], lambda message: message.value)
    if name in seen or name in (f"{WELL_KNOWN}{each}" for each in ("Struct", "Value", "ListValue")):
        return Column(pa.string(), lambda message: in_json(MessageToDict(message, descriptor_pool=pool)))
    columns = {each.name: _field(each, pool, (*seen, name)) for each in kind.fields}
    record = record_of({name: each for name, each in columns.items() if each is not None})
    if record is None:
        return None
    present = [each.name for each in kind.fields if columns[each.name] is not None]
    optional_ones = frozenset(each.name for each in kind.fields if each.has_presence)

    def convert(message: Any) -> Any:
        given = (each for each in present if each not in optional_ones or message.HasField(each))
        return record.convert({each: getattr(message, each) for each in given})

    return Column(record.type, convert)


def _time(message: Any) -> datetime:
    return EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _field(field: Any, pool: Any, seen: tuple[str, ...]) -> Column | None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = _single(field.message_type.fields_by_name["value"], pool, seen)
        return None if value is None else map_of(value)
    single = _single(field, pool, seen)
    return None if single is None else list_of(single) if field.is_repeated else single


def _single(field: Any, pool: Any, seen: tuple[str, ...]) -> Column | None:
    if field.message_type is not None:
        return _message(field.message_type, pool, seen)
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return Column(pa.string(), lambda number: names.get(number, str(number)))
    return Column(PROTOBUF_TYPES[field.type], same)

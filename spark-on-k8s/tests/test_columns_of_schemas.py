"""The columns that schemas in Avro, JSON Schema and Protobuf give, and how they change."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from google.protobuf import struct_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from barnabas_jobs.planning.columns import IncompatibleColumns, check_readable, merged
from barnabas_jobs.planning.columns_of_schemas import values_of
from barnabas_registry.content import CannotDecode
from barnabas_registry.schemas import Schema
from harness.schema_registry import avro, flight_file, plane_file, protobuf, serialized

KINDS = FieldDescriptorProto
MOMENT = datetime(2013, 1, 31, 6, 30, tzinfo=UTC)


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def read(schema: Schema, body: bytes, message: str | None = None) -> tuple[pa.DataType, Any]:
    """Return the type of a schema's column, and the value in an Arrow array of this type."""
    values = values_of(schema, message)
    return values.type, pa.array([values.read(body)], values.type).to_pylist()[0]


def test_avro_types_become_columns_of_the_same_meaning() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "at", "type": "long"}]}
    cases: dict[str, tuple[Any, Any, pa.DataType, Any]] = {
        "whole": ("int", 7, pa.int32(), 7),
        "text": ({"type": "string", "avro.java.string": "String"}, "x", pa.string(), "x"),
        "symbol": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
        "raw": ({"type": "fixed", "name": "F", "size": 2}, b"\0\xff", pa.binary(), b"\0\xff"),
        "money": (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-1.25"),
            pa.decimal128(9, 2),
            Decimal("-1.25"),
        ),
        "digits": ({"type": "bytes", "logicalType": "decimal", "precision": 60}, Decimal(7), pa.string(), "7"),
        "day": ({"type": "int", "logicalType": "date"}, date(1, 1, 1), pa.date32(), date(1, 1, 1)),
        "clock": ({"type": "int", "logicalType": "time-millis"}, time(6, 30), pa.string(), "06:30:00"),
        "moment": ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT, pa.timestamp("us", "UTC"), MOMENT),
        "local": (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            MOMENT.replace(tzinfo=None),
            pa.timestamp("us"),
            MOMENT.replace(tzinfo=None),
        ),
        "uuid": ({"type": "string", "logicalType": "uuid"}, UUID(int=1), pa.string(), str(UUID(int=1))),
        "legs": (
            {"type": "array", "items": inner},
            [{"at": 1}],
            pa.list_(pa.struct([("at", pa.int64())])),
            [{"at": 1}],
        ),
        "tags": ({"type": "map", "values": "int"}, {"a": 1}, pa.map_(pa.string(), pa.int32()), [("a", 1)]),
        "either": (["null", "int", "string"], "x", pa.string(), '"x"'),
    }
    text = json.dumps(record(nothing="null", **{name: kind for name, (kind, *_) in cases.items()}))
    body = avro(text, {name: value for name, (_, value, *_) in cases.items()})
    kind, value = read(Schema(1, "AVRO", text), body)
    assert {each.name: each.type for each in kind} == {name: expected for name, (_, _, expected, _) in cases.items()}
    assert value == {name: expected for name, (*_, expected) in cases.items()}
    assert read(Schema(1, "AVRO", '"string"'), avro('"string"', "x")) == (pa.string(), "x")
    assert values_of(Schema(1, "AVRO", json.dumps(record(nothing="null"))), None).type is None


def field(name: str, number: int, kind: int, *, repeated: bool = False, **more: Any) -> FieldDescriptorProto:
    label = KINDS.LABEL_REPEATED if repeated else KINDS.LABEL_OPTIONAL
    return FieldDescriptorProto(name=name, number=number, type=kind, label=label, **more)


def trip_file() -> FileDescriptorProto:
    """Return a file with the message Trip, which has a field of each shape."""
    file = FileDescriptorProto(name="trip.proto", package="demo", syntax="proto3")
    for name in ("timestamp", "wrappers", "struct"):
        file.dependency.append(f"google/protobuf/{name}.proto")
    file.enum_type.add(name="Class").value.add(name="ECONOMY", number=0)
    trip = file.message_type.add(name="Trip")
    entry = DescriptorProto(
        name="SeatsEntry", field=[field("key", 1, KINDS.TYPE_INT32), field("value", 2, KINDS.TYPE_STRING)]
    )
    entry.options.map_entry = True
    trip.nested_type.append(entry)
    of_message = KINDS.TYPE_MESSAGE
    trip.field.extend(
        [
            field("large", 1, KINDS.TYPE_UINT64),
            field("parent", 2, of_message, type_name=".demo.Trip"),
            field("left", 3, of_message, type_name=".google.protobuf.Timestamp"),
            field("note", 4, of_message, type_name=".google.protobuf.StringValue"),
            field("more", 5, of_message, type_name=".google.protobuf.Struct"),
            field("seats", 6, of_message, repeated=True, type_name=".demo.Trip.SeatsEntry"),
            field("classes", 7, KINDS.TYPE_ENUM, repeated=True, type_name=".demo.Class"),
            field("empty", 8, of_message, type_name=".demo.Empty"),
            field("raw", 9, KINDS.TYPE_BYTES),
        ]
    )
    file.message_type.add(name="Empty")
    return file


def test_protobuf_types_become_columns_of_the_same_meaning() -> None:
    schema = Schema(1, "PROTOBUF", serialized(trip_file()))
    kind = values_of(schema, None).type
    assert kind is not None
    assert {each.name: each.type for each in kind} == {
        "large": pa.decimal128(20, 0),
        "parent": pa.string(),
        "left": pa.timestamp("us", "UTC"),
        "note": pa.string(),
        "more": pa.string(),
        "seats": pa.map_(pa.string(), pa.string()),
        "classes": pa.list_(pa.string()),
        "raw": pa.binary(),
    }
    nothing = read(schema, b"\0")[1]
    assert nothing == {
        "large": Decimal(0), "parent": None, "left": None, "note": None, "more": None,
        "seats": [], "classes": [], "raw": b"",
    }  # fmt: skip
    body = protobuf(
        "demo.Trip",
        FileDescriptorProto.FromString(wrappers_pb2.DESCRIPTOR.serialized_pb),
        FileDescriptorProto.FromString(struct_pb2.DESCRIPTOR.serialized_pb),
        trip_file(),
        large=2**64 - 1,
        parent={"large": 3},
        left={"seconds": int(MOMENT.timestamp())},
        note={"value": ""},
        more={"a": 1},
        seats={1: "A"},
        classes=[0, 7],
    )
    found = read(schema, b"\0" + body)[1]
    assert found == {
        "large": Decimal(2**64 - 1), "parent": '{"large": "3"}', "left": MOMENT, "note": "", "more": '{"a": 1.0}',
        "seats": [("1", "A")], "classes": ["ECONOMY", "7"], "raw": b"",
    }  # fmt: skip


def test_the_message_type_of_protobuf_is_the_first_or_the_named_one() -> None:
    schema = Schema(1, "PROTOBUF", serialized(flight_file()))
    seat = b"\x04\x00\x00" + protobuf("demo.Flight.Seat", flight_file(), row=12)
    assert read(schema, seat, "demo.Flight.Seat") == (pa.struct([("row", pa.int32())]), {"row": 12})
    with pytest.raises(CannotDecode, match=r"it is a demo.Flight.Seat, and the columns are those of demo.Flight"):
        values_of(schema, None).read(seat)
    with pytest.raises(CannotDecode, match=r"Couldn't find message demo.Nobody"):
        values_of(schema, "demo.Nobody")
    imported = Schema(
        1, "PROTOBUF", serialized(flight_file(imports="plane.proto")), (("plane.proto", serialized(plane_file())),)
    )
    body = protobuf("demo.Flight", plane_file(), flight_file(imports="plane.proto"), plane={"tail": "D-AIMA"})
    assert read(imported, b"\0" + body)[1]["plane"] == {"tail": "D-AIMA"}


SHOP = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "price": {"type": ["number", "null"]},
        "open": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "owner": {"$ref": "#/definitions/person"},
        "address": {"$ref": "address.json"},
        "any": {"type": ["string", "integer"]},
    },
    "definitions": {
        "person": {
            "type": "object",
            "properties": {"age": {"type": "integer"}, "boss": {"$ref": "#/definitions/person"}},
        }
    },
}
ADDRESS = {"type": "object", "properties": {"town": {"type": "string"}}}
SHOPS = Schema(1, "JSON", json.dumps(SHOP), (("address.json", json.dumps(ADDRESS)),))


def test_json_schemas_become_columns_of_the_same_meaning() -> None:
    value = {
        "id": 7.0, "name": None, "price": 1, "open": True, "tags": ["a"], "any": 1, "more": 1,
        "owner": {"age": 3, "boss": {"age": 4}}, "address": {"town": "Oslo"},
    }  # fmt: skip
    kind, found = read(SHOPS, json.dumps(value).encode())
    assert {each.name: str(each.type) for each in kind} == {
        "id": "int64", "name": "string", "price": "double", "open": "bool", "tags": "list<item: string>",
        "owner": "struct<age: int64, boss: string>", "address": "struct<town: string>", "any": "string",
    }  # fmt: skip
    assert found == {
        "id": 7, "name": None, "price": 1.0, "open": True, "tags": ["a"], "any": "1",
        "owner": {"age": 3, "boss": '{"age": 4}'}, "address": {"town": "Oslo"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "the value.id is missing, which the schema requires"),
        ({"id": "7"}, 'the value.id is "7", which the schema does not allow'),
        ({"id": True}, "the value.id is true"),
        ({"id": 1.5}, "1.5 is no integer"),
        ({"id": 1, "tags": [1]}, r"the value.tags\[\] is 1"),
        ({"id": 1, "owner": []}, r"the value.owner is \[\]"),
        ([], "the value is"),
    ],
)
def test_json_that_does_not_have_its_schema_is_refused_with_the_field(value: Any, reason: str) -> None:
    with pytest.raises(CannotDecode, match=reason):
        values_of(SHOPS, None).read(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (Schema(1, "THRIFT", ""), "known: AVRO, JSON, PROTOBUF"),
        (Schema(1, "AVRO", "{"), "the schema is invalid"),
        (Schema(1, "AVRO", json.dumps(record(a="R"))), "contains itself"),
        (Schema(1, "AVRO", json.dumps(record(a="int", A="int"))), "the field 'A' cannot be a column"),
        (Schema(1, "JSON", '{"type": "object", "properties": {"a.b": {"type": "string"}}}'), "the field 'a.b' cannot"),
        (Schema(1, "PROTOBUF", "message Flight {}"), "format=serialized"),
    ],
)
def test_a_schema_without_columns_is_refused(schema: Schema, reason: str) -> None:
    with pytest.raises(CannotDecode, match=reason):
        values_of(schema, None)


def test_columns_get_new_fields_and_wider_types() -> None:
    old = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("x", pa.float64())]))), ("c", pa.decimal128(5, 2))])
    new = pa.struct(
        [
            ("c", pa.decimal128(9, 2)),
            ("a", pa.int64()),
            ("b", pa.list_(pa.struct([("x", pa.float32()), ("y", pa.string())]))),
            ("d", pa.map_(pa.string(), pa.int32())),
        ]
    )
    both = merged("v", old, new)
    assert str(both) == (
        "struct<a: int64, b: list<item: struct<x: double, y: string>>, c: decimal128(9, 2), d: map<string, int32>>"
    )
    for each in (old, new):
        check_readable("v", each, both)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            pa.struct([("a", pa.int64())]),
            pa.struct([("a", pa.string())]),
            "v.a is string by the schema, and int64 in the",
        ),
        (pa.list_(pa.int64()), pa.list_(pa.float64()), r"v\[\] is double by the schema, and int64 in the table"),
        (pa.struct([("a", pa.int64())]), pa.struct([("A", pa.int64())]), "v.A differs from v.a in its case only"),
        (pa.decimal128(9, 2), pa.decimal128(9, 3), r"v is decimal128\(9, 3\) by the schema, and decimal128\(9, 2\)"),
        (pa.string(), pa.struct([("a", pa.int64())]), "v is struct<a: int64> by the schema, and string in the table"),
    ],
)
def test_an_incompatible_change_names_the_field_and_both_types(old: pa.DataType, new: pa.DataType, words: str) -> None:
    with pytest.raises(IncompatibleColumns, match=words):
        merged("v", old, new)


def test_a_wider_value_is_not_readable_into_a_narrow_column() -> None:
    with pytest.raises(IncompatibleColumns, match=r"v\.a is int64 by the schema, and int32 in the table"):
        check_readable("v", pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int32())]))

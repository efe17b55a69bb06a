"""Types of columns for decoded values, in Arrow, and how they change with a schema.

All columns may be null, so a schema with a new field adds a column. What has no type in tables, as a union of several
types, is text in JSON.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from barnabas_registry.content import CannotDecode, as_json

Convert = Callable[[Any], Any]


class IncompatibleColumns(Exception):
    """The error that a column has another type than a schema wants; the message names the field and both types."""


class Column(NamedTuple):
    """The type of a column, and the function that turns a decoded value, never None, into a value of that type."""

    type: pa.DataType
    convert: Convert


def merged(path: str, old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """Return the type that has the fields of both, each in its wider type.

    Raises IncompatibleColumns, with the path of the field, if a field cannot have both types.
    """
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_merged_fields(path, old, new))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(merged(f"{path}[]", old.value_type, new.value_type))
    if pa.types.is_map(old) and pa.types.is_map(new):
        return pa.map_(pa.string(), merged(f"{path}[]", old.item_type, new.item_type))
    for one, other in ((old, new), (new, old)):
        if one == other or _widens(one, other):
            return other
    raise IncompatibleColumns(f"the field {path} is {new} by the schema, and {old} in the table")


def plain(kind: pa.DataType) -> pa.DataType:
    """Return a type as the functions of this module know it; tables and files name the same types in other ways."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def _merged_fields(path: str, old: pa.DataType, new: pa.DataType) -> list[pa.Field]:
    found = {each.name: each.type for each in old}
    alike = {name.lower(): name for name in found}
    for each in new:
        name = alike.setdefault(each.name.lower(), each.name)
        if name != each.name:
            raise IncompatibleColumns(f"the field {path}.{each.name} differs from {path}.{name} in its case only")
        found[name] = merged(f"{path}.{name}", found[name], each.type) if name in found else each.type
    return [pa.field(name, kind) for name, kind in found.items()]


def _widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """True if each value of one type is one of the other, and tables allow the change."""
    if pa.types.is_decimal128(narrow) and pa.types.is_decimal128(wide):
        return bool(narrow.scale == wide.scale and narrow.precision <= wide.precision)
    return (narrow, wide) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def check_readable(path: str, written: pa.DataType, column: pa.DataType) -> None:
    """Raise IncompatibleColumns if values of a schema cannot be those of a column, in any field that both have."""
    if pa.types.is_struct(written) and pa.types.is_struct(column):
        known = {each.name: each.type for each in column}
        for each in written:
            if each.name in known:
                check_readable(f"{path}.{each.name}", each.type, known[each.name])
    elif pa.types.is_list(written) and pa.types.is_list(column):
        check_readable(f"{path}[]", written.value_type, column.value_type)
    elif pa.types.is_map(written) and pa.types.is_map(column):
        check_readable(f"{path}[]", written.item_type, column.item_type)
    elif written != column and not _widens(written, column):
        raise IncompatibleColumns(f"the field {path} is {written} by the schema, and {column} in the table")


def same(value: Any) -> Any:
    """Return the value as it is."""
    return value


def in_json(value: Any) -> str:
    """Return the value as text in JSON."""
    return as_json(value).decode()


TEXT_IN_JSON: Final = Column(pa.string(), in_json)


def optional(column: Column) -> Convert:
    """Return a function that also takes None."""
    if column.convert is same:
        return same
    return lambda value: None if value is None else column.convert(value)


def list_of(item: Column) -> Column:
    """Return a column of lists."""
    convert = optional(item)
    return Column(pa.list_(item.type), same if convert is same else lambda values: [convert(each) for each in values])


def map_of(item: Column) -> Column:
    """Return a column of maps, whose keys are text."""
    convert = optional(item)
    kind = pa.map_(pa.string(), item.type)
    return Column(kind, lambda values: [(str(key), convert(each)) for key, each in values.items()])


def record_of(fields: Mapping[str, Column]) -> Column | None:
    """Return a column with these fields, or None if there are none: files of tables have no empty records."""
    if not fields:
        return None
    alike: dict[str, str] = {}
    for name in fields:
        if not name or "." in name or alike.setdefault(name.lower(), name) != name:
            raise CannotDecode(f"the field {name!r} cannot be a column: it has a dot, or differs only in its case")
    kind = pa.struct([pa.field(name, each.type) for name, each in fields.items()])
    converts = {name: optional(each) for name, each in fields.items()}
    if all(each is same for each in converts.values()):
        return Column(kind, same)
    return Column(kind, lambda value: {name: convert(value.get(name)) for name, convert in converts.items()})

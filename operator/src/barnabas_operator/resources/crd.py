"""The CustomResourceDefinitions of the resources: their schema is read from the types, the one definition.

`python -m barnabas_operator.resources.crd DIRECTORY ...` writes the files that people and the chart apply, with the
ClusterRoles that belong to them.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import NODEFAULT, UNSET, inspect

from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_roles import cluster_roles
from barnabas_operator.resources.crd_rules import (
    COLUMNS,
    LIST_KEYS,
    LIST_RULES,
    NAMES,
    NOT_FILLED_IN,
    ROOT_RULES,
    RULES,
    SCALE,
)
from barnabas_operator.resources.field_words import with_words
from barnabas_operator.resources.object_meta import GROUP, VERSION
from barnabas_operator.resources.topic import Topic
from barnabas_operator.resources.yaml_text import yaml_text

Json = dict[str, Any]
ENTRIES_MAX: Final = 256
TEXT_MAX: Final = 4_096
FREE: Final[Json] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
FREE_VALUE: Final[Json] = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}


class Version(NamedTuple):
    """Of several that are served the API server keeps one. All have the same schema: it converts by the name alone."""

    name: str
    is_stored: bool = True


VERSIONS: Final = (Version(VERSION),)
"""The one that the operator speaks comes first: the chart's webhook asks for it."""


def crd_of(kind: type[Cluster] | type[Topic], versions: Sequence[Version] = VERSIONS) -> Json:
    """The whole definition of one resource."""
    names = NAMES[kind]
    root = schema_of(inspect.type_info(kind))
    for given in ("apiVersion", "kind", "metadata"):
        del root["properties"][given]
    root["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    root["required"] = ["spec"] if kind is Topic else []
    root["x-kubernetes-validations"] = ROOT_RULES[kind]
    alike = {
        "served": True,
        "additionalPrinterColumns": COLUMNS[kind],
        "subresources": {"status": {}, **({"scale": SCALE} if kind is Topic else {})},
        "schema": {"openAPIV3Schema": root},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names,
            "versions": [{"name": each.name, "storage": each.is_stored, **alike} for each in versions],
        },
    }


def schema_of(kind: inspect.Type) -> Json:
    """A structural schema (OpenAPI v3) of what a field may hold."""
    return _SCHEMAS[type(kind)](kind)


def _metadata(kind: inspect.Type) -> Json:
    assert isinstance(kind, inspect.Metadata)
    said = kind.extra_json_schema or {}
    schema = schema_of(kind.type)
    return {"description": said["description"]} | {**schema, **said} if "description" in said else schema


def _struct(kind: inspect.Type) -> Json:
    assert isinstance(kind, inspect.StructType)
    required = [field.encode_name for field in kind.fields if field.required]
    schema: Json = {"type": "object", "properties": {field.encode_name: _field(field) for field in kind.fields}}
    if kind.cls.__doc__:
        schema = {"description": kind.cls.__doc__.split("\n\n")[0].replace("\n", " "), **schema}
    if required:
        schema["required"] = required
    if kind.cls in RULES:
        schema["x-kubernetes-validations"] = RULES[kind.cls]
    return schema


def _field(field: inspect.Field) -> Json:
    schema = schema_of(field.type)
    default = _plain_default(field)
    return with_words(schema if default is UNSET else {**schema, "default": default})


def _plain_default(field: inspect.Field) -> Any:
    """What the API server fills in; a part that is left out is filled in with its own defaults."""
    value = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    if value in (NODEFAULT, None, "", (), {}):
        return UNSET
    if isinstance(value, tuple):
        return [_whole(each) for each in value]
    if not isinstance(value, msgspec.Struct):
        return value
    if type(value) in NOT_FILLED_IN:
        return UNSET
    filled_in = (_plain_default(each) for each in _fields_of(type(value)))
    return {} if any(each is not UNSET for each in filled_in) else UNSET


def _fields_of(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _whole(value: msgspec.Struct) -> Json:
    """Also what is as its type has it."""
    fields = ((field.encode_name, getattr(value, field.name)) for field in msgspec.structs.fields(value))
    return {name: item for name, item in fields if item not in (None, (), {}) and not isinstance(item, msgspec.Struct)}


def _dict(kind: inspect.Type) -> Json:
    assert isinstance(kind, inspect.DictType)
    if isinstance(kind.value_type, inspect.AnyType):
        return dict(FREE)
    return {"type": "object", "additionalProperties": schema_of(kind.value_type), "maxProperties": ENTRIES_MAX}


def _list(kind: inspect.Type) -> Json:
    assert isinstance(kind, inspect.VarTupleType)
    item = kind.item_type
    schema: Json = {"type": "array", "items": schema_of(item), "maxItems": kind.max_length or ENTRIES_MAX}
    if kind.min_length is not None:
        schema["minItems"] = kind.min_length
    if isinstance(item, inspect.StructType) and item.cls in LIST_KEYS:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [LIST_KEYS[item.cls]]}
        if item.cls in LIST_RULES:
            schema["x-kubernetes-validations"] = LIST_RULES[item.cls]
    return schema


def _union(kind: inspect.Type) -> Json:
    """Either a value or none at all, a quantity, or any plain value."""
    assert isinstance(kind, inspect.UnionType)
    choices = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
    if {type(each) for each in choices} == {inspect.IntType, inspect.StrType}:
        bounds = (item for each in choices for item in schema_of(each).items())
        either = {name: bound for name, bound in bounds if name not in ("type", "pattern")}  # `RULES` say it in words.
        return {"x-kubernetes-int-or-string": True, **either}
    return schema_of(choices[0]) if len(choices) == 1 else dict(FREE_VALUE)


def _integer(kind: inspect.Type) -> Json:
    assert isinstance(kind, inspect.IntType)
    bounds = {"minimum": kind.ge, "maximum": kind.le}
    return {"type": "integer", **{name: bound for name, bound in bounds.items() if bound is not None}}


def _string(kind: inspect.Type) -> Json:
    assert isinstance(kind, inspect.StrType)
    said = {"minLength": kind.min_length, "maxLength": kind.max_length or TEXT_MAX, "pattern": kind.pattern}
    return {"type": "string", **{name: value for name, value in said.items() if value is not None}}


def _literal(kind: inspect.Type) -> Json:
    assert isinstance(kind, inspect.LiteralType)
    return {"type": "string", "enum": list(kind.values)}


_SCHEMAS: Final[Mapping[type[inspect.Type], Callable[[inspect.Type], Json]]] = {
    inspect.Metadata: _metadata,
    inspect.StructType: _struct,
    inspect.DictType: _dict,
    inspect.VarTupleType: _list,
    inspect.UnionType: _union,
    inspect.IntType: _integer,
    inspect.StrType: _string,
    inspect.LiteralType: _literal,
    inspect.BoolType: lambda _: {"type": "boolean"},
    inspect.FloatType: lambda _: {"type": "number"},
    inspect.AnyType: lambda _: dict(FREE_VALUE),
}


def main() -> None:
    """Writes a file for each object into each directory."""
    for made in (crd_of(Cluster), crd_of(Topic), *cluster_roles()):
        for directory in sys.argv[1:]:
            file = Path(directory) / f"{made['metadata']['name']}.yaml"
            file.write_text(yaml_text(made), encoding="utf-8")
            print(file)


if __name__ == "__main__":
    main()

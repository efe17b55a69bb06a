"""Generates the CustomResourceDefinitions from the types of the resources.

`python -m barnabas_operator.resources.crd DIRECTORY` writes the files of CRDs and ClusterRoles.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import NODEFAULT, UNSET, inspect

from barnabas_operator.resources.cluster_kind import KINDS, cluster_roles
from barnabas_operator.resources.kind import GROUP, VERSION, Condition, JsonObject, Kind, column, with_words
from barnabas_operator.resources.schema_check import ENTRIES_MAX
from barnabas_operator.resources.yaml_documents import yaml_text

TEXT_MAX: Final = 4_096
RULES: Final = "x-kubernetes-validations"
FREE: Final[JsonObject] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
FREE_VALUE: Final[JsonObject] = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}


class Version(NamedTuple):
    """A served version of the API. All versions have the same schema, so that no conversion webhook is needed."""

    name: str
    is_stored: bool = True


VERSIONS: Final = (Version(VERSION),)
"""The served versions. The first must be the operator's own, because the chart's webhook uses the first version."""


_READY: Final = '.status.conditions[?(@.type=="Ready")]'
FIRST_COLUMNS: Final = (
    column("Ready", "string", f"{_READY}.status"),
    column("Reason", "string", f"{_READY}.reason", wide=True),
)
LAST_COLUMNS: Final = (
    column("Age", "date", ".metadata.creationTimestamp"),
    column("Message", "string", f"{_READY}.message"),
)


def crd_of(kind: Kind, versions: Sequence[Version] = VERSIONS) -> JsonObject:
    """Return the CustomResourceDefinition of a kind."""
    root = schema_of(kind, inspect.type_info(kind.resource))
    for given in ("apiVersion", "kind", "metadata"):
        del root["properties"][given]
    root["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    root["required"] = [
        field for field in root["required"] if field != "metadata"
    ]  # The schema need not require `metadata`, because the API server does.
    alike = {
        "served": True,
        "additionalPrinterColumns": [*_first_columns(kind), *kind.columns, *LAST_COLUMNS],
        "subresources": {"status": {}, **_scale(kind)},
        "schema": {"openAPIV3Schema": root},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": _names(kind),
            "versions": [{"name": each.name, "storage": each.is_stored, **alike} for each in versions],
        },
    }


def _first_columns(kind: Kind) -> Sequence[JsonObject]:
    return FIRST_COLUMNS if kind.has_ready_column else FIRST_COLUMNS[1:]


def _names(kind: Kind) -> JsonObject:
    return {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
        "shortNames": [kind.short_name],
        "categories": ["barnabas"],
    }


def _scale(kind: Kind) -> JsonObject:
    if kind.scaled is None:
        return {}
    spec, status = ".".join(kind.scaled.in_spec), ".".join(kind.scaled.in_status)
    return {"scale": {"specReplicasPath": f".spec.{spec}", "statusReplicasPath": f".status.{status}"}}


def schema_of(of: Kind, kind: inspect.Type) -> JsonObject:
    """Return the structural schema (OpenAPI v3) of a type in a resource."""
    return _SCHEMAS[type(kind)](of, kind)


def _metadata(of: Kind, kind: inspect.Type) -> JsonObject:
    assert isinstance(kind, inspect.Metadata)
    extra = kind.extra_json_schema or {}
    schema = schema_of(of, kind.type)
    words, pattern = (kind.extra or {}).get("allowed"), schema.get("pattern")
    if words is not None and pattern is not None:
        # The API server would quote the pattern, which is hard to read, instead of the words.
        del schema["pattern"]
        schema[RULES] = [{"rule": f"self.matches(r'{pattern}')", "message": f"allowed: {words}"}]
    return {"description": extra["description"]} | {**schema, **extra} if "description" in extra else schema


def _struct(of: Kind, kind: inspect.Type) -> JsonObject:
    assert isinstance(kind, inspect.StructType)
    required = [field.encode_name for field in kind.fields if field.required]
    schema: JsonObject = {
        "type": "object",
        "properties": {field.encode_name: _field(of, field) for field in kind.fields},
    }
    if kind.cls.__doc__:
        schema = {"description": kind.cls.__doc__.split("\n\n")[0].replace("\n", " "), **schema}
    if required:
        schema["required"] = required
    if kind.cls in of.rules:
        schema[RULES] = of.rules[kind.cls]
    return schema


def _field(of: Kind, field: inspect.Field) -> JsonObject:
    schema = schema_of(of, field.type)
    default = _plain_default(of, field)
    return with_words(schema if default is UNSET else {**schema, "default": default})


def _plain_default(of: Kind, field: inspect.Field) -> Any:
    """Return the default of a field in the CRD; UNSET if it has none.

    The default of a mapping is {}, to which the API server then adds the defaults of its fields.
    """
    value = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    if value in (NODEFAULT, None, "", (), {}):
        return UNSET
    if of.not_filled_in & {type(each) for each in (value if isinstance(value, tuple) else (value,))}:
        return UNSET
    if isinstance(value, tuple):
        return [_whole(each) for each in value]
    if not isinstance(value, msgspec.Struct):
        return value
    filled_in = (_plain_default(of, each) for each in _fields_of(type(value)))
    return {} if any(each is not UNSET for each in filled_in) else UNSET


def _fields_of(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _whole(value: msgspec.Struct) -> JsonObject:
    """Return an element of a default list as JSON, without the element's fields that are empty or are structs."""
    fields = ((field.encode_name, getattr(value, field.name)) for field in msgspec.structs.fields(value))
    return {name: item for name, item in fields if item not in (None, (), {}) and not isinstance(item, msgspec.Struct)}


def _dict(of: Kind, kind: inspect.Type) -> JsonObject:
    assert isinstance(kind, inspect.DictType)
    if isinstance(kind.value_type, inspect.AnyType):
        return dict(FREE)
    return {"type": "object", "additionalProperties": schema_of(of, kind.value_type), "maxProperties": ENTRIES_MAX}


def _list(of: Kind, kind: inspect.Type) -> JsonObject:
    assert isinstance(kind, inspect.VarTupleType)
    item = kind.item_type
    schema: JsonObject = {"type": "array", "items": schema_of(of, item), "maxItems": kind.max_length or ENTRIES_MAX}
    if kind.min_length is not None:
        schema["minItems"] = kind.min_length
    keys = {Condition: "type", **of.list_keys}
    if isinstance(item, inspect.StructType) and item.cls in keys:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [keys[item.cls]]}
        if item.cls in of.list_rules:
            schema[RULES] = of.list_rules[item.cls]
    return schema


def _union(of: Kind, kind: inspect.Type) -> JsonObject:
    """Return the schema of a union: an integer or a string (a Kubernetes quantity), an optional type, or any value."""
    assert isinstance(kind, inspect.UnionType)
    choices = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
    if {type(each) for each in choices} == {inspect.IntType, inspect.StrType}:
        bounds = (item for each in choices for item in schema_of(of, each).items())
        either = {
            name: bound for name, bound in bounds if name not in ("type", "pattern")
        }  # The pattern is left out, because a rule in `Kind.rules` has a more readable message.
        return {"x-kubernetes-int-or-string": True, **either}
    return schema_of(of, choices[0]) if len(choices) == 1 else dict(FREE_VALUE)


def _integer(_of: Kind, kind: inspect.Type) -> JsonObject:
    assert isinstance(kind, inspect.IntType)
    bounds = {"minimum": kind.ge, "maximum": kind.le}
    return {"type": "integer", **{name: bound for name, bound in bounds.items() if bound is not None}}


def _string(_of: Kind, kind: inspect.Type) -> JsonObject:
    assert isinstance(kind, inspect.StrType)
    bounds = {"minLength": kind.min_length, "maxLength": kind.max_length or TEXT_MAX, "pattern": kind.pattern}
    return {"type": "string", **{name: value for name, value in bounds.items() if value is not None}}


def _literal(_of: Kind, kind: inspect.Type) -> JsonObject:
    assert isinstance(kind, inspect.LiteralType)
    return {"type": "string", "enum": list(kind.values)}


_SCHEMAS: Final[Mapping[type[inspect.Type], Callable[[Kind, inspect.Type], JsonObject]]] = {
    inspect.Metadata: _metadata,
    inspect.StructType: _struct,
    inspect.DictType: _dict,
    inspect.VarTupleType: _list,
    inspect.UnionType: _union,
    inspect.IntType: _integer,
    inspect.StrType: _string,
    inspect.LiteralType: _literal,
    inspect.BoolType: lambda _of, _: {"type": "boolean"},
    inspect.FloatType: lambda _of, _: {"type": "number"},
    inspect.AnyType: lambda _of, _: dict(FREE_VALUE),
}


def definitions() -> list[JsonObject]:
    """Return the CRDs of all kinds, and the ClusterRoles."""
    return [*map(crd_of, KINDS.values()), *cluster_roles()]


def main() -> None:
    """Write a YAML file for each CRD and ClusterRole into the directory that the argument names."""
    for made in definitions():
        file = Path(sys.argv[1]) / f"{made['metadata']['name']}.yaml"
        file.write_text(yaml_text(made), encoding="utf-8")
        print(file)


if __name__ == "__main__":
    main()

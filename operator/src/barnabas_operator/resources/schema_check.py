"""Checks a parsed object against the type of a resource (`msgspec.inspect`), and reports all errors.

Manifests and objects of the API server are read with the same checks.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import chain, islice
from math import isfinite
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from barnabas_operator.resources.kind import Json, ObjectMeta, Resource

SHOWN_CHARACTERS_MAX: Final = 60
ENTRIES_MAX: Final = 256
"""The maximum number of entries of a mapping in a spec, and of a list without a maximum of its own."""
FREE_VALUES_MAX: Final = 10_000
"""The maximum number of values in a part of a spec that may have any fields, such as the template of a pod."""
FINDINGS_MAX: Final = 20
"""The number of errors that are reported, because each costs time and lengthens the message."""


class Finding(NamedTuple):
    """An error in a resource. `at_key` is true if a key is wrong, false if the value of a key is wrong."""

    path: tuple[str | int, ...]
    message: str
    at_key: bool = False


Path = tuple[str | int, ...]
TypeCheck = Callable[[inspect.Type, object, Path], Iterator[Finding]]


def findings(expected: inspect.Type, value: object, path: Path = ()) -> Iterator[Finding]:
    """Yield all errors of `value` against the type `expected`, in the order of the document."""
    return CHECKS[type(expected)](expected, value, path)


def dotted(path: Path) -> str:
    """Return a path as text, such as `spec.storage.volumes[0].id` or `spec.config["retention.ms"]`."""
    return "".join(map(_step, path)).lstrip(".") or "the document"


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f'["{step}"]' if "." in step else f".{step}"


def shown(value: object) -> str:
    """Return the value with its YAML type; for a mapping, a list or null, return only the type.

    A long value is shortened.
    """
    name = next(
        (name for kind, name in YAML_NAMES.items() if isinstance(value, kind)), "a type that JSON does not have"
    )
    if value is None or isinstance(value, Mapping | list):
        return name
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = text[:SHOWN_CHARACTERS_MAX] + "..."
    return f"{text!r} ({name})" if isinstance(value, str) else f"{text} ({name})"


def allowed(expected: inspect.Type) -> str:
    """Return the allowed values of a type as text."""
    return ALLOWED[type(expected)](expected)


def _wrong(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
    yield Finding(path, f"{dotted(path)} is {shown(value)}; allowed: {allowed(expected)}{_meant(expected, value)}")


def _meant(expected: inspect.Type, value: object) -> str:
    """Return a hint with the value that was probably meant; empty if no such value is known."""
    if isinstance(expected, inspect.Metadata):
        hint = (expected.extra or {}).get("hint")
        return str(hint(value)) if hint is not None else ""
    return _as_text(expected, value)


def _as_text(expected: inspect.Type, value: object) -> str:
    """Return a hint to write the list `value` as a comma-separated string.

    The hint is empty if `value` is not a list of strings, or if the field takes no plain string.
    """
    takes_text = isinstance(expected, inspect.UnionType) and any(map(_is_plain_text, expected.types))
    if not takes_text or not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        return ""
    return f'; write "{",".join(value)}"'


def _is_plain_text(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.StrType) and kind.pattern is None


def _check_metadata(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
    assert isinstance(expected, inspect.Metadata)
    inner = findings(expected.type, value, path)
    first = next(inner, None)
    if first is None:
        return iter(())
    if _is_described(expected.type):
        return _wrong(expected, value, path)  # Report the description, because the pattern is hard to read.
    return chain((first,), inner)


def _is_described(kind: inspect.Type) -> bool:
    """True if an error must quote the field's description, because the pattern for strings is hard to read."""
    if isinstance(kind, inspect.UnionType):
        return any(isinstance(each, inspect.IntType) for each in kind.types) and any(map(_is_described, kind.types))
    return isinstance(kind, inspect.StrType) and kind.pattern is not None


def _check_struct(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
    assert isinstance(expected, inspect.StructType)
    if not isinstance(value, Mapping):
        yield from _wrong(expected, value, path)
        return
    fields = {field.encode_name: field for field in expected.fields}
    unknown = 0
    for key, item in value.items():
        field = fields.get(str(key))
        if field is not None:
            yield from findings(field.type, item, (*path, str(key)))
        elif (unknown := unknown + 1) <= FINDINGS_MAX:
            yield Finding((*path, str(key)), _unknown_field(str(key), path, fields), at_key=True)
    for name, field in fields.items():
        if field.required and name not in value:
            yield Finding(path, f"{dotted((*path, name))} is missing; allowed: {allowed(field.type)}")


def _unknown_field(key: str, path: Path, fields: Mapping[str, inspect.Field]) -> str:
    near = get_close_matches(key, fields, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{dotted((*path, key))} is not a field{hint}; allowed: {', '.join(fields)}"


def _check_list(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
    assert isinstance(expected, inspect.VarTupleType)
    at_most = _entries_max(expected)
    if not isinstance(value, list):
        yield from _wrong(expected, value, path)
        return
    if len(value) < (expected.min_length or 0) or len(value) > at_most:
        yield Finding(path, f"{dotted(path)} has {len(value)} entries; allowed: {allowed(expected)}")
        return
    for index, item in enumerate(value):
        yield from findings(expected.item_type, item, (*path, index))


def _entries_max(expected: inspect.VarTupleType) -> int:
    return ENTRIES_MAX if expected.max_length is None else expected.max_length


def _check_dict(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
    assert isinstance(expected, inspect.DictType)
    if not isinstance(value, Mapping):
        yield from _wrong(expected, value, path)
        return
    excess = _excess(expected, value) if path[:1] == ("spec",) else ""  # Kubernetes bounds the metadata.
    if excess:
        yield Finding(path, f"{dotted(path)} has {excess}")
        return
    for key, item in value.items():
        if not isinstance(key, str):
            yield Finding((*path, key), f"{dotted(path)} has the key {shown(key)}; allowed: a string", at_key=True)
        else:
            yield from findings(expected.value_type, item, (*path, key))


def _excess(expected: inspect.DictType, value: Mapping[object, object]) -> str:
    """Return what a mapping has too much of, and what is allowed; empty if it has not."""
    if not isinstance(expected.value_type, inspect.AnyType):
        many = len(value)
        return f"{many} entries; allowed: at most {ENTRIES_MAX}" if many > ENTRIES_MAX else ""
    is_large = next(islice(_values(value), FREE_VALUES_MAX, None), None) is not None
    return f"more than {FREE_VALUES_MAX} values; allowed: at most as many" if is_large else ""


def _values(value: object) -> Iterator[bool]:
    """Yield True for the value, and for each value inside it."""
    waiting: list[Iterator[object]] = [iter((value,))]
    while waiting:
        for each in waiting[-1]:
            yield True
            if isinstance(each, Mapping | list):
                waiting.append(iter(each.values() if isinstance(each, Mapping) else each))
                break
        else:
            waiting.pop()


def _check_union(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
    assert isinstance(expected, inspect.UnionType)
    alternatives = [tuple(islice(findings(choice, value, path), FINDINGS_MAX)) for choice in expected.types]
    if not all(alternatives):
        return iter(())
    # The alternative with the deepest error is probably the alternative that the user meant.
    deepest = max(alternatives, key=lambda found: max(len(finding.path) for finding in found))
    return iter(deepest) if len(deepest[0].path) > len(path) else _wrong(expected, value, path)


def _check_integer(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
    assert isinstance(expected, inspect.IntType)
    right = isinstance(value, int) and not isinstance(value, bool)
    if not right or not _within(int(str(value)), expected):
        yield from _wrong(expected, value, path)


def _within(value: int, expected: inspect.IntType) -> bool:
    return (expected.ge is None or value >= expected.ge) and (expected.le is None or value <= expected.le)


def _check_string(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
    assert isinstance(expected, inspect.StrType)
    if not isinstance(value, str) or not _fits(value, expected):
        yield from _wrong(expected, value, path)


def _fits(value: str, expected: inspect.StrType) -> bool:
    long_enough = len(value) >= (expected.min_length or 0)
    short_enough = expected.max_length is None or len(value) <= expected.max_length
    matches = expected.pattern is None or re.fullmatch(expected.pattern, value) is not None
    return long_enough and short_enough and matches


def _check_literal(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
    assert isinstance(expected, inspect.LiteralType)
    if value not in expected.values:
        yield from _wrong(expected, value, path)


def _check_number(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        yield from _wrong(expected, value, path)


def _check_kind(kind: type) -> TypeCheck:
    def check(expected: inspect.Type, value: object, path: Path) -> Iterator[Finding]:
        if not isinstance(value, kind):
            yield from _wrong(expected, value, path)

    return check


def _allowed_metadata(expected: inspect.Type) -> str:
    assert isinstance(expected, inspect.Metadata)
    inner, extra = expected.type, expected.extra or {}
    if "allowed" in extra:
        return str(extra["allowed"])
    if _is_described(inner) and "description" in (expected.extra_json_schema or {}):
        return str((expected.extra_json_schema or {})["description"])
    return allowed(inner)


def _allowed_integer(expected: inspect.Type) -> str:
    assert isinstance(expected, inspect.IntType)
    if expected.le is not None:
        return f"an integer from {expected.ge or 0} to {expected.le}"
    return f"an integer of at least {expected.ge}" if expected.ge is not None else "an integer"


def _allowed_list(expected: inspect.Type) -> str:
    assert isinstance(expected, inspect.VarTupleType)
    at_least, at_most = expected.min_length or 0, _entries_max(expected)
    return f"a list of {at_least} entries" if at_least == at_most else f"a list of {at_least} to {at_most} entries"


def _allowed_union(expected: inspect.Type) -> str:
    assert isinstance(expected, inspect.UnionType)
    named = [allowed(choice) for choice in expected.types if not isinstance(choice, inspect.NoneType)]
    return " or ".join(named)


def _allowed_literal(expected: inspect.Type) -> str:
    assert isinstance(expected, inspect.LiteralType)
    return " or ".join(str(value) for value in expected.values)


YAML_NAMES: Final[Mapping[type, str]] = {
    type(None): "empty",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    Mapping: "a mapping",
    Sequence: "a list",
}

CHECKS: Final[Mapping[type[inspect.Type], TypeCheck]] = {
    inspect.Metadata: _check_metadata,
    inspect.StructType: _check_struct,
    inspect.VarTupleType: _check_list,
    inspect.DictType: _check_dict,
    inspect.UnionType: _check_union,
    inspect.IntType: _check_integer,
    inspect.StrType: _check_string,
    inspect.LiteralType: _check_literal,
    inspect.FloatType: _check_number,
    inspect.BoolType: _check_kind(bool),
    inspect.NoneType: _check_kind(type(None)),
    inspect.AnyType: lambda _expected, _value, _path: iter(()),
}

ALLOWED: Final[Mapping[type[inspect.Type], Callable[[inspect.Type], str]]] = {
    inspect.Metadata: _allowed_metadata,
    inspect.StructType: lambda _: "a mapping",
    inspect.VarTupleType: _allowed_list,
    inspect.DictType: lambda _: "a mapping",
    inspect.UnionType: _allowed_union,
    inspect.IntType: _allowed_integer,
    inspect.StrType: lambda _: "a string",
    inspect.LiteralType: _allowed_literal,
    inspect.FloatType: lambda _: "a finite number",
    inspect.BoolType: lambda _: "true or false",
    inspect.NoneType: lambda _: "nothing",
    inspect.AnyType: lambda _: "any value",
}


ResourceT = TypeVar("ResourceT", bound=Resource)

_META_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(ObjectMeta))


class InvalidResource(ValueError):
    """The error that an object is invalid; the message names each wrong field, its value, and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def resource_of(kind: type[ResourceT], body: Json) -> ResourceT:
    """Return the typed resource. An invalid status is ignored. Raises InvalidResource if another field is invalid."""
    plain = _plain(kind, body)
    found = [finding.message for finding in islice(findings(_described(kind), plain), FINDINGS_MAX + 1)]
    if found:
        raise InvalidResource(found if len(found) <= FINDINGS_MAX else [*found[:FINDINGS_MAX], "and more"])
    try:
        return msgspec.convert({**plain, "status": body.get("status")}, kind)
    except msgspec.ValidationError:
        return msgspec.convert(plain, kind)


def readable_part(kind: type[ResourceT], body: Json) -> ResourceT:
    """Return the resource with the valid fields of its spec; all other fields have their defaults, or are None.

    The operator needs some fields even of an invalid resource, such as the deletion policy.
    """
    plain, types = _plain(kind, body), {field.name: field.type for field in msgspec.structs.fields(kind)}
    wrong = {finding.path[1] for finding in findings(_described(kind), plain) if _is_in_spec(finding)}
    spec = {name: value for name, value in (plain["spec"] or {}).items() if name not in wrong}
    meta = msgspec.convert(plain["metadata"], ObjectMeta)
    try:
        status = msgspec.convert(body.get("status"), types["status"])
    except msgspec.ValidationError:
        status = None
    return kind(kind=kind.__name__, metadata=meta, spec=_part_of(types["spec"], spec), status=status)


def _is_in_spec(finding: Finding) -> bool:
    return len(finding.path) > 1 and finding.path[0] == "spec"


def _part_of(kind: type[msgspec.Struct], given: Json) -> msgspec.Struct:
    fields = msgspec.structs.fields(kind)
    there = {
        each.name: msgspec.convert(given[each.encode_name], each.type) for each in fields if each.encode_name in given
    }
    return kind(**{each.name: None for each in fields if each.required} | there)


def _plain(kind: type[Resource], body: Json) -> dict[str, Any]:
    meta = {name: value for name, value in body["metadata"].items() if name in _META_FIELDS}
    head = {"apiVersion": body.get("apiVersion"), "kind": body.get("kind")}
    return {**head, "metadata": meta, "spec": kind.declared_spec(body)}


@cache
def _described(kind: type[Resource]) -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(kind)


def status_json(resource: Resource) -> dict[str, Any]:
    """Return the status as JSON, in the form in which the API server returns it."""
    status: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(resource.status)) if resource.status else {}
    return status

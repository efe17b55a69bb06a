"""Kafka's message definitions as typed trees of fields.

The definitions are Apache Kafka's JSON files, in `barnabas_core.definitions` (docs/decisions/libraries.md).
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas_core import definitions

Json = Mapping[str, Any]

_COMMENT_LINE: Final = re.compile(r"(?m)^\s*//.*$")
_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")
_VERSION_MAX: Final = 32767
_OPERATIONS: Final = "authorized_operations"
"""The suffix in the names of fields that have ACL operations.

These fields are of the type int32 in Kafka's definitions, but they are sets in the message classes.
"""
_WITH_OPERATIONS: Final = frozenset(
    {
        "MetadataResponse",
        "DescribeGroupsResponse",
        "DescribeClusterResponse",
        "ConsumerGroupDescribeResponse",
        "ShareGroupDescribeResponse",
    }
)


class UnknownMessage(LookupError):
    """The error for a message without a definition."""


class Versions(NamedTuple):
    """A range of versions, inclusive at both ends; empty if `last` is below `first`."""

    first: int
    last: int

    def hold(self, version: int) -> bool:
        """True if the range includes the version."""
        return self.first <= version <= self.last


_EMPTY: Final = ""
_NO_VERSIONS: Final = Versions(0, -1)


class Field(NamedTuple):
    """A field of a struct. `kind` is `struct`, `operations` (a set of ACL operations), or a primitive type's name."""

    name: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    scalar_default: int | float | str | bytes | None
    struct: "Struct | None"

    @property
    def default(self) -> object:
        """The default value of the field; an array gets a new list at each call."""
        return [] if self.is_array and self.scalar_default is not None else self.scalar_default

    def is_tagged(self, version: int) -> bool:
        """True if the field is a tagged field in this version."""
        return self.tagged.hold(version)

    def is_in_line(self, version: int) -> bool:
        """True if this version has the field, but not as a tagged field."""
        return self.versions.hold(version) and not self.tagged.hold(version)


class Struct(NamedTuple):
    """The fields of a message or nested struct, in order; `path` also names the enclosing structs."""

    path: str
    fields: tuple[Field, ...]

    @property
    def name(self) -> str:
        """The name of the struct: the last part of its path."""
        return self.path.rpartition(".")[2]


class Message(NamedTuple):
    """A message: its struct, and its flexible versions (KIP-482)."""

    struct: Struct
    flexible: Versions


@functools.cache
def message(name: str) -> Message:
    """Return the definition of a message such as `MetadataRequest`. Raises UnknownMessage."""
    definition = json.loads(_COMMENT_LINE.sub("", _read_definition(name)))
    common = {common["name"]: common["fields"] for common in definition.get("commonStructs", ())}
    fields = _parse_fields(definition["fields"], name, common)
    return Message(Struct(name, fields), _versions(definition["flexibleVersions"]))


def _read_definition(name: str) -> str:
    try:
        with open(f"{definitions.__path__[0]}/{name}.json", encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise UnknownMessage(f"there is no definition of the message {name}") from None


def _parse_fields(definitions: Sequence[Json], path: str, common: Mapping[str, Sequence[Json]]) -> tuple[Field, ...]:
    return tuple(_parse_field(definition, path, common) for definition in definitions)


def _parse_field(definition: Json, path: str, common: Mapping[str, Sequence[Json]]) -> Field:
    type_name = str(definition["type"])
    is_array = type_name.startswith("[]")
    kind = type_name.removeprefix("[]")
    nested = definition.get("fields", common.get(kind))
    struct_path = f"{path}.{kind}"
    name = _WORD_START.sub("_", definition["name"]).lower()
    if name.endswith(_OPERATIONS) and path.partition(".")[0] in _WITH_OPERATIONS:
        name, kind = _OPERATIONS, "operations"
    return Field(
        name=name,
        kind=kind if nested is None else "struct",
        is_array=is_array,
        versions=_versions(definition["versions"]),
        nullable=_versions(definition.get("nullableVersions")),
        tagged=_versions(definition.get("taggedVersions")),
        tag=definition.get("tag", -1),
        scalar_default=_EMPTY
        if is_array and "default" not in definition
        else _default(kind, definition.get("default")),
        struct=None if nested is None else Struct(struct_path, _parse_fields(nested, struct_path, common)),
    )


def _versions(text: str | None) -> Versions:
    """Return the version range of a text such as `3`, `0-4` or `5+`; `none` or a missing text gives an empty range."""
    if text is None or text == "none":
        return _NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _VERSION_MAX)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


def _default(kind: str, text: object) -> int | float | str | bytes | None:
    """Return the default of a field as a Python value; the uuid of all zeros is None."""
    if text == "null" or kind not in _PLAIN_DEFAULTS:
        return None
    plain = _PLAIN_DEFAULTS[kind]
    if text is None or text == "":
        return plain
    if isinstance(plain, bool):
        return str(text).lower() == "true"
    return int(str(text), 0) if isinstance(plain, int) else str(text)


_PLAIN_DEFAULTS: Final[Mapping[str, int | float | str | bytes]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": b"",
}

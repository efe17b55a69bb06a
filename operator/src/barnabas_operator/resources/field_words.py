"""Adds defaults and bounds to the descriptions of fields, because `kubectl explain` does not show them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from barnabas_operator.resources.json_types import Json


def with_words(schema: Json) -> dict[str, Any]:
    """Return the schema of a field, with the default and the bounds added to the field's description."""
    bounds = bounds_words(schema, "allowed: ") if "enum" not in schema else ""  # kubectl shows enum values itself.
    said = "; ".join(filter(None, (default_words(schema, "default: "), bounds)))
    description = schema.get("description", "").rstrip(".")
    if not said:
        return dict(schema)
    return {**schema, "description": f"{description}. {said[0].upper()}{said[1:]}." if description else said}


def default_words(schema: Json, prefix: str = "") -> str:
    """Return the default of a field as text; empty if it has no default, or the default is an empty mapping."""
    default = schema.get("default")
    return f"{prefix}{plain_words(default)}" if default not in (None, {}) else ""


def bounds_words(schema: Json, prefix: str = "") -> str:
    """Return the values of an enum, or the bounds of a number or list, as text; empty if the schema has neither."""
    if "enum" in schema:
        return f"{prefix}{', '.join(schema['enum'])}"
    low, high = _bounds(schema)
    if low is not None and high is not None:
        return f"{prefix}{low} to {high}{_unit(schema)}"
    return f"{prefix}{low} or more{_unit(schema)}" if low is not None else ""


def _bounds(schema: Json) -> tuple[int | None, int | None]:
    """Return the minimum and maximum of an integer, or of a list's length. A list without `minItems` has no bounds."""
    if schema.get("type") == "integer":
        return schema.get("minimum"), schema.get("maximum")
    return (schema["minItems"], schema["maxItems"]) if "minItems" in schema else (None, None)


def _unit(schema: Json) -> str:
    return " entries" if schema.get("type") == "array" else ""


def plain_words(value: object) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(_entries(value))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(plain_words, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def _entries(value: Json) -> Iterator[str]:
    return (f"{name}: {plain_words(item)}" for name, item in value.items())

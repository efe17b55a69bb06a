"""JSON that anybody may have written: annotations, and what a process says when it ends."""

from typing import TypeVar

from msgspec import DecodeError, json

T = TypeVar("T")


def foreign_json(text: str | bytes, kind: type[T]) -> T | None:
    """Decode JSON of this type; None if it is not JSON of that type, or is nested too deeply."""
    try:
        return json.decode(text, type=kind)
    except (DecodeError, RecursionError):
        return None

"""Decodes untrusted JSON, such as annotations and termination messages."""

from typing import TypeVar

from msgspec import DecodeError, json

T = TypeVar("T")


def foreign_json(text: str | bytes, kind: type[T]) -> T | None:
    """Return the decoded JSON; None if the text is not JSON of this type, or is nested too deeply."""
    try:
        return json.decode(text, type=kind)
    except (DecodeError, RecursionError):
        return None

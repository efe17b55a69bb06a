"""A YAML writer for plain values, which is much faster than a general YAML library."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from barnabas_operator.resources.resource import Resource

# A text that matches PLAIN and is not in WORDS is a string even without quotes, in both YAML 1.1 and 1.2.
PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def resources_text(resources: Iterable[Resource]) -> str:
    """Return the resources as YAML, with a document for each."""
    return "---\n".join(_document(resource) for resource in resources)


def _document(resource: Resource) -> str:
    return yaml_text(msgspec.to_builtins(resource))


def yaml_text(value: object) -> str:
    """Return a mapping or list of plain values as YAML."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: object) -> Iterator[str]:
    """Yield the lines of a mapping or list that is not empty."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(f"{_scalar(key)}:", item)
    elif isinstance(value, list | tuple):
        for item in value:
            head, *others = _lines(item) if _nested(item) else (_scalar(item),)
            yield f"- {head}"
            yield from (f"  {line}" for line in others)


def _entry(head: str, value: object) -> Iterator[str]:
    if _nested(value):
        yield head
        yield from (f"  {line}" for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _nested(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(value)


def _scalar(value: object) -> str:
    """Return a value on one line: a string without quotes if that is safe, and otherwise JSON, which is valid YAML."""
    if not isinstance(value, str):
        return json.dumps(value)
    if PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in '"\\':
        return f"\\{character}"
    if 0x20 <= code < 0x7F:
        return character
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"

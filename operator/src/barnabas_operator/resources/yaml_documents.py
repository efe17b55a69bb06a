"""Parses YAML text into documents of plain values, with the line and column of each field."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedBase
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scalarbool import ScalarBoolean

from barnabas_operator.resources.schema_check import Path

MARKER: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
DIRECTIVE: Final = re.compile(r"^%", re.MULTILINE)


class Place(NamedTuple):
    """A place in a manifest. Lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def within(self, file: str, first_line: int) -> "Place":
        """Return the place with its line counted from the beginning of `file` instead of the YAML document.

        The document begins at line `first_line` of the file.
        """
        return Place(file, self.line + first_line - 1, self.column)


class ManifestError(NamedTuple):
    """An error in a manifest."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML document: its plain values, and the parsed nodes, which contain the line and column of each field."""

    plain: object
    nodes: object = field(repr=False)

    def place(self, path: Path = (), *, at_key: bool = False) -> Place:
        """Return the line and column of the value at `path`, or of the value's key if `at_key` is true.

        If the position is unknown, return the line and column of the nearest enclosing value.
        """
        line, column = _position(self.nodes)
        node = self.nodes
        for depth, step in enumerate(path, start=1):
            inner = _entry(node, step)
            # An empty value has no position of its own, so that the position of its key is returned.
            here = depth == len(path) and (at_key or inner is None)
            position = _entry_position(node, step, at_key=here)
            if position is not None:
                line, column = position
            node = inner
        return Place("", line + 1, column + 1)


def yaml_parts(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line number and the text of each document. Text with directives (`%`) is not split."""
    starts = [0] if DIRECTIVE.search(text) else sorted({0, *(match.start() for match in MARKER.finditer(text))})
    line = 1
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield line, text[start:end]
        line += text.count("\n", start, end)


def yaml_documents(text: str) -> Iterator[Document | ManifestError]:
    """Yield each document that is not empty. Invalid YAML yields an error and ends the iteration."""
    try:
        for nodes in YAML(typ="rt").load_all(text):
            if nodes is not None:
                yield Document(_plain(nodes), nodes)
    except MarkedYAMLError as error:
        yield ManifestError(_marked_place(error), f"the text is not YAML: {error.problem or error}")
    except ReaderError as error:
        before = text[: error.position].split("\n")
        place = Place("", len(before), len(before[-1]) + 1)
        yield ManifestError(place, f"the text is not YAML: the character {chr(error.character)!r} is not allowed")


def _marked_place(error: MarkedYAMLError) -> Place:
    mark = error.problem_mark or error.context_mark
    return Place("", mark.line + 1, mark.column + 1) if mark else Place("", 1, 1)


def _plain(value: object) -> object:
    """Return the value with plain scalars instead of ruamel's scalar types."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: object) -> object:
    if isinstance(value, ScalarBoolean):
        return bool(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, float) else value


def _entry(node: object, step: str | int) -> object:
    if isinstance(node, Mapping):
        return node.get(step)
    return node[step] if isinstance(node, list) and isinstance(step, int) else None


def _position(node: object) -> tuple[int, int]:
    if not isinstance(node, CommentedBase) or node.lc.line is None:
        return 0, 0
    return node.lc.line, node.lc.col


def _entry_position(node: object, step: str | int, *, at_key: bool) -> tuple[int, int] | None:
    """Return line and column, from 0, of an entry of a mapping or list; None if the entry comes from a merge key."""
    entries = node.lc.data if isinstance(node, CommentedBase) else None
    entry = (entries or {}).get(step)
    if entry is None:
        return None
    if len(entry) == 4 and not at_key:
        return entry[2], entry[3]
    return entry[0], entry[1]

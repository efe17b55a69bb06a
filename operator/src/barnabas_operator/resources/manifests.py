"""Manifest files: YAML text to resources, strictly.

Every error says file, line, column, field, value and what is allowed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeVar

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedBase
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scalarbool import ScalarBoolean

from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_meta import API_VERSION
from barnabas_operator.resources.resource import Resource
from barnabas_operator.resources.schema_check import Finding, Path, dotted, findings, shown

ResourceT = TypeVar("ResourceT", bound=Resource)

MARKER: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
DIRECTIVE: Final = re.compile(r"^%", re.MULTILINE)
PARTS_KEPT_MAX: Final = 4096  # About 10 KB each.


class Place(NamedTuple):
    """Where something stands in a manifest; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def within(self, file: str, first_line: int) -> "Place":
        """The same place, counted from the beginning of the file that its text begins at this line of."""
        return Place(file, self.line + first_line - 1, self.column)


class ManifestError(NamedTuple):
    """One thing wrong in a manifest."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass(frozen=True, slots=True)
class Declared:
    """A resource, and the document that it was read from."""

    resource: Resource
    file: str
    first_line: int
    document: object = field(repr=False)

    def place(self, path: Path = (), *, at_key: bool = False) -> Place:
        """Where a field stands; where the document begins, without one."""
        return _place(self.document, Finding(path, "", at_key)).within(self.file, self.first_line)


class Manifests(NamedTuple):
    """What some files declare, and everything that is wrong with them. Use the resources only when nothing is."""

    declared: tuple[Declared, ...]
    errors: tuple[ManifestError, ...]

    def of_kind(self, kind: type[ResourceT]) -> tuple[ResourceT, ...]:
        """The resources of one kind, in the files' order."""
        return tuple(item.resource for item in self.declared if isinstance(item.resource, kind))


def parse_manifests(texts: Mapping[str, str]) -> Manifests:
    """The resources of several files, given as text by file name."""
    parsed = [item for file, text in texts.items() for item in _parse_file(file, text)]
    declared = tuple(item for item in parsed if isinstance(item, Declared))
    errors = [item for item in parsed if isinstance(item, ManifestError)]
    return Manifests(declared, (*errors, *_duplicates(declared)))


def _parse_file(file: str, text: str) -> Iterator[Declared | ManifestError]:
    empty = True
    for first_line, part in _parts(text):
        for item in _parse_part(part):
            empty = False
            if isinstance(item, ManifestError):
                yield ManifestError(item.place.within(file, first_line), item.message)
            else:
                yield replace(item, file=file, first_line=first_line)
    if empty:
        yield ManifestError(Place(file, 1, 1), f"holds no resource; allowed: {' or '.join(_kinds())}")


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """The file cut before each document marker, each part with its first line; in one piece where it has directives."""
    starts = [0] if DIRECTIVE.search(text) else sorted({0, *(match.start() for match in MARKER.finditer(text))})
    line = 1
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield line, text[start:end]
        line += text.count("\n", start, end)


@lru_cache(maxsize=PARTS_KEPT_MAX)
def _parse_part(text: str) -> tuple[Declared | ManifestError, ...]:
    """What some YAML text declares. Cached, because an edit leaves most documents of a directory as they were."""
    items: list[Declared | ManifestError] = []
    try:
        for document in YAML(typ="rt").load_all(text):
            if document is not None:
                items.extend(_parse_document(document))
    except MarkedYAMLError as error:
        items.append(ManifestError(_marked_place(error), f"not YAML: {error.problem or error}"))
    except ReaderError as error:
        before = text[: error.position].split("\n")
        place = Place("", len(before), len(before[-1]) + 1)
        items.append(ManifestError(place, f"not YAML: the character {chr(error.character)!r} is not allowed"))
    return tuple(items)


def _marked_place(error: MarkedYAMLError) -> Place:
    mark = error.problem_mark or error.context_mark
    return Place("", mark.line + 1, mark.column + 1) if mark else Place("", 1, 1)


def _parse_document(document: object) -> Iterator[Declared | ManifestError]:
    plain = _plain(document)
    found = tuple(_document_findings(plain))
    for finding in found:
        yield ManifestError(_place(document, finding), finding.message)
    if not found and isinstance(plain, Mapping):
        yield Declared(msgspec.convert(plain, KINDS[plain["kind"]].resource), "", 1, document)


def _plain(value: object) -> object:
    """The document without ruamel's own kinds of scalars, which remember how they were written."""
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


def _document_findings(document: object) -> Iterator[Finding]:
    if not isinstance(document, Mapping):
        yield Finding(
            (), f"the document is {shown(document)}; allowed: a mapping with apiVersion, kind, metadata, spec"
        )
        return
    for name, choices in (("apiVersion", (API_VERSION,)), ("kind", _kinds())):
        if name not in document:
            yield Finding((), f"{name} is missing; allowed: {' or '.join(choices)}")
        elif document[name] not in choices:
            yield Finding((name,), f"{name} is {shown(document[name])}; allowed: {' or '.join(choices)}")
            return  # The fields of another kind of thing are not ours to judge.
    if document.get("kind") in _kinds():
        yield from findings(_type_of(document["kind"]), document)


def _kinds() -> tuple[str, ...]:
    """Those that may be in a file."""
    return tuple(name for name, kind in KINDS.items() if kind.is_in_files)


@cache
def _type_of(kind: str) -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(KINDS[kind].resource)


def _place(document: object, finding: Finding) -> Place:
    """Where the finding's value (or its key) stands; the nearest thing around it where YAML keeps no place."""
    line, column = _position(document)
    node = document
    for depth, step in enumerate(finding.path, start=1):
        inner = _entry(node, step)
        at_key = depth == len(finding.path) and (finding.at_key or inner is None)  # Nothing stands where a value lacks.
        position = _entry_position(node, step, at_key=at_key)
        if position is not None:
            line, column = position
        node = inner
    return Place("", line + 1, column + 1)


def _entry(node: object, step: str | int) -> object:
    if isinstance(node, Mapping):
        return node.get(step)
    return node[step] if isinstance(node, list) and isinstance(step, int) else None


def _position(node: object) -> tuple[int, int]:
    if not isinstance(node, CommentedBase) or node.lc.line is None:
        return 0, 0
    return node.lc.line, node.lc.col


def _entry_position(node: object, step: str | int, *, at_key: bool) -> tuple[int, int] | None:
    """Line and column, from 0, of one entry of a mapping or list; None where a merge key brought it in."""
    entries = node.lc.data if isinstance(node, CommentedBase) else None
    entry = (entries or {}).get(step)
    if entry is None:
        return None
    if len(entry) == 4 and not at_key:
        return entry[2], entry[3]
    return entry[0], entry[1]


def _duplicates(declared: tuple[Declared, ...]) -> Iterator[ManifestError]:
    first: dict[tuple[str, str | None, str], Place] = {}
    path: Path = ("metadata", "name")
    for item in declared:
        meta, kind, place = item.resource.metadata, item.resource.kind, item.place(path)
        key = (kind, meta.namespace, meta.name)
        if key in first:
            yield ManifestError(place, f"{dotted(path)} is {meta.name!r}, but {first[key]} declares that {kind}")
        first.setdefault(key, place)

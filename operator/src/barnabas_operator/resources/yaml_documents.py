"""Parses YAML text into documents of plain values, with the line and column of each field."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeVar

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedBase
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scalarbool import ScalarBoolean

from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.kind import API_VERSION, Resource
from barnabas_operator.resources.schema_check import Finding, Path, dotted, findings, shown

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


ResourceT = TypeVar("ResourceT", bound=Resource)

PARTS_KEPT_MAX: Final = 4096  # A parsed document needs about 10 KB, so the cache needs about 40 MB at most.


@dataclass(frozen=True, slots=True)
class Declared:
    """A resource, with the file and document from which it was read."""

    resource: Resource
    file: str
    first_line: int
    document: Document = field(repr=False)

    def place(self, path: Path = (), *, at_key: bool = False) -> Place:
        """Return the file, line and column of the field at `path`, or of the YAML document if `path` is empty."""
        return self.document.place(path, at_key=at_key).within(self.file, self.first_line)


class Manifests(NamedTuple):
    """The resources in the given files, and all errors. The resources may be used only if there are no errors."""

    declared: tuple[Declared, ...]
    errors: tuple[ManifestError, ...]

    def of_kind(self, kind: type[ResourceT]) -> tuple[ResourceT, ...]:
        """Return the resources of one kind, in the order of the files."""
        return tuple(item.resource for item in self.declared if isinstance(item.resource, kind))


def parse_manifests(texts: Mapping[str, str]) -> Manifests:
    """Return the resources and all errors of several files; `texts` has the text of each file by its name."""
    parsed = [item for file, text in texts.items() for item in _parse_file(file, text)]
    declared = tuple(item for item in parsed if isinstance(item, Declared))
    errors = [item for item in parsed if isinstance(item, ManifestError)]
    return Manifests(declared, (*errors, *_duplicates(declared)))


def _parse_file(file: str, text: str) -> Iterator[Declared | ManifestError]:
    empty = True
    for first_line, part in yaml_parts(text):
        for item in _parse_part(part):
            empty = False
            if isinstance(item, ManifestError):
                yield ManifestError(item.place.within(file, first_line), item.message)
            else:
                yield replace(item, file=file, first_line=first_line)
    if empty:
        yield ManifestError(
            Place(file, 1, 1), f"the file has no resource; add a resource of the kind {' or '.join(_kinds())}"
        )


@lru_cache(maxsize=PARTS_KEPT_MAX)
def _parse_part(text: str) -> tuple[Declared | ManifestError, ...]:
    """Parse YAML text. The results are cached, because after an edit most documents are unchanged."""
    items: list[Declared | ManifestError] = []
    for document in yaml_documents(text):
        items.extend([document] if isinstance(document, ManifestError) else _parse_document(document))
    return tuple(items)


def _parse_document(document: Document) -> Iterator[Declared | ManifestError]:
    plain = document.plain
    found = tuple(_document_findings(plain))
    for finding in found:
        yield ManifestError(document.place(finding.path, at_key=finding.at_key), finding.message)
    if not found and isinstance(plain, Mapping):
        yield Declared(msgspec.convert(plain, KINDS[plain["kind"]].resource), "", 1, document)


def _document_findings(document: object) -> Iterator[Finding]:
    if not isinstance(document, Mapping):
        yield Finding(
            (),
            f"the document is {shown(document)}; allowed: a mapping with the keys apiVersion, kind, metadata and spec",
        )
        return
    for name, choices in (("apiVersion", (API_VERSION,)), ("kind", _kinds())):
        if name not in document:
            yield Finding((), f"{name} is missing; allowed: {' or '.join(choices)}")
        elif document[name] not in choices:
            yield Finding((name,), f"{name} is {shown(document[name])}; allowed: {' or '.join(choices)}")
            return  # Without a known kind, the fields cannot be checked.
    if document.get("kind") in _kinds():
        yield from findings(_type_of(document["kind"]), document)


def _kinds() -> tuple[str, ...]:
    """Return the kinds that are allowed in manifest files."""
    return tuple(name for name, kind in KINDS.items() if kind.is_in_files)


@cache
def _type_of(kind: str) -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(KINDS[kind].resource)


def _duplicates(declared: tuple[Declared, ...]) -> Iterator[ManifestError]:
    first: dict[tuple[str, str | None, str], Place] = {}
    path: Path = ("metadata", "name")
    for item in declared:
        meta, kind, place = item.resource.metadata, item.resource.kind, item.place(path)
        key = (kind, meta.namespace, meta.name)
        if key in first:
            yield ManifestError(
                place, f"{dotted(path)} is {meta.name!r}, but {first[key]} already declares this {kind}"
            )
        first.setdefault(key, place)


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
            yield from _entry_text(f"{_scalar(key)}:", item)
    elif isinstance(value, list | tuple):
        for item in value:
            head, *others = _lines(item) if _nested(item) else (_scalar(item),)
            yield f"- {head}"
            yield from (f"  {line}" for line in others)


def _entry_text(head: str, value: object) -> Iterator[str]:
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

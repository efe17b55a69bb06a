"""Reads resources from manifest files. Each error names file, line, column, field, value and what is allowed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeVar

import msgspec

from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_meta import API_VERSION
from barnabas_operator.resources.resource import Resource
from barnabas_operator.resources.schema_check import Finding, Path, dotted, findings, shown
from barnabas_operator.resources.yaml_documents import Document, ManifestError, Place, yaml_documents, yaml_parts

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

"""A Strimzi manifest during its conversion. Each field that no converter reads becomes a note."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec

from barnabas_operator.planning.strimzi.reasons import reason
from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.schema_check import Path, dotted, findings, shown
from barnabas_operator.resources.yaml_documents import Document, Place

T = TypeVar("T")


class Remark(NamedTuple):
    """A note or an error about a manifest, with its file and line."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


@dataclass(slots=True)
class Source:
    """One Strimzi resource, the file and the YAML document that contain it, and notes and errors about its fields."""

    kind: str
    name: str
    file: str
    first_line: int
    document: Document
    root: Path = ()
    """The path of the resource in its document; the path is empty unless the resource is an item of a List."""
    notes: list[Remark] = field(default_factory=list)
    errors: list[Remark] = field(default_factory=list)
    sections: list["Section"] = field(default_factory=list)

    def note(self, path: Path, message: str) -> None:
        """Add a note about a field without a counterpart; the message says what to do instead."""
        self.notes.append(self._remark(path, f"{dotted(path)} {message}", at_key=True))

    def hint(self, message: str) -> None:
        """Add a note about the whole resource."""
        self.notes.append(self._remark((), message))

    def error(self, path: Path, message: str) -> None:
        """Add an error, which makes the conversion fail; the message names the field."""
        remark = self._remark(path, message)
        if remark not in self.errors:  # A converter may read a field twice.
            self.errors.append(remark)

    def _remark(self, path: Path, message: str, *, at_key: bool = False) -> Remark:
        place = self.document.place((*self.root, *path), at_key=at_key).within(self.file, self.first_line)
        return Remark(place, f"{self.kind} {self.name}: {message}")

    def note_unread(self) -> None:
        """Add a note about each field that the conversion has not read and therefore leaves out."""
        for section in self.sections:
            for name in section.unread():
                path = (*section.path, name)
                self.note(path, f"is left out: {reason(self.kind, path)}")


class Section:
    """A mapping in a manifest, with a record of the fields that have been read."""

    def __init__(self, source: Source, fields: Mapping[str, Any], path: Path) -> None:
        self.source = source
        self.path = path
        self._fields = fields
        self._read: set[str] = set()
        source.sections.append(self)

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    @property
    def is_empty(self) -> bool:
        """True if the manifest does not contain the section, or contains it without fields."""
        return not self._fields

    def take(self, name: str, kind: type[T]) -> T | None:
        """Return the value of a field, which then counts as read, or None if it is missing.

        If its type is wrong, add an error and return None.
        """
        self._read.add(name)
        value = self._fields.get(name)
        if value is None:
            return None
        if kind is float and type(value) is int:
            value = float(value)  # YAML parses a number without a decimal point as int.
        wrong = tuple(findings(msgspec.inspect.type_info(kind), value, (*self.path, name)))
        for finding in wrong:
            self.source.error(finding.path, finding.message)
        return None if wrong else msgspec.convert(value, kind)

    def need(self, name: str, kind: type[T], example: str) -> T | None:
        """Return the value of a required field, and add an error if the field is missing."""
        if name not in self:
            path = (*self.path, name)
            self.source.error(self.path, f"{dotted(path)} is missing; allowed: {example}")
        return self.take(name, kind)

    def section(self, name: str) -> "Section":
        """Return a `Section` for the mapping in a field. The section is empty if the field is missing."""
        return Section(self.source, self.take(name, dict[str, Any]) or {}, (*self.path, name))

    def sections(self, name: str) -> "list[Section]":
        """Return a `Section` for each mapping in a field that holds a list."""
        items = enumerate(self.take(name, tuple[dict[str, Any], ...]) or ())
        return [Section(self.source, item, (*self.path, name, index)) for index, item in items]

    def choice(self, name: str, choices: Mapping[str, T], default: str | None = None) -> T | None:
        """Return the entry of `choices` for the value of a field, or None; add an error if the value is not allowed."""
        word = self.take(name, str) or default
        if word is None or word in choices:
            return choices[word] if word is not None else None
        path = (*self.path, name)
        self.source.error(path, f"{dotted(path)} is {shown(word)}; allowed: {' or '.join(choices)}")
        return None

    def note(self, name: str, message: str) -> None:
        """Add a note about a field; the conversion then does not note the field as left out."""
        self._read.add(name)
        self.source.note((*self.path, name), message)

    def skip(self, *names: str) -> None:
        """Mark fields without an equivalent as read, so that the conversion does not note them as left out."""
        self._read.update(names)

    def leave_out(self, why: str) -> None:
        """Mark all fields as read, and add a note that says why the section is left out."""
        self.skip_rest()
        self.source.note(self.path, f"is left out: {why}")

    def skip_rest(self) -> None:
        """Mark all remaining fields as read, so that the conversion does not note them as left out."""
        self._read.update(self._fields)

    def unread(self) -> Iterator[str]:
        """Yield the names of the fields that have a value and that the conversion has not read."""
        return (name for name, value in self._fields.items() if name not in self._read and value is not None)


def given(**fields: object) -> JsonObject:
    """Return the fields that are neither None nor empty; tuples become lists."""
    there = {name: value for name, value in fields.items() if value is not None and value not in ({}, (), [])}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in there.items()}

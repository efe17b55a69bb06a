"""The decoding of messages, with readers that are built once per message and version from the definitions.

Input may be hostile: the size of decoded data is limited by the size of the request, and invalid bytes raise
MalformedRequest. A large message is decoded in steps (`steps_decoder`), so that the event loop can do other work in
between.
"""

import functools
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from barnabas_broker.wire import schema
from barnabas_broker.wire.framing import (
    BROKEN_BYTES,
    HANDLED_BYTES,
    ONE_BYTE_VARINT,
    MalformedRequest,
    elements_max_of,
    read_unsigned_varint,
)
from barnabas_broker.wire.messages import struct_class
from barnabas_core.loop_turns import STEP_ELEMENTS, InSteps

STRING_BYTES_MAX: Final = 32767
"""The maximum length of a string in bytes, as in Kafka."""

FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
}
"""The `struct` format characters of the primitive types with a fixed size."""

MALFORMED: Final = (*BROKEN_BYTES, MalformedRequest)

NO_OPERATIONS: Final = 1 << 31
"""The int32 that stands for None: the client did not request the authorized operations."""


class Body:
    """The bytes of a message, and the position of the next byte to read."""

    __slots__ = ("data", "elements_left", "elements_max", "kept", "position")

    def __init__(self, data: memoryview, elements_max: int, kept: list[Any] | None = None) -> None:
        self.data = data
        self.kept: list[Any] = [] if kept is None else kept
        """The elements of arrays that are decoded in steps; they are freed in steps, too."""
        self.position = 0
        self.elements_left = self.elements_max = elements_max

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes. Raises MalformedRequest if fewer are left."""
        start = self.position
        end = start + size
        if end > len(self.data):
            raise MalformedRequest(
                f"{size} bytes are needed at position {start}, but only {len(self.data) - start} are left"
            )
        self.position = end
        return self.data[start:end]

    def varint(self) -> int:
        """Return the next unsigned varint; most varints have one byte."""
        position = self.position
        value = self.data[position]
        if value < ONE_BYTE_VARINT:
            self.position = position + 1
        else:
            value, self.position = read_unsigned_varint(self.data, position)
        return value

    def take_elements(self, count: int, name: str) -> None:
        """Subtract the number of elements of an array from `elements_left`, before the elements are decoded.

        Raises MalformedRequest if the request is too short for the elements, or has too many elements in all arrays.
        """
        self.elements_left -= count
        if count > len(self.data) - self.position or self.elements_left < 0:
            raise MalformedRequest(
                f"{name} declares {count} elements; the request is too short for them, or its arrays declare more than "
                f"{self.elements_max} elements in total"
            )


Read = Callable[[Body], Any]
ReadSteps = Callable[[Body], InSteps[Any]]
Fill = Callable[[Body, Any], InSteps[None] | None]
"""A function that reads a field, or several, into a message: at once, or in the steps that it returns."""


@functools.cache
def decoder(name: str, version: int) -> Callable[[memoryview], Any]:
    """Return the decoder of a message, which raises MalformedRequest for invalid bytes.

    The decoder ignores bytes after the message, as Kafka does: librdkafka 2.16 sends three extra bytes when it requests
    the metadata of all topics in a flexible version.
    """
    definition = schema.message(name)
    read = _struct_reader(definition.struct, version, definition.flexible.hold(version))
    elements_max = elements_max_of(name)

    def decode(data: memoryview) -> Any:
        body = Body(data, elements_max)
        try:
            return read(body)
        except MALFORMED as error:
            raise _named(error, name, version, body) from None

    return decode


@functools.cache
def steps_decoder(name: str, version: int) -> Callable[[memoryview, list[Any]], InSteps[Any]]:
    """Return a decoder like that of `decoder`, which decodes a few elements of arrays in each step.

    The decoder adds each element also to a list, so that the elements can be freed in steps.
    """
    definition = schema.message(name)
    read = _struct_steps(definition.struct, version, definition.flexible.hold(version))
    elements_max = elements_max_of(name)

    def decode(data: memoryview, kept: list[Any]) -> InSteps[Any]:
        body = Body(data, elements_max, kept)
        try:
            return (yield from read(body))
        except MALFORMED as error:
            raise _named(error, name, version, body) from None

    return decode


def _named(error: Exception, name: str, version: int, body: Body) -> MalformedRequest:
    place = "" if isinstance(error, MalformedRequest) else f" at byte {body.position}"
    return MalformedRequest(f"{name} v{version}{place}: {error}")


def _struct_reader(struct_: schema.Struct, version: int, flexible: bool) -> Read:
    make = struct_class(struct_)
    fills = tuple(_fills(struct_, version, flexible))

    def read(body: Body) -> Any:
        made = make()
        for fill in fills:
            fill(body, made)
        return made

    return read


def _struct_steps(struct_: schema.Struct, version: int, flexible: bool) -> ReadSteps:
    make = struct_class(struct_)
    fills = tuple(_fills(struct_, version, flexible, in_steps=True))

    def read(body: Body) -> InSteps[Any]:
        made = make()
        for fill in fills:
            steps = fill(body, made)
            if steps is not None:
                yield from steps
        return made

    return read


def has_elements(field: schema.Field) -> bool:
    """True if the field is an array of elements that are handled one by one, unlike numbers."""
    return field.is_array and field.kind not in FIXED_FORMATS


def _fills(struct_: schema.Struct, version: int, flexible: bool, *, in_steps: bool = False) -> Iterable[Fill]:
    """Yield the functions that read a struct: one for adjacent fields of fixed size, one for each other field."""
    fields = [field for field in struct_.fields if field.is_in_line(version)]
    for is_fixed, neighbours in groupby(fields, lambda field: field.kind in FIXED_FORMATS and not field.is_array):
        if is_fixed:
            yield _run_fill(list(neighbours))
        else:
            for field in neighbours:
                if in_steps and has_elements(field):
                    yield _array_steps(field, version, flexible)
                else:
                    yield _single_fill(field.name, _field_reader(field, version, flexible))
    if flexible:
        yield _tags_fill(struct_, version)


def _run_fill(fields: Sequence[schema.Field]) -> Fill:
    names = tuple(field.name for field in fields)
    packed = struct.Struct(">" + "".join(FIXED_FORMATS[field.kind] for field in fields))
    unpack_from, size = packed.unpack_from, packed.size

    def fill(body: Body, made: Any) -> None:
        for name, value in zip(names, unpack_from(body.data, body.position), strict=True):
            setattr(made, name, value)
        body.position += size

    return fill


def _single_fill(name: str, read: Read) -> Fill:
    def fill(body: Body, made: Any) -> None:
        setattr(made, name, read(body))

    return fill


def _tags_fill(struct_: schema.Struct, version: int) -> Fill:
    """Return a function that reads tagged fields, and ignores fields with unknown tags."""
    known = {
        field.tag: (field.name, _field_reader(field, version, flexible=True, is_tagged=True))
        for field in struct_.fields
        if field.is_tagged(version)
    }

    def fill(body: Body, made: Any) -> None:
        count = body.varint()
        if not count:
            return
        body.take_elements(count, "tagged fields")
        for _ in range(count):
            tag, size = body.varint(), body.varint()
            end = body.position + size
            if tag not in known:
                body.take(size)
                continue
            name, read = known[tag]
            setattr(made, name, read(body))
            if body.position != end:
                raise MalformedRequest(
                    f"the tagged field {tag} ({name}) does not have its announced length of {size} bytes"
                )

    return fill


def _field_reader(field: schema.Field, version: int, flexible: bool, *, is_tagged: bool = False) -> Read:
    length = _compact_length if flexible else _plain_length
    nullable = field.nullable.hold(version)
    if field.is_array:
        return _array_reader(field, version, flexible, nullable)
    if field.struct is not None:
        read = _struct_reader(field.struct, version, flexible)
        return _nullable_struct_reader(read, null_max=0 if is_tagged else -1) if nullable else read
    if field.kind == "string":
        return _sized_reader(field.name, length if flexible else _short_length, nullable, STRING_BYTES_MAX, _text)
    if field.kind in ("bytes", "records"):
        return _sized_reader(field.name, length, nullable, 2**31 - 1, bytes)
    return _SPECIAL_READERS.get(field.kind) or _fixed_reader(field.kind)


def _array_reader(field: schema.Field, version: int, flexible: bool, nullable: bool) -> Read:
    name = field.name
    length = _compact_length if flexible else _plain_length
    plain = not field.struct and field.kind in FIXED_FORMATS
    element = field._replace(is_array=False, nullable=schema.Versions(0, -1))
    read_all = _numbers_reader(field.kind) if plain else _elements_reader(_field_reader(element, version, flexible))

    def read(body: Body) -> Any:
        count = length(body)
        if count < 0:
            return _null(name, nullable)
        body.take_elements(count, name)
        return read_all(body, count)

    return read


def _array_steps(field: schema.Field, version: int, flexible: bool) -> Fill:
    name, nullable = field.name, field.nullable.hold(version)
    length = _compact_length if flexible else _plain_length
    element = field._replace(is_array=False, nullable=schema.Versions(0, -1))
    is_nested = field.struct is not None and any(map(has_elements, field.struct.fields))
    read_one = _field_reader(element, version, flexible)
    read_nested = _struct_steps(field.struct, version, flexible) if field.struct is not None and is_nested else None

    def fill(body: Body, made: Any) -> InSteps[None]:
        count = length(body)
        if count < 0:
            _null(name, nullable)
            setattr(made, name, None)
            return
        body.take_elements(count, name)
        elements: list[Any] = []
        setattr(made, name, elements)
        for number in range(count):
            element = read_one(body) if read_nested is None else (yield from read_nested(body))
            elements.append(element)
            body.kept.append(element)
            if number % STEP_ELEMENTS == 0:
                yield STEP_ELEMENTS * HANDLED_BYTES

    return fill


def _numbers_reader(kind: str) -> Callable[[Body, int], list[Any]]:
    character = FIXED_FORMATS[kind]
    size = struct.calcsize(">" + character)

    def read(body: Body, count: int) -> list[Any]:
        return list(struct.unpack(f">{count}{character}", body.take(count * size)))

    return read


def _elements_reader(read_one: Read) -> Callable[[Body, int], list[Any]]:
    def read(body: Body, count: int) -> list[Any]:
        return [read_one(body) for _ in range(count)]

    return read


def _sized_reader(
    name: str, length: Callable[[Body], int], nullable: bool, size_max: int, make: Callable[[memoryview], Any]
) -> Read:
    def read(body: Body) -> Any:
        size = length(body)
        if size < 0:
            return _null(name, nullable)
        if size > size_max:
            raise MalformedRequest(f"{name} has {size} bytes; at most {size_max} are allowed")
        return make(body.take(size))

    return read


def _nullable_struct_reader(read_present: Read, null_max: int = -1) -> Read:
    """Return a reader of a struct or null, which is a negative int8, and 0 as a varint in a tagged field."""

    def read(body: Body) -> Any:
        return None if struct.unpack(">b", body.take(1))[0] <= null_max else read_present(body)

    return read


def _fixed_reader(kind: str) -> Read:
    packed = struct.Struct(">" + FIXED_FORMATS[kind])

    def read(body: Body) -> Any:
        return packed.unpack(body.take(packed.size))[0]

    return read


def _null(name: str, nullable: bool) -> None:
    if not nullable:
        raise MalformedRequest(f"{name} must not be null")


def _compact_length(body: Body) -> int:
    """Return the decoded length; -1 means null."""
    return body.varint() - 1


def _plain_length(body: Body) -> int:
    length: int = struct.unpack(">i", body.take(4))[0]
    return length


def _short_length(body: Body) -> int:
    length: int = struct.unpack(">h", body.take(2))[0]
    return length


def _text(data: memoryview) -> str:
    return str(data, "utf-8")


def _uuid(body: Body) -> uuid.UUID | None:
    raw = bytes(body.take(16))
    return uuid.UUID(bytes=raw) if any(raw) else None


def _operations(body: Body) -> set[int] | None:
    """Return the codes of the set bits, or None if the client did not ask for authorized operations."""
    bits = int.from_bytes(body.take(4))
    return None if bits == NO_OPERATIONS else {code for code in range(32) if bits >> code & 1}


_SPECIAL_READERS: Final[Mapping[str, Read]] = {"uuid": _uuid, "operations": _operations}

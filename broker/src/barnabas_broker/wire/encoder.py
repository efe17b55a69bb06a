"""The encoding of messages, with writers that are built once per message and version from the definitions.

Fields that a version does not have are left out. Tagged fields with their default values are left out, too, because
librdkafka before 2.2 does not skip unknown tagged fields correctly.

The conversion between messages and bytes for all APIs except Produce and Fetch. The message classes are in
`messages`. The codec of a message and version is built on first use, because most codecs are never used.
"""

import functools
import struct
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final

import msgspec

from barnabas_broker.wire import schema
from barnabas_broker.wire.decoder import (
    FIXED_FORMATS,
    NO_OPERATIONS,
    STRING_BYTES_MAX,
    decoder,
    has_elements,
    steps_decoder,
)
from barnabas_broker.wire.framing import API_SPECS, encode_unsigned_varint, write_count
from barnabas_broker.wire.messages import message_class
from barnabas_core.loop_turns import STEP_ELEMENTS, InSteps

Get = Callable[[Any], Any]
WriteField = Callable[[bytearray, Any], None]
WriteSteps = Callable[[bytearray, Any], InSteps[None] | None]
"""A function that appends an encoded value to a buffer: at once, or in the steps that it returns."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NOTHING_LEFT_OUT: Final = object()
_NO_ID: Final = bytes(16)
ERROR_MESSAGE: Final = "error_message"
"""The name of the fields whose values are cut to STRING_BYTES_MAX."""
SHOWN_CHARS_MAX: Final = 1000
"""The maximum length of a message's text in an UnencodableMessage."""
UNENCODABLE: Final = (TypeError, OverflowError, struct.error)
"""The errors of values that do not fit their fields."""


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """An already encoded element of an array; the garbage collector need not visit the very many of a response."""

    data: bytes

    def __len__(self) -> int:
        return len(self.data)


class UnencodableMessage(ValueError):
    """The error for a field whose value does not fit its type, because of a bug in the caller."""


@functools.cache
def encoder(name: str, version: int) -> WriteField:
    """Return a function that appends the encoded message to a buffer. The function raises UnencodableMessage."""
    definition = schema.message(name)
    return _struct_writer(definition.struct, version, definition.flexible.hold(version))


@functools.cache
def steps_encoder(name: str, version: int) -> Callable[[bytearray, Any], InSteps[None]]:
    """Return an encoder like that of `encoder`, which encodes a few elements of arrays in each step."""
    definition = schema.message(name)
    return _struct_steps(definition.struct, version, definition.flexible.hold(version))


@functools.cache
def element_encoder(name: str, path: tuple[str, ...], version: int) -> WriteField:
    """Return a function that encodes an element of an array in the message, and appends the bytes to a buffer.

    `path` has the names of the fields that lead to the array, such as ("topics", "partitions").
    """
    definition = schema.message(name)
    struct_ = definition.struct
    for step in path:
        (found,) = (field.struct for field in struct_.fields if field.name == step)
        assert found is not None
        struct_ = found
    return _struct_writer(struct_, version, definition.flexible.hold(version))


def _struct_writer(struct_: schema.Struct, version: int, flexible: bool) -> WriteField:
    steps = tuple(_steps(struct_, version, flexible))

    def write(out: bytearray, value: Any) -> None:
        try:
            for get, write_value in steps:
                write_value(out, get(value))
        except UNENCODABLE as error:
            raise _unencodable(struct_, version, error, value) from None

    return write


def _unencodable(struct_: schema.Struct, version: int, error: Exception, value: object) -> UnencodableMessage:
    shown = str(value)[:SHOWN_CHARS_MAX]
    return UnencodableMessage(f"{struct_.path} v{version} cannot be encoded: {error} in {shown}")


def _struct_steps(struct_: schema.Struct, version: int, flexible: bool) -> Callable[[bytearray, Any], InSteps[None]]:
    parts = tuple(_steps(struct_, version, flexible, in_steps=True))

    def write(out: bytearray, value: Any) -> InSteps[None]:
        try:
            for get, write_value in parts:
                steps = write_value(out, get(value))
                if steps is not None:
                    yield from steps
        except UNENCODABLE as error:
            raise _unencodable(struct_, version, error, value) from None

    return write


def _array_steps(field: schema.Field, version: int, flexible: bool) -> WriteSteps:
    element = field._replace(is_array=False, nullable=schema.Versions(0, -1))
    is_nested = field.struct is not None and any(map(has_elements, field.struct.fields))
    write_element = _field_writer(element, version, flexible)
    write_nested = _struct_steps(field.struct, version, flexible) if field.struct is not None and is_nested else None
    null = _field_writer(field, version, flexible)

    def write(out: bytearray, values: Collection[Any] | None) -> InSteps[None]:
        if values is None:
            null(out, values)
            return
        out += write_count(len(values), flexible=flexible)
        before = len(out)
        for number, value in enumerate(values):
            if value.__class__ is Encoded:
                out += value.data
            elif write_nested is None:
                write_element(out, value)
            else:
                yield from write_nested(out, value)
            if number % STEP_ELEMENTS == 0:
                yield len(out) - before
                before = len(out)

    return write


def _steps(
    struct_: schema.Struct, version: int, flexible: bool, *, in_steps: bool = False
) -> Iterable[tuple[Get, WriteSteps]]:
    """Yield pairs of functions: the first gets values from a struct, the second appends the encoded values to a buffer.

    There is one pair for each series of adjacent fields of fixed size, one for all tagged fields, and one for each
    other field.
    """
    fields = [field for field in struct_.fields if field.is_in_line(version)]
    for is_fixed, neighbours in groupby(fields, lambda field: field.kind in FIXED_FORMATS and not field.is_array):
        if is_fixed:
            yield _run_step(list(neighbours))
        else:
            for field in neighbours:
                writer = _array_steps if in_steps and has_elements(field) else _field_writer
                yield attrgetter(field.name), writer(field, version, flexible)
    if flexible:
        yield (lambda value: value), _tags_writer(struct_, version)


def _run_step(fields: Sequence[schema.Field]) -> tuple[Get, WriteField]:
    if len(fields) == 1:
        return attrgetter(fields[0].name), _fixed_writer(fields[0].kind)
    pack = struct.Struct(">" + "".join(FIXED_FORMATS[field.kind] for field in fields)).pack

    def write(out: bytearray, values: Sequence[Any]) -> None:
        out += pack(*values)

    return attrgetter(*(field.name for field in fields)), write


def _tags_writer(struct_: schema.Struct, version: int) -> WriteField:
    """Return a writer of the tagged fields that differ from their defaults, in the order of their tags."""
    fields = sorted((field for field in struct_.fields if field.is_tagged(version)), key=lambda field: field.tag)
    writes = [(field.tag, field.name, *_tagged(field, version)) for field in fields]
    if not writes:
        return _write_no_tags

    def write(out: bytearray, value: Any) -> None:
        present = [entry for entry in writes if getattr(value, entry[1]) != entry[2]]
        out += encode_unsigned_varint(len(present))
        for tag, name, _, write_value in present:
            content = bytearray()
            write_value(content, getattr(value, name))
            out += encode_unsigned_varint(tag) + encode_unsigned_varint(len(content)) + content

    return write


def _tagged(field: schema.Field, version: int) -> tuple[object, WriteField]:
    """Return the value of a tagged field that is left out, and the writer of all other values.

    The default of a nullable struct is an empty one, so null is written, too.
    """
    if field.struct is None or field.is_array or not field.nullable.hold(version):
        return field.default, _field_writer(field, version, flexible=True)
    return _NOTHING_LEFT_OUT, _nullable_struct_writer(_struct_writer(field.struct, version, flexible=True), b"\0")


def _write_no_tags(out: bytearray, _value: Any) -> None:
    out += b"\0"


def _field_writer(field: schema.Field, version: int, flexible: bool) -> WriteField:
    nullable = field.nullable.hold(version)
    if field.is_array:
        return _or_null(_array_writer(field, version, flexible), b"\0" if flexible else _INT32.pack(-1), nullable)
    if field.struct is not None:
        write = _struct_writer(field.struct, version, flexible)
        return _nullable_struct_writer(write) if nullable else write
    if field.kind == "string":
        return _or_null(_string_writer(field.name, flexible), b"\0" if flexible else _INT16.pack(-1), nullable)
    if field.kind in ("bytes", "records"):
        return _or_null(_bytes_writer(flexible), b"\0" if flexible else _INT32.pack(-1), nullable)
    return _SPECIAL_WRITERS.get(field.kind) or _fixed_writer(field.kind)


def _or_null(write_value: WriteField, null: bytes, nullable: bool) -> WriteField:
    """Return a writer that also accepts None if the field is nullable."""
    if not nullable:
        return write_value

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out += null
        else:
            write_value(out, value)

    return write


def _array_writer(field: schema.Field, version: int, flexible: bool) -> WriteField:
    element = field._replace(is_array=False, nullable=schema.Versions(0, -1))
    character = None if field.struct else FIXED_FORMATS.get(field.kind)
    write_element = _field_writer(element, version, flexible)

    def write_numbers(out: bytearray, values: Collection[Any]) -> None:
        out += write_count(len(values), flexible=flexible) + struct.pack(f">{len(values)}{character}", *values)

    def write_elements(out: bytearray, values: Collection[Any]) -> None:
        out += write_count(len(values), flexible=flexible)
        for value in values:
            if value.__class__ is Encoded:
                out += value.data
            else:
                write_element(out, value)

    return write_numbers if character else write_elements


def _nullable_struct_writer(write_present: WriteField, null: bytes = b"\xff") -> WriteField:
    """Return a writer of a struct or null, which is -1 as an int8, and 0 as a varint in a tagged field."""

    def write(out: bytearray, value: Any) -> None:
        out += null if value is None else b"\x01"
        if value is not None:
            write_present(out, value)

    return write


def _string_writer(name: str, flexible: bool) -> WriteField:
    def write(out: bytearray, value: str) -> None:
        encoded = bytes(value, "utf-8")
        if len(encoded) > STRING_BYTES_MAX:
            encoded = _cut(name, encoded)
        out += encode_unsigned_varint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))
        out += encoded

    return write


def _cut(name: str, encoded: bytes) -> bytes:
    """Return as many whole characters of an error message as a string can hold, because a message may quote requests.

    Raise OverflowError for any other string.
    """
    if name != ERROR_MESSAGE:
        raise OverflowError(f"{name} has {len(encoded)} bytes; a string has at most {STRING_BYTES_MAX}")
    return encoded[:STRING_BYTES_MAX].decode(errors="ignore").encode()


def _bytes_writer(flexible: bool) -> WriteField:
    def write(out: bytearray, value: bytes) -> None:
        out += write_count(len(value), flexible=flexible)
        out += value

    return write


def _fixed_writer(kind: str) -> WriteField:
    pack = struct.Struct(">" + FIXED_FORMATS[kind]).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _write_uuid(out: bytearray, value: uuid.UUID | None) -> None:
    out += _NO_ID if value is None else value.bytes


def _write_operations(out: bytearray, codes: Collection[int] | None) -> None:
    bits = NO_OPERATIONS if codes is None else sum(1 << code for code in codes)
    out += bits.to_bytes(4)


_SPECIAL_WRITERS: Final[Mapping[str, WriteField]] = {"uuid": _write_uuid, "operations": _write_operations}


UNSUPPORTED_VERSION: Final = 35

_SIZE_CORRELATION: Final = struct.Struct(">ii")
_REQUEST_HEADER: Final = struct.Struct(">ihhih")
"""The format of the start of a request: size, API key, version, correlation id, and length of the client id."""
_SPECS_BY_NAME: Final = {spec.name: spec for spec in API_SPECS.values()}
_SIZE_BYTES: Final = 4


def decode_request(api_key: int, version: int, body: memoryview) -> Any:
    """Return the request as an instance of its class in `messages`. Raises MalformedRequest for an invalid `body`."""
    return decoder(f"{API_SPECS[api_key].name}Request", version)(body)


def decode_in_steps(api_key: int, version: int, body: memoryview, kept: list[Any]) -> InSteps[Any]:
    """Decode a request as `decode_request` does, in steps; add the elements of its arrays also to `kept`."""
    return steps_decoder(f"{API_SPECS[api_key].name}Request", version)(body, kept)


def encode_response(message: Any, version: int, correlation_id: int) -> bytearray:
    """Return the frame of a response. The header of ApiVersions responses never has tagged fields (KIP-511)."""
    name = type(message).__name__
    out = _response_header(name, version)
    encoder(name, version)(out, message)
    _SIZE_CORRELATION.pack_into(out, 0, len(out) - _SIZE_BYTES, correlation_id)
    return out


def encode_in_steps(message: Any, version: int, correlation_id: int) -> InSteps[bytearray]:
    """Encode a response as `encode_response` does, in steps."""
    name = type(message).__name__
    out = _response_header(name, version)
    yield from steps_encoder(name, version)(out, message)
    _SIZE_CORRELATION.pack_into(out, 0, len(out) - _SIZE_BYTES, correlation_id)
    return out


def elements_of(message: Any) -> Iterator[Any]:
    """Return the elements of the arrays that are fields of a message itself."""
    arrays = (field.name for field in schema.message(type(message).__name__).struct.fields if has_elements(field))
    return chain.from_iterable(getattr(message, name) or () for name in arrays)


def _response_header(name: str, version: int) -> bytearray:
    out = bytearray(_SIZE_CORRELATION.size)
    if schema.message(name).flexible.hold(version) and name != "ApiVersionsResponse":
        out += b"\0"
    return out


def encode_element(message: str, path: tuple[str, ...], version: int, element: Any) -> Encoded:
    """Encode an element of the array at `path` of a message; the result can replace the element in the array."""
    out = bytearray()
    element_encoder(message, path, version)(out, element)
    return Encoded(bytes(out))


def encode_request(message: Any, version: int, correlation_id: int, client_id: str) -> bytearray:
    """Return the frame of a request to another broker."""
    name = type(message).__name__
    spec = _SPECS_BY_NAME[name.removesuffix("Request")]
    client = client_id.encode()
    out = bytearray(_REQUEST_HEADER.pack(0, spec.key, version, correlation_id, len(client)))
    out += client
    if spec.is_flexible(version):
        out += b"\0"
    encoder(name, version)(out, message)
    _INT32.pack_into(out, 0, len(out) - _SIZE_BYTES)
    return out


def decode_response(name: str, version: int, frame: memoryview) -> Any:
    """Return the response of another broker; `frame` does not include the size. Raises MalformedRequest."""
    header_bytes = _SIZE_BYTES + schema.message(name).flexible.hold(version)
    return decoder(name, version)(frame[header_bytes:])


def api_versions_response(error: int) -> Any:
    """Return an ApiVersionsResponse with the supported APIs and versions."""
    response = message_class("ApiVersionsResponse")
    keys = [
        response.ApiVersion(api_key=spec.key, min_version=spec.advertised_min_version, max_version=spec.max_version)
        for spec in API_SPECS.values()
    ]
    return response(error_code=error, api_keys=keys)


def encode_unsupported_api_versions(correlation_id: int) -> bytearray:
    """Return the v0 response to an unsupported version of ApiVersions, so that the client can send a lower version."""
    return encode_response(api_versions_response(UNSUPPORTED_VERSION), 0, correlation_id)

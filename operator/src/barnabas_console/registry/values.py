"""The content of messages that begin with the number of a schema, as JSON. Anybody may have written them."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.json_format import MessageToDict

from barnabas_console.model.messages import MASK, Message
from barnabas_console.registry.client import Missing
from barnabas_registry.content import HEAD_BYTES, AvroReader, CannotDecode, ProtobufReader, as_json, schema_id_of
from barnabas_registry.schemas import AVRO, JSON, NAMES, PROTOBUF, Schema

DECODED_BYTES_MAX: Final = 256 << 10
DECODERS_MAX: Final = 128


class Content(NamedTuple):
    """The content of a message as JSON, and the name of its type in the schema, which may be empty."""

    json: bytes
    name: str


Decode = Callable[[bytes], Content]


class Values:
    """The reader of keys and values; `ask` returns a schema, and may wait for the registry.

    With `hides`, a part that cannot be read is left out, because it might have a field that nobody may see.
    """

    def __init__(self, ask: Callable[[int], Schema | Missing], *, hides: bool) -> None:
        self._ask = ask
        self._hides = hides

    def read(self, message: Message) -> Message:
        """Return the message with key and value as JSON where they have a schema; `schemas` says which, or why not."""
        key, about_key = self._part(message.key)
        value, about_value = self._part(message.value)
        notes = [f"{name}: {about}" for name, about in (("key", about_key), ("value", about_value)) if about]
        return message._replace(key=key, value=value, schemas=tuple(notes))

    def _part(self, part: bytes | None) -> tuple[bytes | None, str]:
        schema_id = None if part is None else schema_id_of(part)
        if part is None or schema_id is None:
            return part, ""
        try:
            content, kind = self._content(schema_id, part)
        except CannotDecode as error:
            hidden = f"{MASK} ({len(part)} bytes, which are not shown with masking)".encode()
            return hidden if self._hides else part, f"schema {schema_id}: {error}"
        return content.json, f"{NAMES[kind]} {content.name}".strip() + f", schema {schema_id}"

    def _content(self, schema_id: int, part: bytes) -> tuple[Content, str]:
        if len(part) > DECODED_BYTES_MAX:
            raise CannotDecode(f"not read, because {len(part)} bytes are more than {DECODED_BYTES_MAX}")
        schema = self._ask(schema_id)
        if isinstance(schema, Missing):
            raise CannotDecode(schema.reason)
        return decoder_of(schema)(part[HEAD_BYTES:]), schema.kind


@lru_cache(maxsize=DECODERS_MAX)
def decoder_of(schema: Schema) -> Decode:
    """Return the function that reads the content after the head of a message, and may raise CannotDecode."""
    try:
        decode = _made(schema)
    except CannotDecode as error:
        reason = str(error)
    except Exception as error:  # A schema may be anything, and the libraries raise what they like.
        reason = f"the schema is invalid: {type(error).__name__}: {error}"
    else:
        return lambda body: _guarded(decode, body)
    return lambda _body: _refuse(reason)


def _made(schema: Schema) -> Decode:
    if schema.kind == AVRO:
        return _avro(schema)
    if schema.kind == PROTOBUF:
        return _protobuf(schema)
    if schema.kind == JSON:
        return lambda body: Content(body, "")
    raise CannotDecode(f"the schema is of the type {schema.kind}; known: {', '.join(NAMES)}")


def _guarded(decode: Decode, body: bytes) -> Content:
    try:
        return decode(body)
    except CannotDecode:
        raise
    except Exception as error:  # Bytes may be anything, and the libraries raise what they like.
        raise CannotDecode(f"the bytes do not have this schema: {type(error).__name__}: {error}") from error


def _refuse(reason: str) -> Content:
    raise CannotDecode(reason)


def _avro(schema: Schema) -> Decode:
    reader = AvroReader(schema)
    return lambda body: Content(as_json(reader.read(body)), reader.name)


def _protobuf(schema: Schema) -> Decode:
    reader = ProtobufReader(schema)

    def decode(body: bytes) -> Content:
        name, message = reader.read(body)
        found = MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=reader.pool)
        return Content(as_json(found), name)

    return decode

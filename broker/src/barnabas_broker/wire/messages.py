"""The classes of the protocol's messages, which are created from their definitions on first use.

Import a class with `from barnabas_broker.wire.messages import MetadataResponse`. Nested structs are attributes of their
parent, as in `MetadataResponse.MetadataResponseBroker(node_id=1, host="localhost", port=9092)`. Each class has all
fields of the definition in snake case, with their defaults, so that handlers treat all versions alike. Arrays are
lists; a uuid is a `uuid.UUID`, or None for all zeros.
"""

import functools
from typing import Any

import msgspec

from barnabas_broker.wire import schema


@functools.cache
def message_class(name: str) -> type[Any]:
    """Return the class of a message such as `MetadataRequest`. Raises schema.UnknownMessage."""
    return struct_class(schema.message(name).struct)


@functools.cache
def struct_class(struct: schema.Struct) -> type[Any]:
    """Return the class of a message or nested struct, with an attribute for each field and for each nested class.

    Messages have no cycles, so the garbage collector need not visit the very many structs of a large one.
    """
    fields = [(field.name, Any, _default(field)) for field in struct.fields]
    nested = {field.struct.name: struct_class(field.struct) for field in struct.fields if field.struct is not None}
    return msgspec.defstruct(struct.name, fields, kw_only=True, namespace=nested, module=__name__, gc=False)


def _default(field: schema.Field) -> Any:
    """Return the default of a field; each message gets a list of its own."""
    return msgspec.field(default_factory=list) if field.default == [] else field.default


def __getattr__(name: str) -> Any:
    try:
        return message_class(name)
    except schema.UnknownMessage as error:
        raise AttributeError(str(error)) from None

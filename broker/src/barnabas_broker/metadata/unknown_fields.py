"""The preservation of fields of stored metadata that only a newer broker version knows.

Decoding gathers the unknown fields of an object in the field `unknown_fields`, and encoding writes the unknown fields
back. Objects without unknown fields do not need this module, so they cost nothing.
"""

import functools
from typing import Final

import msgspec

from barnabas_broker.metadata.model import Extensible, PartitionState, TopicDocument, TopicPartDocument

_FIELD: Final = "unknown_fields"
MARK: Final = f'"{_FIELD}":'.encode()
"""The text by which encoded JSON with unknown fields is recognized; an ordinary string may contain this text, too."""

_Object = dict[str, object]


def with_unknown_fields_gathered(value: bytes, kind: type[Extensible]) -> bytes:
    """Return the JSON object `value` with its unknown fields gathered in one field. Raises msgspec.MsgspecError."""
    found = msgspec.json.decode(value, type=_Object)
    partitions = found.get("partitions")
    if kind in (TopicDocument, TopicPartDocument) and isinstance(partitions, list):
        for partition in partitions:
            if isinstance(partition, dict):
                _gather(partition, PartitionState)
    _gather(found, kind)
    return msgspec.json.encode(found)


def _gather(found: _Object, kind: type[Extensible]) -> None:
    unknown = {name: found.pop(name) for name in found.keys() - _known(kind)}
    if unknown:
        found[_FIELD] = msgspec.json.encode(unknown, order="sorted").decode()


@functools.cache
def _known(kind: type[Extensible]) -> frozenset[str]:
    """Return the names of the fields of `kind` in JSON, cached because msgspec computes them again at each call."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind)) - {_FIELD}


def with_unknown_fields(value: bytes) -> bytes:
    """Return the JSON of a document with its unknown fields restored."""
    found = msgspec.json.decode(value, type=_Object)
    partitions = found.get("partitions")
    for each in (found, *(partitions if isinstance(partitions, list) else ())):
        each.update(msgspec.json.decode(each.pop(_FIELD, "{}"), type=_Object))
    return msgspec.json.encode(found)

"""Fields of documents that only a newer version knows: gathered in one field while decoding, put back while encoding.

Only what has such fields comes here, so that everything else costs nothing.
"""

import functools
from typing import Final

import msgspec

from barnabas_broker.metadata.model import Extensible, PartitionState, TopicDocument, TopicPartDocument

_FIELD: Final = "unknown_fields"
MARK: Final = f'"{_FIELD}":'.encode()
"""The mark in the JSON of values with unknown fields; a string in it may look so, too."""

_Object = dict[str, object]


def with_unknown_fields_gathered(value: bytes, kind: type[Extensible]) -> bytes:
    """The JSON object `value`, as `kind` can be decoded from it. Raises msgspec.MsgspecError."""
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
    """Return the names of its fields in JSON. msgspec works them out again each time that it is asked."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind)) - {_FIELD}


def with_unknown_fields(value: bytes) -> bytes:
    """The JSON of a document with its unknown fields where they were."""
    found = msgspec.json.decode(value, type=_Object)
    partitions = found.get("partitions")
    for each in (found, *(partitions if isinstance(partitions, list) else ())):
        each.update(msgspec.json.decode(each.pop(_FIELD, "{}"), type=_Object))
    return msgspec.json.encode(found)

"""Records of `__consumer_offsets`, in Kafka's own binary format.

The version at the start of a key gives the kind of record: 0 and 1 are offset commits, 2 is a group, and higher
versions belong to newer kinds of groups. A value begins with a version of its own; a null value is a tombstone.
"""

import struct
from typing import Final, NamedTuple

COMMIT: Final = "commit"
TOMBSTONE: Final = "tombstone"
GROUP: Final = "group"
UNKNOWN: Final = "unknown"
MALFORMED: Final = "malformed"
OFFSET_KEYS: Final = (0, 1)
GROUP_KEY: Final = 2
EPOCH_VERSION: Final = 3
FLEXIBLE_VERSION: Final = 4
YEAR_10000_MS: Final = 253_402_300_800_000

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class OffsetRecord(NamedTuple):
    """A record of `__consumer_offsets`.

    Only commits and their tombstones have a topic and a partition, and only commits have an offset and a time in ms.
    """

    kind: str
    group: str | None = None
    topic: str | None = None
    partition: int | None = None
    committed: int | None = None
    commit_ms: int | None = None


def decode(key: bytes | None, value: bytes | None) -> OffsetRecord:
    """Decode a record; its kind is `unknown` if its version is not known, and `malformed` if the bytes are damaged."""
    if key is None:
        return OffsetRecord(MALFORMED)
    try:
        (version,) = _INT16.unpack_from(key)
        if version == GROUP_KEY:
            return OffsetRecord(GROUP, _string(key, 2)[0])
        if version not in OFFSET_KEYS:
            return OffsetRecord(UNKNOWN)
        group, position = _string(key, 2)
        topic, position = _string(key, position)
        about = (group, topic, *_INT32.unpack_from(key, position))
        return OffsetRecord(TOMBSTONE, *about) if value is None else _commit(about, value)
    except (struct.error, ValueError, IndexError):
        return OffsetRecord(MALFORMED)


def _commit(about: tuple[str, str, int], value: bytes) -> OffsetRecord:
    """Decode the value of a commit.

    Version 1 has an expiry time at the end, 3 and 4 have the leader epoch, and 4 is flexible.
    """
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= FLEXIBLE_VERSION:
        return OffsetRecord(UNKNOWN)
    (offset,) = _INT64.unpack_from(value, 2)
    position = 14 if version >= EPOCH_VERSION else 10
    if version < FLEXIBLE_VERSION:
        _, position = _string(value, position)
    else:
        length, position = _varint(value, position)
        position += length - 1
    (commit_ms,) = _INT64.unpack_from(value, position)
    if not 0 <= commit_ms < YEAR_10000_MS:
        raise ValueError(f"the commit timestamp {commit_ms} ms is not between 1970 and the year 10000")
    return OffsetRecord(COMMIT, *about, offset, commit_ms)


def _string(data: bytes, position: int) -> tuple[str, int]:
    """Decode the string at a position, and return the string and the position after it.

    A string begins with its length in 16 bits.
    """
    (length,) = _INT16.unpack_from(data, position)
    end = position + 2 + length
    if length < 0 or end > len(data):
        raise ValueError(f"a string of {length} bytes at {position} does not fit into {len(data)} bytes")
    return data[position + 2 : end].decode(), end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the unsigned varint at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7

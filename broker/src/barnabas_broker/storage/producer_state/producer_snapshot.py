"""The `.snapshot` files of producer state at an offset, in version 1 of Kafka's format."""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

_HEAD: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_COVERS_FROM: Final = 6
_VERSION: Final = 1


class SnapshotEntry(NamedTuple):
    """A batch of a producer, with the fields in the order of the file. `last_offset` is -1 if it is unknown."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Return the content of a `.snapshot` file, including the CRC."""
    rows = [_ENTRY.pack(*entry) for entry in entries]
    data = bytearray(_HEAD.pack(_VERSION, 0, len(rows)) + b"".join(rows))
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CRC_COVERS_FROM:]))
    return bytes(data)


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """Decode a snapshot. Raises ValueError if the file is malformed."""
    if len(data) < _HEAD.size:
        raise ValueError(f"the file has {len(data)} bytes, but its header needs {_HEAD.size}")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"the file has version {version}, but must have {_VERSION}")
    if crc32c(memoryview(data)[_CRC_COVERS_FROM:]) != crc:
        raise ValueError("the CRC in the file does not match the file's bytes")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise ValueError(f"the file has {len(data)} bytes, which is not the size of {count} entries")
    return [SnapshotEntry(*row) for row in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :])]

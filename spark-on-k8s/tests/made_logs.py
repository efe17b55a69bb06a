"""Log dirs that are written byte by byte in the layout of brokers, so that damage can be planted."""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

FIRST_MS = 1_357_000_000_000
RECORDS = 5
"""The number of records in each batch."""
TOPIC_ID = "dGhpcy1pcy1hLXRvcGlj"


def varint(value: int) -> bytes:
    """Return the zigzag encoding."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def records(count: int, value: bytes) -> bytes:
    """Return records one millisecond apart, with offsets from 0 on."""
    found = b""
    for delta in range(count):
        body = b"\0" + varint(delta) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        found += varint(len(body)) + body
    return found


def batch(
    base_offset: int, epoch: int = 0, *, value: bytes = b"x" * 100, count: int = RECORDS, codec: int = 0
) -> bytes:
    """Return a batch whose records are one millisecond apart; its timestamp is that of its offset."""
    return sealed(base_offset, epoch, records(count, value), count, codec)


def sealed(
    base_offset: int,
    epoch: int,
    data: bytes,
    count: int,
    attributes: int = 0,
    first_ms: int | None = None,
    producer_id: int = -1,
) -> bytes:
    """Return a batch of these records, which are already compressed."""
    first_ms = FIRST_MS + base_offset if first_ms is None else first_ms
    covered = struct.pack(
        ">hiqqqhii", attributes, count - 1, first_ms, first_ms + count - 1, producer_id, -1, -1, count
    )
    covered += data
    return struct.pack(">qiibI", base_offset, 9 + len(covered), epoch, 2, crc32c(covered)) + covered


class MadeReplica(NamedTuple):
    """The folder of a replica, and the positions of the batches in each segment."""

    folder: Path
    positions: Mapping[int, Sequence[int]]

    def file(self, segment: int, suffix: str) -> Path:
        return self.folder / f"{segment:020d}{suffix}"

    def patch(self, segment: int, suffix: str, position: int, data: bytes) -> None:
        """Overwrite bytes in the middle of a file."""
        path = self.file(segment, suffix)
        old = path.read_bytes()
        path.write_bytes(old[:position] + data + old[position + len(data) :])


def write_segment(folder: Path, batches: Sequence[bytes], base_offset: int) -> list[int]:
    """Write `.log`, and indexes with an entry for each batch but the first; return the batches' positions."""
    index, times, position, positions = b"", b"", 0, []
    for data in batches:
        offset, last = struct.unpack_from(">q", data)[0], struct.unpack_from(">i", data, 23)[0]
        (newest_ms,) = struct.unpack_from(">q", data, 35)
        if position:
            index += struct.pack(">ii", offset + last - base_offset, position)
            times += struct.pack(">qi", newest_ms, offset + last - base_offset)
        positions.append(position)
        position += len(data)
    for suffix, data in ((".log", b"".join(batches)), (".index", index), (".timeindex", times)):
        (folder / f"{base_offset:020d}{suffix}").write_bytes(data)
    return positions


Replica = tuple[str, int]
"""Topic and partition."""


def write_log_dir(
    path: Path, broker: int, replicas: Sequence[Replica], *, segments: int = 3, batches: int = 4
) -> dict[Replica, MadeReplica]:
    """Write undamaged logs: the first segment has epoch 0, the others epoch 3; all is synced and committed."""
    made, per_segment = {}, batches * RECORDS
    for topic, number in replicas:
        folder = path / f"{topic}-{number}"
        folder.mkdir(parents=True)
        positions = {}
        for base in range(0, segments * per_segment, per_segment):
            epoch = 0 if base < per_segment else 3
            found = [batch(offset, epoch) for offset in range(base, base + per_segment, RECORDS)]
            positions[base] = write_segment(folder, found, base)
        (folder / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n3 {per_segment}\n")
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
        made[topic, number] = MadeReplica(folder, positions)
    path.mkdir(exist_ok=True)
    (path / "meta.properties").write_text(f"version=1\ncluster.id=made\nnode.id={broker}\n")
    write_offsets(path, dict.fromkeys(replicas, segments * per_segment))
    return made


def write_offsets(path: Path, offsets: Mapping[Replica, int], *names: str) -> None:
    """Write recovery points and high watermarks, or other checkpoints."""
    lines = "".join(f"{topic} {number} {offset}\n" for (topic, number), offset in offsets.items())
    for name in names or ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (path / name).write_text(f"0\n{len(offsets)}\n{lines}")


Damage = Callable[[MadeReplica], object]

"""Record batches with wrong sizes, counts, codecs or records. Each is a function of a Random."""

import functools
import struct
import time
from collections.abc import Callable
from random import Random

from barnabas_broker.wire.record_batch import CRC_START, HEADER_BYTES, TRANSACTIONAL_BIT, parse_header, sealed_batch
from barnabas_broker.wire.records import Header, Record, compress, encode_batch, encode_varint

BOMB_BYTES = 64 * 1024 * 1024
HEADER_EDGES = {
    "base_offset": (-1, 1, 2**63 - 1, -(2**63)),
    "leader_epoch": (-(2**31), 2**31 - 1),
    "attributes": (0x08, 0x10, 0x20, 0x40, 0x78, -1, 1, 2, 3, 4, 5, 6, 7, 0x7FFF, -0x8000),
    "last_offset_delta": (-1, 0, 1, 2**31 - 1, -(2**31)),
    "base_timestamp_ms": (-1, -2, 0, 2**63 - 1, -(2**63)),
    "max_timestamp_ms": (-1, -2, 0, 2**63 - 1, -(2**63)),
    "producer_id": (0, 1, 2**63 - 1, -2, -(2**63)),
    "producer_epoch": (0, 1, 2**15 - 1, -2, -(2**15)),
    "base_sequence": (0, 1, 2**31 - 1, -2, -(2**31)),
    "record_count": (-1, 0, 1, 2, 2**31 - 1, -(2**31)),
    "magic": (-1, 0, 1, 3, 127),
}
VARINTS = (-1, -2, 0, 1, 2**31 - 1, 2**63 - 1, -(2**31), -(2**63))


def hostile_batch(random: Random) -> bytes:
    """Return a valid batch, or one that is broken in one or two ways."""
    batch = valid_batch(random)
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        batch = random.choice(BREAKS)(random, batch)
    return batch


def valid_batch(random: Random) -> bytes:
    now_ms = int(time.time() * 1000)
    records = [
        Record(delta, now_ms + delta, random.choice((b"key", b"", None)), random.randbytes(random.choice((0, 9, 300))))
        for delta in range(random.choice((1, 2, 5)))
    ]
    if random.random() < 0.2:
        records[0] = records[0]._replace(headers=(Header("name", b"value"), Header("null", None)))
    attributes = random.choice((0, 0, 1, 2, 3, 4))
    if random.random() < 0.8:
        return bytes(encode_batch(records, attributes=attributes))
    attributes |= random.choice((0, TRANSACTIONAL_BIT))
    return bytes(encode_batch(records, attributes=attributes, producer_id=random.choice((0, 1000)), producer_epoch=0))


def _resealed(batch: bytes, body: bytes | None = None, **changed: int) -> bytes:
    """Return the batch with other header fields or records, and a matching CRC."""
    header = parse_header(batch, 0)._replace(**changed)
    return bytes(sealed_batch(header, batch[HEADER_BYTES:] if body is None else body))


def _change_header(random: Random, batch: bytes) -> bytes:
    name = random.choice(list(HEADER_EDGES))
    return _resealed(batch, None, **{name: random.choice(HEADER_EDGES[name])}) if len(batch) >= HEADER_BYTES else batch


def _lie_about_count(random: Random, batch: bytes) -> bytes:
    """Let count and last offset delta agree with each other, but not with the records."""
    count = random.choice((1, 2, 3, 1000, 10**6, 2**31 - 1))
    return _resealed(batch, record_count=count, last_offset_delta=count - 1) if len(batch) >= HEADER_BYTES else batch


def _claim_length(random: Random, batch: bytes) -> bytes:
    length = random.choice((-1, 0, 1, 48, 49, len(batch), len(batch) - 13, len(batch) - 11, 2**31 - 1, -(2**31)))
    return batch[:8] + struct.pack(">i", length) + batch[12:]


def _flip_bits(random: Random, batch: bytes) -> bytes:
    changed = bytearray(batch)
    for _ in range(random.choice((1, 1, 8))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _break_records(random: Random, batch: bytes) -> bytes:
    """Change bytes of the records under a matching CRC, so that only parsing them finds it."""
    body = bytearray(batch[HEADER_BYTES:])
    if len(batch) < HEADER_BYTES or not body:
        return batch
    for _ in range(random.choice((1, 1, 4))):
        start = random.randrange(len(body))
        new = random.choice((random.randbytes(3), encode_varint(random.choice(VARINTS))))
        body[start : start + random.choice((0, 1, len(new)))] = new
    return _resealed(batch, bytes(body))


def _cut(random: Random, batch: bytes) -> bytes:
    return batch[: random.randrange(len(batch) + 1)]


def _append(random: Random, batch: bytes) -> bytes:
    return batch + random.choice((random.randbytes(7), batch, b"\0" * 61, batch[:61]))


def _replace_all(random: Random, batch: bytes) -> bytes:
    return random.choice((b"", random.randbytes(61), b"\0" * 200, b"\xff" * 100, random.randbytes(2000)))


@functools.cache
def _bomb(codec: int) -> bytes:
    """Return one compressed record of 64 MiB of zeros."""
    inner = b"\0\0\0\x01" + encode_varint(BOMB_BYTES) + b"\0" * BOMB_BYTES + b"\0"
    return compress(codec, encode_varint(len(inner)) + inner, 1)


def _drop_bomb(random: Random, batch: bytes) -> bytes:
    codec = random.choice((1, 3, 4))
    if len(batch) < CRC_START or random.random() < 0.9:  # Bombs cost time, so they are rare.
        return batch
    return _resealed(valid_batch(random), _bomb(codec), attributes=codec, record_count=1, last_offset_delta=0)


BREAKS: tuple[Callable[[Random, bytes], bytes], ...] = (
    _change_header,
    _change_header,
    _lie_about_count,
    _claim_length,
    _flip_bits,
    _break_records,
    _break_records,
    _cut,
    _append,
    _replace_all,
    _drop_bomb,
)

"""Damage by a disk, a power cut or a person: other bytes for a file, by its kind."""

import re
import struct
from collections.abc import Callable
from random import Random

from crc32c import crc32c

from fuzz.hostile_requests import BODY_BREAKS, EDGES

TEXT_NUMBERS = (*map(str, EDGES), "9" * 25, "1e5", "-0", "x", "")
_NUMBER = re.compile(rb"\d+")


def damaged(random: Random, name: str, data: bytes) -> bytes | None:
    """Return the bytes in place of this file, or None if it is missing."""
    if random.random() < 0.05:
        return None
    kinds = [
        *BODY_BREAKS,
        *(change for pattern, changes in BY_NAME.items() if re.search(pattern, name) for change in changes),
    ]
    return random.choice(kinds)(random, data)


def _number_changed(random: Random, data: bytes) -> bytes:
    places = list(_NUMBER.finditer(data))
    if not places:
        return data
    place = random.choice(places)
    return data[: place.start()] + random.choice(TEXT_NUMBERS).encode() + data[place.end() :]


def _lines_changed(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    place = random.randrange(len(lines))
    lines[place : place + 1] = [lines[place]] * random.choice((0, 2, 3))
    return b"\n".join(lines)


def _field_changed(*sizes: int) -> Callable[[Random, bytes], bytes]:
    """Return a function that changes a number of an entry in a file; `sizes` are those of the numbers in bytes."""
    entry = sum(sizes)

    def change(random: Random, data: bytes) -> bytes:
        if len(data) < entry:
            return data
        changed, field = bytearray(data), random.randrange(len(sizes))
        place = random.randrange(len(data) // entry) * entry + sum(sizes[:field])
        bits = 8 * sizes[field]
        changed[place : place + sizes[field]] = (random.choice(EDGES) & (1 << bits) - 1).to_bytes(sizes[field])
        return bytes(changed)

    return change


SNAPSHOT_HEAD_BYTES = 10
SNAPSHOT_FIELDS = (8, 2, 4, 8, 4, 8, 4, 8)


def _sealed_snapshot(random: Random, data: bytes) -> bytes:
    """Change a number of one of its producers, and let the CRC match."""
    rows = _field_changed(*SNAPSHOT_FIELDS)(random, data[SNAPSHOT_HEAD_BYTES:])
    tail = data[6:SNAPSHOT_HEAD_BYTES] + rows
    return data[:2] + struct.pack(">I", crc32c(tail)) + tail


BY_NAME: dict[str, tuple[Callable[[Random, bytes], bytes], ...]] = {
    r"checkpoint$|\.metadata$|\.properties$|\.json$|cleanshutdown$": (_number_changed, _number_changed, _lines_changed),
    r"\.index$": (_field_changed(4, 4),) * 3,
    r"\.timeindex$": (_field_changed(8, 4),) * 3,
    r"\.snapshot$": (_sealed_snapshot,) * 4,
}

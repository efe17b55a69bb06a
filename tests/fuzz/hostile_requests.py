"""Requests of every API and version, written field by field from Kafka's definitions, with some of the fields hostile.

A request is first a list of pieces, each with its kind (a count, a length, a number, text, records); then pieces are
changed, and the whole is framed, with a right size or a wrong one. Everything is a function of one Random.
"""

import functools
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from barnabas_broker.wire import schema
from barnabas_broker.wire.framing import API_SPECS, encode_unsigned_varint
from fuzz.hostile_batches import hostile_batch

PRODUCE = 0
FORMATS = {"bool": ">?", "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q", "float64": ">d"}
RAW_BYTES_MAX = 2000


class Target(NamedTuple):
    """The objects of the requests, never the canary's topic."""

    topics: Mapping[str, uuid.UUID]
    log_dirs: Sequence[str]


class Piece(NamedTuple):
    """A part of a request's bytes.

    `kind` is `count`, `length`, `tags`, `text`, `records`, `varint` or a primitive's name.
    """

    kind: str
    data: bytes


NUMBERS: dict[str, Sequence[int]] = {
    "acks": (-1, 0, 1, 1, 1, 2, -2),
    "api_key": (0, 3),
    "partition": (0, 0, 0, 0, 1, -1, 2**31 - 1),
    "partition_index": (0, 0, 0, 0, 1, -1, 2**31 - 1),
    "partition_indexes": (0, 0, 1, -1),
    "index": (0, 0, 0, 0, 1, -1),
    "replica_id": (-1, -1, -1, 0, 1, -2),
    "max_wait_ms": (0, 0, 1, 20, -1),
    "timeout_ms": (0, 100, 1000, -1),
    "session_timeout_ms": (6000, 6000, 10_000, 0, -1),
    "rebalance_timeout_ms": (100, 1000, 0, -1),
    "current_leader_epoch": (-1, -1, 0, 1, 2**31 - 1),
    "leader_epoch": (-1, 0, 1, 2**31 - 1),
    "fetch_offset": (0, 0, 1, 5, -1, 2**63 - 1),
    "offset": (0, 1, -1, 2**63 - 1),
    "timestamp": (-1, -2, -3, -4, -5, 0, 2**63 - 1, -(2**63)),
    "num_partitions": (1, 2, -1, 0, 10_001, 10**6, 2**31 - 1, -(2**31)),
    "count": (1, 2, 3, 0, -1, 10**6, 2**31 - 1),
    "replication_factor": (1, -1, 1, 0, 2, 2**15 - 1),
    "broker_ids": (1, 1, 0, -1),
    "replicas": (1, 1, 0, -1),
    "resource_type": (2, 2, 4, 8, 0, 32, -1),
    "config_operation": (0, 1, 2, 3, -1, 127),
    "key_type": (0, 0, 1, 2, -1),
    "generation_id": (-1, 0, 1, 2**31 - 1),
    "generation_id_or_member_epoch": (-1, 0, 1, 2**31 - 1),
    "producer_id": (-1, 0, 1000, 2**63 - 1),
    "producer_epoch": (-1, 0, 1, 2**15 - 1),
    "transaction_timeout_ms": (0, 60_000, -1),
    "session_id": (0, 0, 1, -1),
    "session_epoch": (-1, 0, 1),
    "endpoint_type": (1, 2, 0),
    "member_epoch": (0, 0, -1, 1, 2**31 - 1),
    "share_session_epoch": (0, 0, 1, -1, 2**31 - 1),
    "share_acquire_mode": (0, 1, -1, 127),
    "max_records": (1, 500, 0, -1, 2**31 - 1),
    "batch_size": (1, 500, 0, -1, 2**31 - 1),
    "first_offset": (0, 0, 1, 5, -1, 2**63 - 1),
    "last_offset": (0, 1, 5, 2000, -1, 2**63 - 1),
    "acknowledge_types": (1, 1, 2, 3, 4, 0, 5, -1),
    "start_offset": (0, 0, 5, -1, 2**63 - 1),
    "state_epoch": (0, 1, -1, 2**31 - 1),
    "delivery_state": (0, 2, 3, 4, 1, -1),
    "delivery_count": (0, 1, 5, -1, 2**15 - 1),
    "delivery_complete_count": (-1, 0, 1, 2**31 - 1),
}
OTHER_NUMBERS = (0, 0, 1, 1, 2, -1, 100, 2**31 - 1)
EDGES = (0, 1, -1, 2, 127, 128, -128, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
TEXTS: dict[str, Sequence[str]] = {
    "group": tuple(f"group-{number}" for number in range(8)),
    "transactional_id": ("transaction",),
    "protocol": ("range", "roundrobin", ""),
    "member": ("", "", "member-1", "nobody"),
    "instance": ("static-1", "static-2"),
    "configs": (
        "retention.ms",
        "cleanup.policy",
        "max.message.bytes",
        "share.auto.offset.reset",
        "errors.deadletterqueue.topic.name",
        "no.such.setting",
    ),
    "value": ("1", "-1", "compact", "delete", "earliest", "by_duration:PT1H", "by_duration:-PT1S", "", "x" * 300),
    "client_software_name": ("fuzz", "a b", ""),
    "states": ("Stable", "Empty", "Nonsense"),
    "types": ("classic", "consumer", "share", "nonsense"),
    "resource_name": ("1", "group-1", ""),
    "coordinator_keys": ("group-1", "group-1:AAAAAAAAAAAAAAAAAAAAAA:0", "a:b:AAAAAAAAAAAAAAAAAAAAAA:-1", "::", ":0"),
}
HOSTILE_TEXTS = (
    "",
    ".",
    "..",
    "a" * 250,
    "é" * 100,
    "a/b",
    "../../etc",
    "\0",
    "x\ny",
    "__consumer_offsets",
    "\U0001d54f",
    "%s{}",
)


class _Writer:
    """Writes one message of one version as pieces."""

    def __init__(self, random: Random, target: Target, version: int, flexible: bool) -> None:
        self._random = random
        self._target = target
        self._version = version
        self._flexible = flexible
        self.pieces: list[Piece] = []
        self.wants_answer = True
        """False for Produce with acks=0, which has no response."""

    def struct(self, struct_: schema.Struct) -> None:
        for field in struct_.fields:
            if field.is_in_line(self._version):
                self._field(field)
        if self._flexible:
            tagged = [field for field in struct_.fields if field.is_tagged(self._version)]
            self._tags([field for field in tagged if self._random.random() < 0.3])

    def _tags(self, fields: Sequence[schema.Field]) -> None:
        unknown = self._random.random() < 0.05
        self._add("tags", encode_unsigned_varint(len(fields) + unknown))
        for field in fields:
            inner = _Writer(self._random, self._target, self._version, flexible=True)
            inner._field(field)
            data = b"".join(piece.data for piece in inner.pieces)
            self._add("varint", encode_unsigned_varint(field.tag))
            self._add("length", encode_unsigned_varint(len(data)))
            self.pieces += inner.pieces
        if unknown:
            self._add("varint", encode_unsigned_varint(self._random.choice((9, 77, 2**31))))
            self._add("length", encode_unsigned_varint(4))
            self._add("text", b"tag!")

    def _field(self, field: schema.Field) -> None:
        if field.nullable.hold(self._version) and self._random.random() < 0.3:
            self._null(field)
        elif field.is_array:
            count = self._random.choice((0, 1, 1, 1, 2, 3))
            self._length("count", count, field.kind)
            for _ in range(count):
                self._one(field)
        else:
            self._one(field)

    def _null(self, field: schema.Field) -> None:
        if field.struct is not None and not field.is_array:
            self._add("int8", b"\xff")
        else:
            self._length("count" if field.is_array else "length", -1, field.kind if not field.is_array else "")

    def _length(self, kind: str, length: int, of: str = "") -> None:
        if self._flexible:
            self._add(kind, encode_unsigned_varint(length + 1))
        else:
            short = kind == "length" and of == "string"
            self._add(kind, struct.pack(">h" if short else ">i", length))

    def _one(self, field: schema.Field) -> None:
        kind, random = field.kind, self._random
        if field.struct is not None:
            if field.nullable.hold(self._version) and not field.is_array:
                self._add("int8", b"\x01")
            self.struct(field.struct)
        elif kind == "string":
            self._sized("string", "text", self._text(field.name).encode())
        elif kind == "records":
            self._sized("bytes", "records", hostile_batch(random))
        elif kind == "bytes":
            self._sized("bytes", "text", random.choice((b"", b"\0\0", random.randbytes(20), random.randbytes(400))))
        elif kind == "uuid":
            known = [*self._target.topics.values(), uuid.UUID(int=0), uuid.UUID(int=random.getrandbits(128))]
            self._add("uuid", random.choice(known).bytes)
        elif kind == "operations":
            self._add("int32", struct.pack(">I", 1 << 31))
        else:
            self._number(field.name, kind)

    def _number(self, name: str, kind: str) -> None:
        value = self._random.choice(NUMBERS.get(name, OTHER_NUMBERS))
        self.wants_answer = self.wants_answer and (name != "acks" or value != 0)
        self._add(kind, packed(kind, value))

    def _sized(self, of: str, kind: str, data: bytes) -> None:
        self._length("length", len(data), of)
        self._add(kind, data)

    def _text(self, name: str) -> str:
        random = self._random
        if random.random() < 0.05:
            return random.choice(HOSTILE_TEXTS)
        if name == "path":
            return random.choice(self._target.log_dirs)
        for part, words in TEXTS.items():
            if part in name:
                return random.choice(words)
        if random.random() < 0.1:
            return f"victim-{random.randrange(4)}"
        return random.choice(list(self._target.topics))

    def _add(self, kind: str, data: bytes) -> None:
        self.pieces.append(Piece(kind, data))


def packed(kind: str, value: int) -> bytes:
    """Return the number in its field's size, truncated to it."""
    if kind == "bool":
        return bytes([value & 1])
    if kind == "float64":
        return struct.pack(">d", value)
    size = struct.calcsize(FORMATS[kind])
    return (value & (1 << 8 * size) - 1).to_bytes(size)


@functools.cache
def versions() -> list[tuple[int, int]]:
    """Return every served API and version."""
    return [
        (key, version) for key, spec in API_SPECS.items() for version in range(spec.min_version, spec.max_version + 1)
    ]


class Request(NamedTuple):
    """One frame as it is sent, and the API and version that it was made from."""

    api: str
    version: int
    data: bytes
    is_owed_an_answer: bool
    """True if it is valid by Kafka's definitions: then at least an error must be the response."""


def hostile_request(random: Random, target: Target) -> Request:
    """Return a request with no, one or several fields changed, in a frame that may have a wrong size."""
    key, version = random.choice(versions())
    if random.random() < 0.15:  # Batches are the most complex part, so more have them.
        key, version = PRODUCE, random.randint(API_SPECS[PRODUCE].min_version, API_SPECS[PRODUCE].max_version)
    spec = API_SPECS[key]
    message = schema.message(f"{spec.name}Request")
    writer = _Writer(random, target, version, message.flexible.hold(version))
    writer.struct(message.struct)
    pieces = list(writer.pieces)
    changes = random.choice((0, 1, 1, 1, 2, 3))
    for _ in range(changes):
        _change_piece(random, pieces)
    body = b"".join(piece.data for piece in pieces)
    header, is_whole = _header(random, key, version, spec.is_flexible(version))
    if random.random() < 0.2:
        body, is_whole = random.choice(BODY_BREAKS)(random, body), False
    if random.random() < 0.05:
        header, is_whole = random.choice(BODY_BREAKS)(random, header), False
    data = header + body
    framed = _framed(random, data)
    is_whole = is_whole and not changes and framed == struct.pack(">i", len(data)) + data
    return Request(spec.name, version, framed, is_whole and writer.wants_answer)


def _header(random: Random, key: int, version: int, flexible: bool) -> tuple[bytes, bool]:
    """Return a header, and whether it is valid."""
    is_whole = random.random() >= 0.02
    if not is_whole:
        key, version = random.choice(((key, -1), (key, 99), (key, 2**15 - 1), (-1, 0), (99, 0), (18, 77)))
    name = random.choice((None, b"fuzz", b"", b"x" * 200))
    header = struct.pack(">hhih", key, version, random.getrandbits(31), -1 if name is None else len(name)) + (
        name or b""
    )
    return header + b"\0" if flexible else header, is_whole


def _framed(random: Random, data: bytes) -> bytes:
    size = len(data)
    if random.random() < 0.04:
        size = random.choice((size - 1, size + 1, 0, -1, 2**31 - 1, -(2**31), 104_857_600, 104_857_601, size // 2))
    return struct.pack(">i", size) + data


def _change_piece(random: Random, pieces: list[Piece]) -> None:
    if pieces:
        place = random.randrange(len(pieces))
        pieces[place] = pieces[place]._replace(data=_changed(random, pieces[place]))


def _changed(random: Random, piece: Piece) -> bytes:
    if piece.kind in FORMATS and piece.kind != "float64":
        return packed(piece.kind, random.choice(EDGES))
    if piece.kind in ("count", "length", "tags", "varint"):
        return _other_length(random, len(piece.data))
    return random.choice(BODY_BREAKS)(random, piece.data)


def _other_length(random: Random, size: int) -> bytes:
    """Return a count or length that is off by one, negative, null or two gibibytes, or a varint without an end."""
    if size in (2, 4) and random.random() < 0.7:
        value = random.choice((-1, -2, 0, 1, 2, 1000, 2**15 - 1, 2**31 - 1, -(2**31), 250_001))
        return (value & (1 << 8 * size) - 1).to_bytes(size)
    value = random.choice((0, 1, 2, 3, 100, 2**14, 2**28, 2**31 - 1, 2**31, 2**32 - 1))
    return random.choice((encode_unsigned_varint(value), b"\xff" * 5, b"\xff" * 12, b"\x80" * 4 + b"\0"))


def _truncated(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _bits_flipped(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 2, 8)) if data else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _with_noise(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.randbytes(random.choice((1, 2, 4, 50))) + data[place:]


def _repeated(random: Random, data: bytes) -> bytes:
    return data * random.choice((2, 10)) if len(data) < 1000 else data


def _nonsense(random: Random, data: bytes) -> bytes:
    length = random.randrange(RAW_BYTES_MAX)
    return random.choice((b"\0" * length, b"\xff" * length, random.randbytes(length)))


BODY_BREAKS: tuple[Callable[[Random, bytes], bytes], ...] = (
    _truncated,
    _bits_flipped,
    _with_noise,
    _repeated,
    _nonsense,
)

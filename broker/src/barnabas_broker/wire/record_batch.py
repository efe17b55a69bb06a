"""The header of a record batch in message format v2, and the checks of a produced batch.

Only the header of 61 bytes is read, and the records stay as they were produced. The CRC does not cover base offset and
leader epoch, so the leader writes them in place.

The check whether batch headers are plausible. If a header is implausible, the records of the batch are checked,
too.
"""

import struct
from collections.abc import Callable, Collection
from enum import IntEnum
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final, NamedTuple

from barnabas_core.errors import ApiError, ErrorCode

Checksum = Callable[[bytes | bytearray | memoryview], int]


def extension_of_crc32c() -> Checksum:
    """Return CRC-32C from the C extension of the package crc32c, which is imported without the rest of the package.

    The package imports a command with options and importlib.metadata with email and zipfile, which take a tenth of the
    start and 2 MB. A package without such an extension is imported as a whole.
    """
    package = find_spec("crc32c")
    extension = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if extension is None or extension.loader is None:
        from crc32c import crc32c as of_package

        return of_package
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    of_extension: Checksum = module.crc32c
    return of_extension


crc32c: Final = extension_of_crc32c()

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_unpack_header: Final = HEADER.unpack_from
_new_header: Final = tuple.__new__
"""A function that creates a header from its fields in half the time of `_make`."""
HEADER_BYTES: Final = 61
LENGTH_OFFSET: Final = 12
"""The size of base offset and length, which the length field does not count."""
CRC_START: Final = 21
_COVERED: Final = slice(CRC_START, None)
"""The bytes of a batch that its CRC covers."""
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
COMPRESSION_MAX: Final = 4
CLIENTS_ATTRIBUTES: Final = frozenset(range(COMPRESSION_MAX + 1))
"""The attributes that a client may set outside a transaction: only a compression codec."""
TRANSACTIONAL_ATTRIBUTES: Final = frozenset(each | TRANSACTIONAL_BIT for each in CLIENTS_ATTRIBUTES)

PLACE: Final = struct.Struct(">qii")
"""The fields base offset, length and leader epoch, which the CRC does not cover."""
_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_CRC_PLACE: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")


class Codec(IntEnum):
    """The codecs, with their numbers in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BrokenCompression(ValueError):
    """The error for data that is invalid for the codec, or that is too large when it is decompressed."""


class BatchHeader(NamedTuple):
    """The fields of a batch header in order; `length` counts the bytes after itself, 12 less than the whole batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch in bytes."""
        return LENGTH_OFFSET + self.length

    @property
    def last_offset(self) -> int:
        """The offset of the last record of the batch."""
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        """The codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        """True if the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """True if the batch is a control batch, such as a transaction marker."""
        return bool(self.attributes & CONTROL_BIT)


def parse_header(buffer: bytes | bytearray | memoryview, position: int) -> BatchHeader:
    """Return the header at `position`. Raises struct.error if fewer than 61 bytes are left."""
    return _new_header(BatchHeader, _unpack_header(buffer, position))


def crc_matches(buffer: memoryview, position: int, header: BatchHeader) -> bool:
    """True if the CRC-32C of the bytes from the attributes to the end is the CRC in the header."""
    return bool(crc32c(buffer[position + CRC_START : position + LENGTH_OFFSET + header.length]) == header.crc)


def assign_offset(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; the CRC does not cover them."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)


def assign_log_append_time(buffer: memoryview, position: int, header: BatchHeader, now_ms: int) -> None:
    """Set the timestamp type LogAppendTime and the max timestamp, and compute the CRC again."""
    _ATTRIBUTES.pack_into(buffer, position + 21, header.attributes | LOG_APPEND_TIME_BIT)
    assign_max_timestamp(buffer, position, header, now_ms)


def assign_max_timestamp(buffer: memoryview, position: int, header: BatchHeader, timestamp_ms: int) -> BatchHeader:
    """Set the max timestamp, and compute the CRC again; return the changed header."""
    _MAX_TIMESTAMP.pack_into(buffer, position + 35, timestamp_ms)
    crc = crc32c(buffer[position + CRC_START : position + LENGTH_OFFSET + header.length])
    _CRC.pack_into(buffer, position + _CRC_PLACE, crc)
    return header._replace(max_timestamp_ms=timestamp_ms, crc=crc)


def sealed_batch(header: BatchHeader, records: bytes) -> bytearray:
    """Return a batch of `header` and `records`, which are already compressed; length and CRC are computed."""
    batch = bytearray(HEADER_BYTES)
    batch += records
    HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - LENGTH_OFFSET, crc=0))
    _CRC.pack_into(batch, _CRC_PLACE, crc32c(memoryview(batch)[_COVERED]))
    return batch


class TransactionalBatch(ApiError):
    """The error that `validate_produced` raises for a transactional batch if `attributes` does not allow such batches.

    The caller then validates the batch again with TRANSACTIONAL_ATTRIBUTES, and checks the transaction.
    """


def validate_produced(
    batch: memoryview, message_bytes_max: int, attributes: Collection[int] = CLIENTS_ATTRIBUTES
) -> BatchHeader:
    """Return the header of a produced batch. Raises ApiError if the batch breaks one of Kafka's rules.

    `attributes` lists the allowed attributes; pass TRANSACTIONAL_ATTRIBUTES for transactional batches.
    """
    size_bytes = len(batch)
    try:
        header = _new_header(BatchHeader, _unpack_header(batch))
    except struct.error:
        message = f"the batch has {size_bytes} bytes; at least {HEADER_BYTES} are needed"
        raise ApiError(ErrorCode.INVALID_RECORD, message) from None
    if (
        header.length + LENGTH_OFFSET != size_bytes
        or header.magic != MAGIC
        or header.base_offset
        or header.record_count <= 0
        or header.record_count != header.last_offset_delta + 1
        or header.attributes not in attributes
        or (header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0))
    ):
        raise _broken_rule(header, size_bytes)
    if size_bytes > message_bytes_max:
        message = f"the batch has {size_bytes} bytes, more than max.message.bytes={message_bytes_max}"
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, message)
    if crc32c(batch[_COVERED]) != header.crc:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the CRC-32C of the batch does not match its bytes")
    return header


def _broken_rule(header: BatchHeader, size_bytes: int) -> ApiError:
    """Return the error for the first broken rule; call this function only if the header breaks a rule."""
    attributes, invalid = header.attributes, ErrorCode.INVALID_RECORD
    rules = (
        (header.magic == MAGIC, invalid, f"the batch has magic {header.magic}; only {MAGIC} is allowed"),
        (
            header.length + LENGTH_OFFSET == size_bytes,
            invalid,
            f"{size_bytes} bytes were sent, but the batch has {header.size_bytes}; send one whole batch per partition",
        ),
        (not header.base_offset, invalid, f"base offset {header.base_offset} is not allowed; producers must send 0"),
        (header.record_count > 0, invalid, f"{header.record_count} records are not allowed; at least 1 is needed"),
        (
            header.record_count == header.last_offset_delta + 1,
            invalid,
            f"{header.record_count} records do not match the last offset delta {header.last_offset_delta}",
        ),
        (not header.is_control, invalid, "control batches are not allowed; only brokers write them"),
        (
            not attributes & LOG_APPEND_TIME_BIT,
            ErrorCode.INVALID_TIMESTAMP,
            "timestamp type LogAppendTime is not allowed; only brokers set it",
        ),
        (
            header.compression <= COMPRESSION_MAX,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"codec {header.compression} is unknown; allowed are 0 to {COMPRESSION_MAX}",
        ),
        (
            attributes in CLIENTS_ATTRIBUTES or attributes in TRANSACTIONAL_ATTRIBUTES,
            invalid,
            f"attributes {attributes & 0xFFFF:#06x} are not allowed; clients may set only the codec",
        ),
    )
    for holds, code, complaint in rules:
        if not holds:
            return ApiError(code, complaint)
    if header.is_transactional and min(header.producer_id, header.producer_epoch, header.base_sequence) >= 0:
        return TransactionalBatch(ErrorCode.INVALID_TXN_STATE, "a transactional batch came outside a transaction")
    return ApiError(
        invalid,
        f"the batch of producer {header.producer_id} has epoch {header.producer_epoch} and sequence "
        f"{header.base_sequence}; neither may be negative",
    )


RECORD_BYTES_MIN: Final = 7
"""The minimum size of a record: one byte each for length, attributes, timestamp, offset, two lengths and header
count."""
COMPRESSED_TO_MAX: Final = 200
"""The largest plausible compression ratio.

Records are usually compressed to a tenth of their size, and rarely to a fiftieth.
"""
TIMESTAMP_MS_MIN: Final = 946_684_800_000
"""The start of the year 2000; earlier timestamps are probably wrong, and retention would delete the records soon."""
AHEAD_MS_MAX: Final = 24 * 3600 * 1000
_BATCH_BYTES_MIN: Final = HEADER_BYTES - LENGTH_OFFSET


def is_implausible(header: BatchHeader, now_ms: int) -> bool:
    """True if the header has impossible timestamps, or too many records for its size.

    The function is hot, because every produced batch is checked.
    """
    largest_ms, count = header.max_timestamp_ms, header.record_count
    if not TIMESTAMP_MS_MIN <= header.base_timestamp_ms <= largest_ms <= now_ms + AHEAD_MS_MAX:
        return True
    if count == 1:
        return header.base_timestamp_ms != largest_ms
    bytes_max = header.length - _BATCH_BYTES_MIN
    if header.attributes & COMPRESSION_MASK:
        bytes_max *= COMPRESSED_TO_MAX
    return count * RECORD_BYTES_MIN > bytes_max

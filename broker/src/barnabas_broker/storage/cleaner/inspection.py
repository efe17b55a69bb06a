"""A client's batch looked into, for topics that are compacted or store with a codec of their own. Pure."""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas_broker.storage.cleaner.record_walk import RECORDS_BYTES_MAX, WalkedRecord, unpacked_records
from barnabas_broker.storage.cleaner.requests import InspectBatch, Inspected, Refused
from barnabas_broker.wire.compression import Codec, compress
from barnabas_broker.wire.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    parse_header,
    sealed_batch,
)
from barnabas_broker.wire.records import BrokenRecords
from barnabas_core.config.log_config import Compression, LogConfig, TimestampType
from barnabas_core.errors import ErrorCode

_CODECS: Final[Mapping[Compression, Codec]] = {
    Compression.UNCOMPRESSED: Codec.NONE,
    Compression.GZIP: Codec.GZIP,
    Compression.SNAPPY: Codec.SNAPPY,
    Compression.LZ4: Codec.LZ4,
    Compression.ZSTD: Codec.ZSTD,
}
NO_TIMESTAMP: Final = -1
_ANY_TIME_MS: Final = 2**63 - 1


def inspection(batch: bytes, config: LogConfig, now_ms: int) -> InspectBatch:
    """What the topic's settings ask of a batch."""
    codec = _CODECS.get(config.compression)
    limits_time = config.timestamp_type is TimestampType.CREATE_TIME
    return InspectBatch(
        batch=batch,
        requires_keys=config.compacted,
        codec=codec,
        level=_level(codec, config),
        unpacked_bytes_max=min(config.decompressed_message_bytes_max, RECORDS_BYTES_MAX),
        size_bytes_max=config.message_bytes_max,
        timestamp_ms_min=now_ms - config.timestamp_before_max_ms if limits_time else -_ANY_TIME_MS,
        timestamp_ms_max=now_ms + config.timestamp_after_max_ms if limits_time else _ANY_TIME_MS,
    )


def _level(codec: Codec | None, config: LogConfig) -> int | None:
    """gzip's -1 is the library's own default."""
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    level = None if codec is None else levels.get(codec)
    return None if level == -1 else level


def inspect_batch(request: InspectBatch) -> Inspected | Refused:
    """The batch as the topic stores it, or why it does not. Its header has passed the checks of any produced batch."""
    try:
        return _inspected(request, parse_header(request.batch, 0))
    except (BrokenRecords, struct.error) as error:  # The latter: timestamps beyond 64 bits.
        return Refused(ErrorCode.INVALID_RECORD, str(error))


def _inspected(request: InspectBatch, header: BatchHeader) -> Inspected | Refused:
    data, records = unpacked_records(request.batch, 0, header, request.unpacked_bytes_max)
    refused = _refused(request, header, records)
    if refused is not None:
        return refused
    codec = request.codec
    if codec is None or codec == header.compression:
        return Inspected(None)
    body = data[HEADER_BYTES:] if header.compression == Codec.NONE else data
    stored = _with_codec(header, records, body, codec, request.level)
    if len(stored) > request.size_bytes_max:
        message = f"a batch of {len(stored)} bytes in the topic's codec; max.message.bytes={request.size_bytes_max}"
        return Refused(ErrorCode.MESSAGE_TOO_LARGE, message)
    return Inspected(bytes(stored))


def _refused(request: InspectBatch, header: BatchHeader, records: Sequence[WalkedRecord]) -> Refused | None:
    for number, (_, _, _, timestamp_delta, offset_delta, key, _) in enumerate(records):
        if offset_delta != number:
            return Refused(ErrorCode.INVALID_RECORD, f"record {number} has the offset delta {offset_delta}")
        if key is None and request.requires_keys:
            return Refused(ErrorCode.INVALID_RECORD, f"record {number} has no key; cleanup.policy=compact needs one")
        timestamp_ms = header.base_timestamp_ms + timestamp_delta
        if not request.timestamp_ms_min <= timestamp_ms <= request.timestamp_ms_max and timestamp_ms != NO_TIMESTAMP:
            allowed = f"{request.timestamp_ms_min} to {request.timestamp_ms_max}"
            return Refused(
                ErrorCode.INVALID_TIMESTAMP, f"record {number} has the time {timestamp_ms}; {allowed} is taken"
            )
    return None


def _with_codec(
    header: BatchHeader, records: Sequence[WalkedRecord], body: bytes, codec: int, level: int | None
) -> bytearray:
    """The same records in another codec. The largest timestamp is theirs, not what the producer said it was."""
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    largest_ms = header.base_timestamp_ms + max(record[3] for record in records)
    if attributes & LOG_APPEND_TIME_BIT:
        largest_ms = header.max_timestamp_ms
    changed = header._replace(attributes=attributes, max_timestamp_ms=largest_ms)
    return sealed_batch(changed, compress(codec, body, level))

"""The check of a client's batch: its records must match its header and the topic's settings."""

import struct
from collections.abc import Mapping
from typing import Final

from barnabas_broker.storage.helper.record_walk import RECORDS_BYTES_MAX, unpacked
from barnabas_broker.storage.helper.requests import InspectBatch, Inspected, Refused
from barnabas_broker.storage.inspection.record_check import CheckedRecords, check_records
from barnabas_broker.wire.compression import Codec, compress
from barnabas_broker.wire.record_batch import (
    COMPRESSION_MASK,
    BatchHeader,
    parse_header,
    sealed_batch,
)
from barnabas_broker.wire.records import BrokenRecords
from barnabas_core.config.log_config import LONG_MAX, Compression, LogConfig, TimestampType
from barnabas_core.errors import ErrorCode

_CODECS: Final[Mapping[Compression, Codec]] = {
    Compression.UNCOMPRESSED: Codec.NONE,
    Compression.GZIP: Codec.GZIP,
    Compression.SNAPPY: Codec.SNAPPY,
    Compression.LZ4: Codec.LZ4,
    Compression.ZSTD: Codec.ZSTD,
}
NO_TIMESTAMP: Final = -1
NAMED_MAX: Final = 3
"""The largest number of rejected records that the error message of a batch describes."""
MESSAGES_MAX: Final = 100
"""The largest number of rejected records listed with a message; further records are listed without a message."""
RECORD_ERRORS_MAX: Final = 10_000
"""The largest number of rejected records that a response lists; if there are more, it lists none of them."""
INT64: Final = struct.Struct(">q")
_ANY_TIME_MS: Final = 2**63 - 1


def topics_codec(config: LogConfig) -> Codec | None:
    """Return the codec of the topic, or None if batches keep the codec of their producer."""
    return _CODECS.get(config.compression)


def inspects_records(config: LogConfig) -> bool:
    """True if the topic has rules for which the records must be read, because a batch header does not suffice."""
    return config.compacted or topics_codec(config) is not None or limits_earliest_time(config)


def must_inspect(config: LogConfig, header: BatchHeader) -> bool:
    """True if the records of the batch must be checked or recompressed."""
    codec = topics_codec(config)
    return config.compacted or limits_earliest_time(config) or (codec is not None and codec != header.compression)


def limits_earliest_time(config: LogConfig) -> bool:
    """True if the topic refuses records with old timestamps (message.timestamp.before.max.ms).

    A batch header shows only the latest timestamp, so the records must be read.
    """
    return config.timestamp_before_max_ms < LONG_MAX and config.timestamp_type is TimestampType.CREATE_TIME


def inspection(batch: bytes, config: LogConfig, now_ms: int) -> InspectBatch:
    """Return the `InspectBatch` for a batch of a client, with the limits from the topic's settings."""
    codec = topics_codec(config)
    keeps_times = config.timestamp_type is TimestampType.CREATE_TIME
    return InspectBatch(
        batch=batch,
        requires_keys=config.compacted,
        codec=codec,
        level=_level(codec, config),
        unpacked_bytes_max=min(config.decompressed_message_bytes_max, RECORDS_BYTES_MAX),
        size_bytes_max=config.message_bytes_max,
        timestamp_ms_min=now_ms - config.timestamp_before_max_ms if keeps_times else -_ANY_TIME_MS,
        timestamp_ms_max=now_ms + config.timestamp_after_max_ms if keeps_times else _ANY_TIME_MS,
        keeps_times=keeps_times,
    )


def _level(codec: Codec | None, config: LogConfig) -> int | None:
    """Return the topic's compression level for a codec, or None for the default level."""
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    level = None if codec is None else levels.get(codec)
    return None if level == -1 else level


def inspect_batch(request: InspectBatch) -> Inspected | Refused:
    """Check a batch with a valid header; return the batch to store, or the reasons for its refusal.

    Raises TooManyHeaders if the records have more headers than the request allows.
    """
    try:
        return _inspected(request, parse_header(request.batch, 0))
    except (BrokenRecords, struct.error) as error:  # struct.error means a timestamp beyond 64 bits.
        return Refused(ErrorCode.INVALID_RECORD, str(error), is_broken=True)


def _inspected(request: InspectBatch, header: BatchHeader) -> Inspected | Refused:
    data, position, end = unpacked(request.batch, 0, header, request.unpacked_bytes_max)
    records = check_records(data, position, end, header.record_count, request.headers_max)
    refused = _refused(request, header, records)
    if refused is not None:
        return refused
    max_timestamp_ms = header.max_timestamp_ms
    if request.keeps_times:
        max_timestamp_ms = max(NO_TIMESTAMP, header.base_timestamp_ms + max(records.timestamp_deltas))
        INT64.pack(max_timestamp_ms)
    codec = request.codec
    if codec is None or codec == header.compression:
        return Inspected(None, max_timestamp_ms)
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    changed = header._replace(attributes=attributes, max_timestamp_ms=max_timestamp_ms)
    stored = sealed_batch(changed, compress(codec, data[position:end], request.level))
    if len(stored) > request.size_bytes_max:
        message = (
            f"the recompressed batch has {len(stored)} bytes, more than max.message.bytes={request.size_bytes_max}"
        )
        return Refused(ErrorCode.MESSAGE_TOO_LARGE, message)
    return Inspected(bytes(stored), max_timestamp_ms)


def _refused(request: InspectBatch, header: BatchHeader, records: CheckedRecords) -> Refused | None:
    """Return the response that refuses the batch if any record breaks a rule of the topic, otherwise None."""
    keyless = records.keyless if request.requires_keys else []
    complaints = dict.fromkeys(keyless, "has no key, but cleanup.policy=compact requires one")
    earliest, latest = request.timestamp_ms_min, request.timestamp_ms_max
    base_ms, deltas = header.base_timestamp_ms, records.timestamp_deltas
    code = ErrorCode.INVALID_RECORD
    if base_ms + min(deltas) < earliest or base_ms + max(deltas) > latest:
        for number, delta in enumerate(deltas):
            timestamp_ms = base_ms + delta
            if not earliest <= timestamp_ms <= latest and timestamp_ms != NO_TIMESTAMP and number not in complaints:
                code = ErrorCode.INVALID_TIMESTAMP
                complaints[number] = f"has the timestamp {timestamp_ms}; allowed are {earliest} to {latest}"
    return _naming(complaints, len(deltas), code) if complaints else None


def _naming(complaints: Mapping[int, str], record_count: int, code: ErrorCode) -> Refused:
    said = [(number, f"record {number} {complaints[number]}") for number in sorted(complaints)]
    message = f"{len(said)} of {record_count} records are refused: {'; '.join(text for _, text in said[:NAMED_MAX])}"
    if len(said) > RECORD_ERRORS_MAX:
        return Refused(code, message)
    errors = [(number, text if place < MESSAGES_MAX else None) for place, (number, text) in enumerate(said)]
    return Refused(code, message, tuple(errors))

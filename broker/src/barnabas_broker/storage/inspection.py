"""The checks of clients' batches: the records must match the batch header and the topic's settings, as in LogValidator.

For batches that are already in a log, `walk_records` in `helper` checks less.
"""

import logging
import struct
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from barnabas_broker.storage.helper import (
    RECORDS_BYTES_MAX,
    RECORDS_MAX,
    Helper,
    HelperDied,
    InspectBatch,
    Inspected,
    Refused,
    Response,
    unpacked,
)
from barnabas_broker.wire.record_batch import COMPRESSION_MASK, BatchHeader, Codec, parse_header, sealed_batch
from barnabas_broker.wire.records import BrokenRecords, compress, read_varint
from barnabas_core.clock import Clock, Timeout
from barnabas_core.config.log_config import LONG_MAX, Compression, LogConfig, TimestampType
from barnabas_core.errors import ApiError, ErrorCode

_ONE_BYTE_MAX: Final = 0x7F


class TooManyHeaders(Exception):
    """The error that a batch has more record headers than the caller allows."""


class CheckedRecords(msgspec.Struct):
    """The timestamp deltas of a batch's records, and the indexes of the records without a key (`keyless`)."""

    headers_left: int
    """The number of headers that the batch may still have: the maximum minus the headers counted so far."""
    timestamp_deltas: list[int] = msgspec.field(default_factory=list)
    keyless: list[int] = msgspec.field(default_factory=list)


def check_records(
    data: bytes, position: int, end: int, count: int, headers_max: int = RECORDS_BYTES_MAX
) -> CheckedRecords:
    """Check the `count` records in `data[position:end]`; return their timestamp deltas, and which have no key.

    Raises BrokenRecords if a record is invalid, or the offset deltas are not 0, 1, 2 and so on. Raises TooManyHeaders
    if all records together have more than `headers_max` headers.
    """
    if count > RECORDS_MAX:
        raise BrokenRecords(f"the batch has {count} records; at most {RECORDS_MAX} are allowed")
    checked = CheckedRecords(headers_max)
    try:
        for number in range(count):
            position = _check_record(data, position, end, number, checked)
    except IndexError:
        raise BrokenRecords(f"record {len(checked.timestamp_deltas)} ends after the end of the batch") from None
    if position != end:
        raise BrokenRecords(f"{end - position} bytes follow the last of {count} records")
    return checked


def _check_record(data: bytes, position: int, end: int, number: int, checked: CheckedRecords) -> int:
    """Check a record, add its properties to `checked`, and return the position of the next record.

    A varint of one byte, the most frequent length, is decoded without a function call for speed.
    """
    length, position = read_varint(data, position)
    record_end = position + length
    byte = data[position + 1]
    position += 2
    if byte > _ONE_BYTE_MAX:
        timestamp_delta, position = read_varint(data, position - 1)
    else:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
    offset_delta, position = read_varint(data, position)
    if offset_delta != number:
        raise BrokenRecords(f"record {number} has the offset delta {offset_delta}, which must be the record's number")
    key_bytes, position = _read_length(data, position)
    if key_bytes < 0:
        checked.keyless.append(number)
    else:
        position += key_bytes
    value_bytes, position = _read_length(data, position)
    if value_bytes > 0:
        position += value_bytes
    if data[position]:
        position = _behind_headers(data, position, min(record_end, end), checked)
    else:
        position += 1
    if position != record_end or position > end:
        raise BrokenRecords(f"record {number} has a length of {length} bytes, but its fields have another length")
    checked.timestamp_deltas.append(timestamp_delta)
    return position


def _read_length(data: bytes, position: int) -> tuple[int, int]:
    """Return the length of a key or value, and the position after the length. A negative length means null."""
    byte = data[position]
    if byte > _ONE_BYTE_MAX:
        return read_varint(data, position)
    return (byte >> 1) ^ -(byte & 1), position + 1


def _behind_headers(data: bytes, position: int, record_end: int, checked: CheckedRecords) -> int:
    count, position = read_varint(data, position)
    if not 0 <= count <= record_end - position:
        raise BrokenRecords(f"a record has {count} headers, which do not fit into the record")
    checked.headers_left -= count
    if checked.headers_left < 0:
        raise TooManyHeaders
    for _ in range(count):
        key_bytes, position = read_varint(data, position)
        if key_bytes < 0:
            raise BrokenRecords("a record has a header without a key")
        value_bytes, position = read_varint(data, position + key_bytes)
        position += max(value_bytes, 0)
    return position


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
    texts = [(number, f"record {number} {complaints[number]}") for number in sorted(complaints)]
    message = f"{len(texts)} of {record_count} records are refused: {'; '.join(text for _, text in texts[:NAMED_MAX])}"
    if len(texts) > RECORD_ERRORS_MAX:
        return Refused(code, message)
    errors = [(number, text if place < MESSAGES_MAX else None) for place, (number, text) in enumerate(texts)]
    return Refused(code, message, tuple(errors))


class CannotKeep(ApiError):
    """The error for a batch that may not wait, because too many bytes wait already. The error is retriable."""


class KeptBatches:
    """Copies of batches with at most `bytes_max` bytes in total; `awaited` says in messages what they wait for."""

    __slots__ = ("_awaited", "_bytes_max", "bytes_kept")

    def __init__(self, bytes_max: int, awaited: str) -> None:
        self._bytes_max = bytes_max
        self._awaited = awaited
        self.bytes_kept = 0

    def keep(self, batch: memoryview) -> bytes:
        """Return a copy of the batch, which counts until `release`. A batch that is the only copy may have any size.

        Raises CannotKeep if there are other copies, and all copies together would have more than `bytes_max` bytes.
        """
        if self.bytes_kept and self.bytes_kept + len(batch) > self._bytes_max:
            message = (
                f"too many batches wait {self._awaited}: they have {self.bytes_kept} bytes in total, and the limit is "
                f"{self._bytes_max} bytes; try again"
            )
            raise CannotKeep(ErrorCode.REQUEST_TIMED_OUT, message)
        self.bytes_kept += len(batch)
        return bytes(batch)

    def release(self, batch: bytes) -> None:
        """Release a copy that `keep` returned."""
        self.bytes_kept -= len(batch)


_logger: Final = logging.getLogger(__name__)
RECORDS_HERE_MAX: Final = 64
"""The largest number of records in a batch that is checked on the event loop.

The event loop takes 0.1 ms for so many records, the helper process 0.17 ms.
"""
FIRST_HERE_MAX: Final = 500
"""The largest number of records in a connection's first batch that is checked on the event loop.

The event loop takes 0.7 ms for so many records, but no helper process has to be started.
"""
PACKED_HERE_MAX: Final = 16 * 1024
UNPACKED_HERE_MAX: Final = 128 * 1024
"""The largest decompressed size of a batch that is checked on the event loop (0.1 ms, or 0.4 ms with gzip)."""
HEADERS_A_RECORD_HERE: Final = 8
"""The limit for the average number of headers per record, above which a batch is checked by the helper process.

Checking a header takes 1 us, and a record of 1 MB may have 500,000 headers.
"""
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest total size of the batches that wait for the helper, which needs one to six seconds for so many bytes.

A single batch may be larger.
"""
ANSWER_S_MAX: Final = 25.0
"""The longest time in seconds to wait until the helper process has checked a batch.

Producers wait longer for the response to a Produce request: 30 s by the default of request.timeout.ms.
"""
_ATTEMPTS: Final = 2


class BatchRefused(ApiError):
    """A batch with invalid records. `record_errors` lists them; if it is empty, the whole batch is invalid.

    `is_broken` is True if the bytes cannot be parsed as records.
    """

    def __init__(self, refused: Refused) -> None:
        super().__init__(ErrorCode(refused.code), refused.message)
        self.record_errors = refused.record_errors
        self.is_broken = refused.is_broken


class CannotInspect(ApiError):
    """The error for a batch that could not be checked. The batch may be valid, so the error is retriable."""


class BatchInspector:
    """The checks of clients' batches.

    They have a helper process of their own, so that they need not wait for a compaction in the other helper process.
    """

    def __init__(self, helper: Helper, clock: Clock, timeout: Timeout) -> None:
        self._helper = helper
        self._clock = clock
        self._timeout = timeout
        self.kept = KeptBatches(KEPT_BYTES_MAX, "to be checked")

    def inspect_now(self, batch: bytes, config: LogConfig) -> Inspected | None:
        """Check the records of a batch on the event loop; the batch header must be valid, and `is_quick` true.

        Raises BatchRefused if the batch is invalid. Returns None if only the helper process can check the batch,
        because the batch cannot be decompressed within the limits of the event loop, or its records have too many
        record headers.
        """
        header = parse_header(batch, 0)
        is_packed = header.compression != Codec.NONE
        request = inspection(batch, config, self._clock.now_ms())
        bytes_max = min(request.unpacked_bytes_max, UNPACKED_HERE_MAX) if is_packed else request.unpacked_bytes_max
        headers_max = HEADERS_A_RECORD_HERE * (header.record_count + 1)
        try:
            answer = inspect_batch(replace(request, unpacked_bytes_max=bytes_max, headers_max=headers_max))
        except TooManyHeaders:
            return None
        return None if is_packed and isinstance(answer, Refused) and answer.is_broken else _accepted(answer)

    @property
    def is_busy(self) -> bool:
        """True while batches wait for the helper."""
        return self.kept.bytes_kept > 0

    async def inspect(self, batch: bytes, config: LogConfig) -> Inspected:
        """Inspect a batch in the helper process.

        Raises BatchRefused if the batch is invalid, CannotInspect if the helper dies or does not answer in time, and
        another ApiError if the check fails with an unexpected error.
        """
        return _accepted(await self._ask(inspection(batch, config, self._clock.now_ms())))

    async def stop(self) -> None:
        """End the helper process."""
        await self._helper.stop()

    async def _ask(self, request: InspectBatch) -> Response:
        """Send the request to the helper process; if the process dies, send it once more to a new process.

        The second attempt is useful because another batch may have killed the process. Raises CannotInspect if the
        second process dies too, or if the helper does not answer in time.
        """
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                async with self._timeout(ANSWER_S_MAX):
                    return await self._helper.request(request)
            except (HelperDied, OSError) as error:
                reason = str(error)
            except TimeoutError:
                await self._helper.stop()
                reason = f"the helper process gave no answer within {ANSWER_S_MAX} s"
                break
        _logger.error("a batch of %d bytes could not be checked: %s", len(request.batch), reason)
        raise CannotInspect(ErrorCode.REQUEST_TIMED_OUT, f"the batch could not be checked: {reason}; try again")


def is_quick(config: LogConfig, header: BatchHeader, records_max: int) -> bool:
    """True if the event loop can check the batch: small, at most `records_max` records, and no recompression."""
    if topics_codec(config) not in {None, header.compression} or header.record_count > records_max:
        return False
    return header.compression == Codec.NONE or header.length <= PACKED_HERE_MAX


def _accepted(answer: Response) -> Inspected:
    if isinstance(answer, Inspected):
        return answer
    if isinstance(answer, Refused):
        raise BatchRefused(answer)
    raise ApiError(ErrorCode.INVALID_RECORD, f"the batch could not be checked: {answer}")

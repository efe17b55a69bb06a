"""Clients' batches for topics that are compacted or have a codec of their own (F03)."""

import asyncio
import random
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from compaction_samples import COMPACT, NOW_MS, HelperHere
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.helper import Failed, HelperDied, Inspected, Request, Response
from barnabas_broker.storage.inspection import (
    HEADERS_A_RECORD_HERE,
    MESSAGES_MAX,
    RECORD_ERRORS_MAX,
    RECORDS_HERE_MAX,
    UNPACKED_HERE_MAX,
    BatchInspector,
    BatchRefused,
    inspects_records,
    is_quick,
    must_inspect,
)
from barnabas_broker.wire.record_batch import Codec, crc_matches, parse_header
from barnabas_broker.wire.records import Header, Record, decode_batch, encode_batch
from barnabas_core.config.log_config import Compression, LogConfig, TimestampType
from barnabas_core.errors import ApiError, ErrorCode
from harness.manual_clock import ManualClock

COMPACTED = LogConfig(cleanup_policies=COMPACT)
MANY = RECORDS_HERE_MAX + 1


def batch(records: int = 3, *, codec: int = 0, key: bytes | None = b"key", times: Sequence[int] = ()) -> bytes:
    made = [
        Record(number, times[number] if times else NOW_MS + number, key, b"value" * 20) for number in range(records)
    ]
    return bytes(
        encode_batch(made, attributes=codec | 0x10, producer_id=5, producer_epoch=2, base_sequence=70, leader_epoch=-1)
    )


def inspector(helper: Any = None) -> BatchInspector:
    beside: Any = HelperHere(PosixFileSystem())
    return BatchInspector(helper or beside, ManualClock(), asyncio.timeout)


def inspect(data: bytes, config: LogConfig, helper: Any = None) -> bytes:
    return stored(data, asyncio.run(inspector(helper).inspect(data, config)))


def stored(data: bytes, inspected: Inspected) -> bytes:
    return data if inspected.batch is None else inspected.batch


@pytest.mark.parametrize("target", [each for each in Compression if each is not Compression.PRODUCER])
@pytest.mark.parametrize("source", list(Codec))
def test_a_batch_gets_the_topics_codec_and_is_otherwise_unchanged(source: Codec, target: Compression) -> None:
    data = batch(100, codec=source)
    result = inspect(data, LogConfig(compression=target))
    before, after = parse_header(data, 0), parse_header(result, 0)
    codec = Codec.NONE if target is Compression.UNCOMPRESSED else Codec[target.name]
    assert after.compression == codec
    assert crc_matches(memoryview(result), 0, after)
    assert after._replace(crc=0, length=0, attributes=0) == before._replace(crc=0, length=0, attributes=0)
    assert after.attributes & ~7 == before.attributes & ~7
    assert decode_batch(result, 0, after, 1 << 20) == decode_batch(data, 0, before, 1 << 20)
    assert (result is data) == (source == codec)


@pytest.mark.parametrize(
    ("config", "codec", "must"),
    [
        (LogConfig(), Codec.NONE, False),
        (COMPACTED, Codec.NONE, True),
        (LogConfig(compression=Compression.LZ4), Codec.LZ4, False),
        (LogConfig(compression=Compression.LZ4), Codec.NONE, True),
        (LogConfig(timestamp_before_max_ms=1000), Codec.NONE, True),
        (LogConfig(timestamp_before_max_ms=1000, timestamp_type=TimestampType.LOG_APPEND_TIME), Codec.NONE, False),
    ],
)
def test_a_batch_is_inspected_only_if_its_header_does_not_suffice_for_its_topic(
    config: LogConfig, codec: Codec, must: bool
) -> None:
    assert must_inspect(config, parse_header(batch(codec=codec), 0)) == must
    assert inspects_records(config) >= must


@pytest.mark.parametrize(
    ("compression", "levels"),
    [
        (Compression.GZIP, [{"compression_gzip_level": level} for level in (-1, 1, 9)]),
        (Compression.LZ4, [{"compression_lz4_level": level} for level in (1, 9, 17)]),
        (Compression.ZSTD, [{"compression_zstd_level": level} for level in (-131072, 3, 22)]),
    ],
)
def test_the_topics_compression_level_is_used(compression: Compression, levels: list[dict[str, int]]) -> None:
    words = [b"carrier", b"flight", b"tailnum", b"origin", b"dest", b"distance"]
    made = [
        Record(number, NOW_MS, b"k", words[number * number % 6] + b"%d" % (number * 7919)) for number in range(2000)
    ]
    data = bytes(encode_batch(made))
    sizes = [len(inspect(data, LogConfig(compression=compression, **level))) for level in levels]  # type: ignore[arg-type]
    assert sizes[2] < sizes[0 if compression is not Compression.GZIP else 1]


@pytest.mark.parametrize("records", [3, MANY])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_record_without_a_key_is_refused_for_a_compacted_topic_only(records: int, codec: Codec) -> None:
    data = batch(records, codec=codec, key=None)
    with pytest.raises(ApiError, match=r"record 0 has no key, but cleanup\.policy=compact requires one") as refused:
        inspect(data, COMPACTED)
    assert refused.value.code == ErrorCode.INVALID_RECORD
    assert inspect(batch(records, codec=codec), COMPACTED)
    assert inspect(data, LogConfig(compression=Compression.ZSTD))


def test_small_batches_that_keep_their_codec_are_inspected_in_the_broker() -> None:
    def quick(config: LogConfig, data: bytes) -> bool:
        return is_quick(config, parse_header(data, 0), RECORDS_HERE_MAX)

    assert quick(COMPACTED, batch(RECORDS_HERE_MAX))
    assert quick(COMPACTED, batch(1, codec=Codec.ZSTD))
    assert quick(LogConfig(compression=Compression.ZSTD), batch(1, codec=Codec.ZSTD))
    assert not quick(LogConfig(compression=Compression.ZSTD), batch(1))
    assert not quick(COMPACTED, batch(MANY))
    large = [Record(0, NOW_MS, b"k", random.Random(0).randbytes(20_000))]
    assert not quick(COMPACTED, bytes(encode_batch(large, attributes=Codec.ZSTD)))


@pytest.mark.parametrize("value_bytes", [UNPACKED_HERE_MAX // 2, UNPACKED_HERE_MAX])
def test_a_batch_that_unpacks_to_many_bytes_is_not_inspected_in_the_broker(value_bytes: int) -> None:
    data = bytes(encode_batch([Record(0, NOW_MS, b"k", bytes(value_bytes))], attributes=Codec.GZIP))
    decided = inspector().inspect_now(data, COMPACTED)
    assert decided == (Inspected(None, NOW_MS) if value_bytes < UNPACKED_HERE_MAX else None)


@pytest.mark.parametrize("headers", [0, 2 * HEADERS_A_RECORD_HERE, 2 * HEADERS_A_RECORD_HERE + 1, 100_000])
def test_records_with_many_headers_are_not_inspected_in_the_broker(headers: int) -> None:
    made = [Record(0, NOW_MS, b"k", b"v", [Header("h", None)] * headers)]
    data = bytes(encode_batch(made))
    decided = inspector().inspect_now(data, COMPACTED)
    assert decided == (Inspected(None, NOW_MS) if headers <= 2 * HEADERS_A_RECORD_HERE else None)
    assert inspect(data, COMPACTED) == data


@pytest.mark.parametrize("count", [MESSAGES_MAX + 1, RECORD_ERRORS_MAX + 1])
def test_the_errors_and_messages_for_invalid_records_are_limited_in_number(count: int) -> None:
    data = bytes(encode_batch([Record(number, NOW_MS, None, b"") for number in range(count)]))
    with pytest.raises(BatchRefused) as refused:
        inspect(data, COMPACTED)
    assert len(refused.value.record_errors) == (count if count <= RECORD_ERRORS_MAX else 0)
    assert sum(text is not None for _, text in refused.value.record_errors) <= MESSAGES_MAX
    assert refused.value.message is not None
    assert refused.value.message.startswith(f"{count} of {count} records are refused: record 0 has no key,")


def test_a_record_time_out_of_bounds_is_refused_even_if_the_header_hides_it() -> None:
    data = encode_batch(
        [Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS + 3_600_001, b"k", b"v")], max_timestamp_ms=NOW_MS
    )
    with pytest.raises(ApiError) as refused:
        inspect(bytes(data), COMPACTED)
    assert refused.value.code == ErrorCode.INVALID_TIMESTAMP
    assert inspect(bytes(data), LogConfig(cleanup_policies=COMPACT, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert inspect(batch(2, times=[-1, -1]), COMPACTED)


def test_offset_deltas_that_are_not_consecutive_are_refused() -> None:
    data = encode_batch([Record(0, NOW_MS, b"k", b"v"), Record(2, NOW_MS, b"k", b"v")])
    with pytest.raises(ApiError, match="record 1 has the offset delta 2"):
        inspect(bytes(data), COMPACTED)


def test_a_batch_that_is_too_large_in_the_topics_codec_is_refused() -> None:
    data = batch(100, codec=Codec.ZSTD)
    with pytest.raises(ApiError, match=r"max\.message\.bytes=2000") as refused:
        inspect(data, LogConfig(compression=Compression.UNCOMPRESSED, message_bytes_max=2000))
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_small_batch_that_unpacks_to_more_than_allowed_is_refused() -> None:
    data = bytes(encode_batch([Record(0, NOW_MS, b"k", bytes(1 << 22))], attributes=Codec.ZSTD))
    assert len(data) < 2000
    with pytest.raises(ApiError, match="more than 1048576 bytes") as refused:
        inspect(data, LogConfig(cleanup_policies=COMPACT, decompressed_message_bytes_max=1 << 20))
    assert refused.value.code == ErrorCode.INVALID_RECORD


@given(
    body=st.binary(max_size=120),
    codec=st.integers(0, 7),
    count=st.integers(1, 3),
    base_ms=st.integers(-(2**63), 2**63 - 1),
)
def test_hostile_batches_are_refused_or_stored_and_never_cause_a_crash(
    body: bytes, codec: int, count: int, base_ms: int
) -> None:
    good = batch(1)
    header = parse_header(good, 0)._replace(attributes=codec, record_count=count, base_timestamp_ms=base_ms)
    data = bytearray(good[:61]) + body
    struct.pack_into(">qiibIhiqqqhii", data, 0, *header._replace(length=len(data) - 12))
    config = LogConfig(cleanup_policies=COMPACT, compression=Compression.GZIP, timestamp_before_max_ms=2**63 - 1)
    refused: ErrorCode | None = None
    try:
        result = inspect(bytes(data), config)
    except ApiError as error:
        refused = error.code
    else:
        assert len(decode_batch(result, 0, parse_header(result, 0), 1 << 20)) == count
    assert refused in {None, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP}


class FailingHelper:
    """A helper that dies so many times, and then answers."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        self.here = HelperHere(PosixFileSystem())

    async def request(self, request: Request) -> Response:
        self.deaths -= 1
        if self.deaths >= 0:
            raise HelperDied("the helper process ended with exit code -9")
        return await self.here.request(request)


def test_an_inspection_is_retried_after_one_death_of_the_helper_and_fails_after_two() -> None:
    zstd = LogConfig(compression=Compression.ZSTD)
    assert parse_header(inspect(batch(), zstd, FailingHelper(1)), 0).compression == Codec.ZSTD
    with pytest.raises(ApiError, match="exit code -9; try again") as refused:
        inspect(batch(), zstd, FailingHelper(2))
    assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT


def test_a_batch_that_the_helper_cannot_inspect_is_refused_with_its_reason() -> None:
    class NoMemory:
        async def request(self, request: Request) -> Response:
            return Failed("not enough memory")

    with pytest.raises(ApiError, match="not enough memory") as refused:
        inspect(batch(), LogConfig(compression=Compression.ZSTD), NoMemory())
    assert refused.value.code == ErrorCode.INVALID_RECORD

"""Walking the records of a batch against decoding them, and against bytes that are no records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.storage.helper import unpacked_records, walk_records
from barnabas_broker.wire.record_batch import HEADER_BYTES, Codec, parse_header
from barnabas_broker.wire.records import BrokenRecords, Header, Record, decode_batch, encode_batch

NULLABLE = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.tuples(
        st.integers(1, 3000),
        st.integers(0, 2**41),
        NULLABLE,
        NULLABLE,
        st.lists(st.builds(Header, st.text(max_size=3), NULLABLE), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


def as_records(drawn: list[tuple[int, int, bytes | None, bytes | None, list[Header]]]) -> list[Record]:
    """Return the records; the first number of each is the gap to the record before."""
    records, delta = [], -1
    for gap, timestamp_ms, key, value, headers in drawn:
        delta += gap
        records.append(Record(delta, timestamp_ms, key, value, headers))
    return records


@given(drawn=RECORDS, codec=st.sampled_from(Codec), before=st.binary(max_size=20))
def test_a_walk_finds_the_same_records_as_decoding(drawn: list[Any], codec: Codec, before: bytes) -> None:
    batch = bytes(encode_batch(as_records(drawn), attributes=codec))
    header = parse_header(batch, 0)
    data, walked = unpacked_records(before + batch + b"next", len(before), header, 1 << 20)
    decoded = decode_batch(batch, 0, header, 1 << 20)
    assert [(header.base_timestamp_ms + each[3], each[4], each[5], each[6]) for each in walked] == [
        (each.timestamp_ms, each.offset_delta, each.key, each.value is not None) for each in decoded
    ]
    assert b"".join(data[start:end] for start, _, end, *_ in walked) in data


@given(data=st.binary(max_size=100), count=st.integers(0, 5))
def test_a_walk_of_random_bytes_is_refused_or_fills_them(data: bytes, count: int) -> None:
    try:
        walked = walk_records(data, 0, len(data), count)
    except BrokenRecords:
        return
    assert len(walked) == count
    assert walked == [] or walked[-1][2] == len(data)


@given(drawn=RECORDS, place=st.integers(0, 10**6), bits=st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_still_fills_the_batch(drawn: list[Any], place: int, bits: int) -> None:
    batch = encode_batch(as_records(drawn))
    header = parse_header(batch, 0)
    batch[HEADER_BYTES + place % (len(batch) - HEADER_BYTES)] ^= bits
    try:
        walked = unpacked_records(bytes(batch), 0, header, 1 << 20)[1]
    except BrokenRecords:
        return
    assert len(walked) == header.record_count
    assert walked[-1][2] == len(batch)
    assert sorted({each[4] for each in walked}) == [each[4] for each in walked]


def test_a_walk_of_more_than_a_million_records_is_refused() -> None:
    with pytest.raises(BrokenRecords, match="the batch has 1000001 records"):
        walk_records(b"", 0, 0, 1_000_001)


def test_a_batch_that_unpacks_to_more_bytes_than_allowed_is_refused() -> None:
    batch = bytes(encode_batch([Record(0, 0, b"k", bytes(10_000))], attributes=Codec.ZSTD))
    with pytest.raises(BrokenRecords, match="more than 9999 bytes"):
        unpacked_records(batch, 0, parse_header(batch, 0), 9999)

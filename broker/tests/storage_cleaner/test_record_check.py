"""The full check of a client's records agrees with the decoder that all other code uses."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_broker.storage.inspection import check_records
from barnabas_broker.wire.record_batch import HEADER_BYTES, parse_header, sealed_batch
from barnabas_broker.wire.records import BrokenRecords, Header, Record, decode_batch, encode_batch, encode_varint
from harness.soak import size

fields = st.none() | st.binary(max_size=100)
headers = st.lists(st.builds(Header, st.text(max_size=5), fields), max_size=3)
times = st.integers(-(2**40), 2**41)
records = st.lists(st.tuples(times, fields, fields, headers), min_size=1, max_size=80).map(
    lambda rows: [Record(number, *row) for number, row in enumerate(rows)]
)


@settings(max_examples=size(60, 2_000))
@given(made=records)
def test_the_check_returns_the_times_and_the_records_without_a_key(made: list[Record]) -> None:
    batch = bytes(encode_batch(made))
    found = check_records(batch, HEADER_BYTES, len(batch), len(made))
    assert [made[0].timestamp_ms + delta for delta in found.timestamp_deltas] == [each.timestamp_ms for each in made]
    assert found.keyless == [each.offset_delta for each in made if each.key is None]


edges = st.sampled_from([-(2**63), -(2**31), -2, -1, 0, 1, 2, 63, 64, 2**31 - 1, 2**63 - 1]).map(encode_varint)


FORGED_LENGTH = b"\xfe\xff\xff\xff\x0f"
"""The length of a record of 2 GiB, which would have as many headers."""


@settings(max_examples=size(100, 5_000))
@example(made=[Record(0, 0, None, b"", [Header("1\U00080000", None)])], place=0, cut=3, new=FORGED_LENGTH)
@given(made=records, place=st.integers(0, 10_000), cut=st.integers(0, 3), new=edges | st.binary(max_size=12))
def test_the_check_accepts_only_records_that_can_be_decoded(
    made: list[Record], place: int, cut: int, new: bytes
) -> None:
    body = bytearray(encode_batch(made)[HEADER_BYTES:])
    start = place % len(body)
    body[start : start + cut] = new
    header = parse_header(sealed_batch(parse_header(encode_batch(made), 0), bytes(body)), 0)
    batch = bytes(sealed_batch(header, bytes(body)))
    read: list[Record] | None
    try:
        read = decode_batch(batch, 0, header, 1 << 20)
    except BrokenRecords:
        read = None
    try:
        found = check_records(bytes(body), 0, len(body), len(made))
    except BrokenRecords:
        assert read is None or [each.offset_delta for each in read] != list(range(len(made)))
    else:
        assert read is not None
        assert found.keyless == [each.offset_delta for each in read if each.key is None]


def test_the_check_refuses_more_than_a_million_records() -> None:
    with pytest.raises(BrokenRecords, match="the batch has 1000001 records; at most 1000000 are allowed"):
        check_records(b"", 0, 0, 1_000_001)

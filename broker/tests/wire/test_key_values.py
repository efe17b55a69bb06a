"""The fast reader of keys and values finds those that the decoder of records finds."""

from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.wire.key_values import KeyValueReader
from barnabas_broker.wire.record_batch import CONTROL_BIT, parse_header
from barnabas_broker.wire.records import BrokenRecords, Header, Record, decode_batch, encode_batch
from harness.soak import size

BYTES_MAX = 1_000_000
DATA = st.none() | st.binary(max_size=20) | st.integers(60, 70).map(bytes) | st.integers(8_180, 8_200).map(bytes)
HEADERS = st.lists(st.builds(Header, st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2)


@st.composite
def batches(draw: st.DrawFn) -> list[bytearray]:
    made, offset = [], 0
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 6))
        records = [
            Record(delta, draw(st.integers(0, 2**42)), draw(DATA), draw(DATA), draw(HEADERS)) for delta in range(count)
        ]
        attributes = draw(st.integers(0, 4)) | draw(st.sampled_from([0, 0, 0, CONTROL_BIT]))
        made.append(encode_batch(records, base_offset=offset, attributes=attributes))
        offset += count
    return made


def _read(data: bytes) -> tuple[dict[bytes, bytes | None], int | None]:
    reader = KeyValueReader(data, BYTES_MAX)
    newest: dict[bytes, bytes | None] = {}
    for some in reader.slices():
        if isinstance(some, Mapping):
            newest.update(some)
    return newest, reader.next_offset


@given(batches(), st.integers(0, 100))
def test_the_last_value_of_each_key_is_read_and_an_incomplete_batch_is_left_out(
    made: list[bytearray], tail: int
) -> None:
    expected: dict[bytes, bytes | None] = {}
    for batch in made:
        header = parse_header(batch, 0)
        if not header.is_control:
            records = decode_batch(batch, 0, header, BYTES_MAX)
            expected.update((each.key, each.value) for each in records if each.key is not None)
    last = parse_header(made[-1], 0).last_offset
    assert _read(bytes(b"".join(made)) + bytes(made[0])[: min(tail, len(made[0]) - 1)]) == (expected, last + 1)


@pytest.mark.parametrize("attributes", [0, 2], ids=["plain", "snappy"])
def test_a_large_batch_is_read_in_slices(attributes: int) -> None:
    records = [Record(number, 0, b"%d" % number, b"x") for number in range(4_500)]
    data = bytes(encode_batch(records, attributes=attributes))
    sizes = [len(some) for some in KeyValueReader(data, BYTES_MAX).slices()]
    assert sum(sizes) == 4_500
    assert max(sizes) <= 1_000


@settings(max_examples=size(60, 3_000))
@given(batches(), st.data())
def test_damaged_batches_raise_only_broken_records(made: list[bytearray], data: st.DataObject) -> None:
    damaged = bytearray(b"".join(made))
    for _ in range(3):
        damaged[data.draw(st.integers(16, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(BrokenRecords):
        _read(bytes(damaged))


@pytest.mark.parametrize(("base_offset", "last_delta"), [(0, 0), (5, -1)], ids=["from before", "without an end"])
def test_a_batch_whose_offsets_go_backwards_is_refused_as_damaged(base_offset: int, last_delta: int) -> None:
    record = Record(0, 0, b"key", b"value")
    first = encode_batch([record], base_offset=4)
    second = encode_batch([record], base_offset=base_offset, last_offset_delta=last_delta)
    with pytest.raises(BrokenRecords, match=f"batch at offset {base_offset}"):
        _read(bytes(first + second))

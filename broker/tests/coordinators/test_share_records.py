"""The records of `__share_group_state` are Kafka's, byte for byte, and batches are combined as Kafka combines them."""

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.coordinators.runtime.turns import MalformedRecord
from barnabas_broker.coordinators.share_state.share_state import (
    SharePartitionKey,
    ShareRecord,
    ShareState,
    StateBatch,
    applied,
    decode,
    merged,
    parse_key,
)

TOPIC = UUID(bytes=bytes.fromhex("674e") + bytes(14))
TEXT = "Z04AAAAAAAAAAAAAAAAAAA"
KEY = SharePartitionKey("g", TOPIC, 0)
GOLDEN_KEY = "0001 67 674e0000000000000000000000000000 00000000"
SNAPSHOT = "0000 00000000 00000002 00000000 ffffffffffffffff 00000000000003e8 00000000000003e8 01 00"
FIRST_UPDATE = """0000 00000000 00000000 0000000000000000 05
    0000000000000000 0000000000000000 02 0001 00   0000000000000001 0000000000000001 00 0001 00
    0000000000000002 0000000000000002 03 0001 00   0000000000000003 0000000000000005 02 0001 00
    01 00 04 00000004"""
SECOND_UPDATE = """0000 00000000 00000000 0000000000000001 02
    0000000000000001 0000000000000001 02 0002 00   01 00 04 00000004"""
LAST_UPDATE = """0000 00000000 00000000 0000000000000002 02
    0000000000000002 0000000000000002 04 0001 00   01 00 04 00000004"""
"""What Apache Kafka 4.4 writes when six records are acknowledged, one of them after its release, one dead-lettered."""

BEGUN = ShareRecord(KEY, ShareState(0, 2, 0, -1, -1, 1000, 1000))
BATCHES = (StateBatch(0, 0, 2, 1), StateBatch(1, 1, 0, 1), StateBatch(2, 2, 3, 1), StateBatch(3, 5, 2, 1))


def update(start_offset: int, *batches: StateBatch) -> ShareRecord:
    return ShareRecord(KEY, ShareState(0, 0, 0, start_offset, 4, batches=list(batches)), is_update=True)


@pytest.mark.parametrize(
    ("kind", "value", "record"),
    [
        ("0000", SNAPSHOT, BEGUN),
        ("0001", FIRST_UPDATE, update(0, *BATCHES)),
        ("0001", SECOND_UPDATE, update(1, StateBatch(1, 1, 2, 2))),
        ("0001", LAST_UPDATE, update(2, StateBatch(2, 2, 4, 1))),
    ],
)
def test_a_record_has_the_bytes_of_apache_kafka(kind: str, value: str, record: ShareRecord) -> None:
    key = bytes.fromhex(kind + GOLDEN_KEY)
    assert record.encode() == (key, bytes.fromhex(value))
    found = decode(key, bytes.fromhex(value))
    assert found is not None
    assert found.state is not None
    assert record.state is not None
    assert found._replace(state=None) == record._replace(state=None)
    assert found.state._replace(batches=()) == record.state._replace(batches=())
    assert list(found.state.batches) == list(record.state.batches)


def test_a_state_is_its_snapshot_and_all_updates_after_it() -> None:
    state = None
    for kind, value in (("0000", SNAPSHOT), ("0001", FIRST_UPDATE), ("0001", SECOND_UPDATE), ("0001", LAST_UPDATE)):
        record = decode(bytes.fromhex(kind + GOLDEN_KEY), bytes.fromhex(value))
        assert record is not None
        state = applied(state, record)
    assert state is not None
    assert (state.state_epoch, state.start_offset, state.delivery_complete_count) == (2, 2, 4)
    assert state.batches == [StateBatch(2, 2, 4, 1), StateBatch(3, 5, 2, 1)]
    assert state.updates == 3


def test_a_deletion_is_a_snapshot_without_a_value() -> None:
    key, value = ShareRecord(KEY, None).encode()
    assert (key, value) == (bytes.fromhex("0000" + GOLDEN_KEY), None)
    assert decode(key, value) == ShareRecord(KEY, None)
    assert applied(BEGUN.state, ShareRecord(KEY, None)) is None


def test_an_update_whose_snapshot_was_pruned_is_the_whole_state() -> None:
    state = applied(None, update(1, StateBatch(1, 1, 2, 2)))
    assert state is not None
    assert (state.start_offset, state.batches) == (1, [StateBatch(1, 1, 2, 2)])


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("0000" + GOLDEN_KEY, SNAPSHOT[:40], "share state"),
        ("0000 0001 67 674e", SNAPSHOT, "share state"),
        ("0001" + GOLDEN_KEY.replace("00000000", "ffffffff"), LAST_UPDATE, "partition -1"),
        (
            "0001" + GOLDEN_KEY,
            "0000 00000000 00000000 0000000000000002 02 0000000000000005 0000000000000002 04 0001 00 00",
            "5 to 2",
        ),
    ],
)
def test_a_damaged_record_is_malformed(key: str, value: str, reason: str) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        decode(bytes.fromhex(key), bytes.fromhex(value))


def test_records_of_unknown_versions_are_skipped() -> None:
    assert decode(bytes.fromhex("0002" + GOLDEN_KEY), bytes.fromhex(SNAPSHOT)) is None
    assert decode(bytes.fromhex("0000" + GOLDEN_KEY), bytes.fromhex("0001")) is None


def test_the_name_of_a_share_partition_is_kafkas_and_is_split_from_the_right() -> None:
    key = SharePartitionKey("a:b", TOPIC, 7)
    assert key.name == f"a:b:{TEXT}:7"
    assert parse_key(key.name) == key


@pytest.mark.parametrize(
    "name", ["", "g", "g:7", ":Z04AAAAAAAAAAAAAAAAAAA:7", "g:short:7", "g:Z04AAAAAAAAAAAAAAAAAAA:x"]
)
def test_a_name_that_is_no_share_partitions_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_key(name)


batches = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 30),
    st.integers(0, 8),
    st.sampled_from([0, 2, 3, 4]),
    st.integers(0, 3),
)


@given(st.lists(batches, max_size=12), st.integers(0, 20))
def test_the_higher_delivery_count_and_state_win_at_each_offset(changes: list[StateBatch], start_offset: int) -> None:
    expected: dict[int, tuple[int, int]] = {}
    for each in changes:
        for offset in range(max(each.first_offset, start_offset), each.last_offset + 1):
            rank = each.delivery_count, each.delivery_state
            expected[offset] = max(rank, expected.get(offset, rank))
    found: list[StateBatch] = []
    for each in changes:
        found = merged(found, [each], 0)
    found = merged(found, (), start_offset)
    assert found == merged((), reversed(changes), start_offset)
    offsets = [(each, offset) for each in found for offset in range(each.first_offset, each.last_offset + 1)]
    assert {offset: (each.delivery_count, each.delivery_state) for each, offset in offsets} == expected
    assert [offset for _, offset in offsets] == sorted(expected)
    for before, after in pairwise(found):
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:]

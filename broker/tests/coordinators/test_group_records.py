"""F47: the records of `__consumer_offsets`. The vectors were written by Apache Kafka 4.4's own generated classes."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.coordinators.groups.messages import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    OffsetKey,
    StoredMember,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from barnabas_broker.coordinators.runtime.turns import MalformedRecord

OFFSET_KEY = OffsetKey("flights-readers", "flights", 5)
OFFSET_KEY_BYTES = bytes.fromhex("0001000f666c69676874732d726561646572730007666c696768747300000005")
TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
FLEXIBLE_OFFSET = "00040000000000052388000000070a6174206761746520340000018bcfe5687b00"
OFFSET_WITH_TOPIC_ID = "0004000000000000002affffffff010000018bcfe5687b0100100102030405060708090a0b0c0d0e0f10"
OFFSETS = {
    "0000000000000005238800096174206761746520340000018bcfe5687b": CommittedOffset(
        336776, -1, "at gate 4", 1700000000123
    ),
    "0001000000000005238800096174206761746520340000018bcfe5687b0000018bf3f1ec7b": CommittedOffset(
        336776, -1, "at gate 4", 1700000000123, 1700604800123
    ),
    "0002000000000005238800096174206761746520340000018bcfe5687b": CommittedOffset(
        336776, -1, "at gate 4", 1700000000123
    ),
    "000300000000000523880000000700096174206761746520340000018bcfe5687b": CommittedOffset(
        336776, 7, "at gate 4", 1700000000123
    ),
    FLEXIBLE_OFFSET: CommittedOffset(336776, 7, "at gate 4", 1700000000123),
    OFFSET_WITH_TOPIC_ID: CommittedOffset(42, -1, "", 1700000000123, topic_id=TOPIC_ID),
}

DYNAMIC = StoredMember(
    "consumer-1-aaaa", None, "consumer-1", "/127.0.0.1", 300000, 45000, bytes([0, 3, 1]), bytes([0, 1, 2, 3])
)
STATIC = StoredMember("gate-b-bbbb", "gate-b", "consumer-2", "/127.0.0.2", 60000, 10000, b"", b"")
GROUP = GroupMetadata("consumer", 3, "range", "consumer-1-aaaa", 1700000000456, (DYNAMIC, STATIC))
EMPTY_GROUP = GroupMetadata("consumer", 4, None, None, 1700000000789, ())

_HEAD = "0008636f6e73756d657200000003000572616e6765000f636f6e73756d65722d312d61616161"
_MEMBER_A = "000f636f6e73756d65722d312d61616161"
_CLIENT_A = "000a636f6e73756d65722d31000a2f3132372e302e302e31"
_MEMBER_B = "000b676174652d622d62626262"
_CLIENT_B = "000a636f6e73756d65722d32000a2f3132372e302e302e32"
_STATE_A = "0000afc8000000030003010000000400010203"
_STATE_B = "000027100000000000000000"
GROUP_BYTES = {
    0: f"0000{_HEAD}00000002{_MEMBER_A}{_CLIENT_A}{_STATE_A}{_MEMBER_B}{_CLIENT_B}{_STATE_B}",
    1: f"0001{_HEAD}00000002{_MEMBER_A}{_CLIENT_A}000493e0{_STATE_A}{_MEMBER_B}{_CLIENT_B}0000ea60{_STATE_B}",
    2: f"0002{_HEAD}0000018bcfe569c800000002{_MEMBER_A}{_CLIENT_A}000493e0{_STATE_A}"
    f"{_MEMBER_B}{_CLIENT_B}0000ea60{_STATE_B}",
    3: f"0003{_HEAD}0000018bcfe569c800000002{_MEMBER_A}ffff{_CLIENT_A}000493e0{_STATE_A}"
    f"{_MEMBER_B}0006676174652d62{_CLIENT_B}0000ea60{_STATE_B}",
    4: "000409636f6e73756d6572000000030672616e676510636f6e73756d65722d312d616161610000018bcfe569c803"
    "10636f6e73756d65722d312d61616161000b636f6e73756d65722d310b2f3132372e302e302e31000493e00000afc8040003010500010203"
    "000c676174652d622d6262626207676174652d620b636f6e73756d65722d320b2f3132372e302e302e320000ea600000271001010000",
}
EMPTY_GROUP_BYTES = "00030008636f6e73756d657200000004ffffffff0000018bcfe56b1500000000"


def test_keys_are_encoded_as_kafka_encodes_them() -> None:
    assert encode_offset_key(OFFSET_KEY) == OFFSET_KEY_BYTES
    assert encode_group_key("flights-readers").hex() == "0002000f666c69676874732d72656164657273"
    assert encode_group_key("gruppe-ä€").hex() == "0002000c6772757070652dc3a4e282ac"


def test_keys_are_decoded_and_other_kinds_of_records_are_skipped() -> None:
    assert decode_key(OFFSET_KEY_BYTES) == OFFSET_KEY
    assert decode_key(b"\0\0" + OFFSET_KEY_BYTES[2:]) == OFFSET_KEY
    assert decode_key(encode_group_key("readers")) == GroupKey("readers")
    assert decode_key(bytes.fromhex("0003000772656164657273")) is None  # A group of the KIP-848 protocol.


@pytest.mark.parametrize(("data", "value"), OFFSETS.items())
def test_every_version_of_kafkas_offset_records_is_decoded(data: str, value: CommittedOffset) -> None:
    assert decode_offset(bytes.fromhex(data)) == value


def test_offsets_are_encoded_as_kafka_4_4_encodes_them() -> None:
    assert encode_offset(OFFSETS[FLEXIBLE_OFFSET]).hex() == FLEXIBLE_OFFSET
    assert encode_offset(OFFSETS[OFFSET_WITH_TOPIC_ID]).hex() == OFFSET_WITH_TOPIC_ID
    expiring = next(data for data, value in OFFSETS.items() if value.expire_timestamp_ms is not None)
    assert encode_offset(OFFSETS[expiring]).hex() == expiring


@pytest.mark.parametrize("version", GROUP_BYTES)
def test_every_version_of_kafkas_group_records_is_decoded(version: int) -> None:
    instance_id = "gate-b" if version >= 3 else None
    members = (DYNAMIC, STATIC._replace(instance_id=instance_id))
    if version == 0:  # The session timeout replaces the missing rebalance timeout.
        members = (members[0]._replace(rebalance_timeout_ms=45000), members[1]._replace(rebalance_timeout_ms=10000))
    expected = GROUP._replace(members=members, state_timestamp_ms=GROUP.state_timestamp_ms if version >= 2 else -1)
    assert decode_group(bytes.fromhex(GROUP_BYTES[version])) == expected


def test_groups_are_encoded_as_kafka_4_4_encodes_them() -> None:
    assert encode_group(GROUP).hex() == GROUP_BYTES[3]
    assert encode_group(EMPTY_GROUP).hex() == EMPTY_GROUP_BYTES


def test_an_unknown_tagged_field_is_skipped() -> None:
    with_tag = bytes.fromhex(FLEXIBLE_OFFSET[:-2]) + bytes([1, 9, 2, 0xAB, 0xCD])
    assert decode_offset(with_tag) == OFFSETS[FLEXIBLE_OFFSET]


@pytest.mark.parametrize("data", list(OFFSETS))
def test_a_value_that_ends_early_is_malformed(data: str) -> None:
    whole = bytes.fromhex(data)
    for length in range(len(whole)):
        with pytest.raises(MalformedRecord):
            decode_offset(whole[:length])


def test_a_record_of_a_later_version_is_malformed() -> None:
    with pytest.raises(MalformedRecord, match="the record's value has version 5; versions 0 to 4 are supported"):
        decode_group(bytes.fromhex("0005"))


TEXT = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.builds(
    StoredMember,
    member_id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    session_timeout_ms=INT32,
    subscription=st.binary(max_size=40),
    assignment=st.binary(max_size=40),
)


@given(st.builds(CommittedOffset, INT64, INT32, TEXT, INT64, st.none(), st.none() | st.uuids()))
def test_an_encoded_offset_is_decoded_to_the_same_value(value: CommittedOffset) -> None:
    if value.topic_id == UUID(int=0):
        value = value._replace(topic_id=None)
    assert decode_offset(encode_offset(value)) == value


@given(st.builds(GroupMetadata, TEXT, INT32, st.none() | TEXT, st.none() | TEXT, INT64, st.lists(MEMBERS).map(tuple)))
def test_an_encoded_group_is_decoded_to_the_same_value(value: GroupMetadata) -> None:
    assert decode_group(encode_group(value)) == value


@given(st.binary(max_size=64))
def test_random_bytes_are_decoded_or_reported_as_malformed(data: bytes) -> None:
    for decode in (decode_key, decode_offset, decode_group):
        try:
            decode(data)
        except MalformedRecord:
            continue

"""The records of consumer groups (KIP-848) and share groups (KIP-932) in Kafka's format."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from barnabas_broker.coordinators.modern.group import ConsumerGroup
from barnabas_broker.coordinators.modern.records import (
    ClassicMetadata,
    Current,
    GroupEpoch,
    Kind,
    MemberMetadata,
    MemberProtocol,
    MemberState,
    ModernRecord,
    ResolvedRegex,
    ShareTopics,
    TargetEpoch,
    TopicShare,
    decode,
)
from barnabas_broker.coordinators.runtime.turns import MalformedRecord
from barnabas_broker.wire.encoder import encoder

T = UUID(int=7)
RECORDS = [
    ModernRecord(Kind.GROUP, "g", "", GroupEpoch(3)),
    ModernRecord(Kind.GROUP, "g", "", GroupEpoch(3, -5)),
    ModernRecord(Kind.TARGET_EPOCH, "g", "", TargetEpoch(3)),
    ModernRecord(Kind.TARGET_EPOCH, "g", "", TargetEpoch(3, 1_700_000_000_000)),
    ModernRecord(Kind.MEMBER, "g", "m", MemberMetadata(client_id="c", client_host="/h", rebalance_timeout_ms=9)),
    ModernRecord(
        Kind.MEMBER,
        "g",
        "m",
        MemberMetadata(
            "i", "r", "c", "/h", ("a", "b"), "x.*", 9, "range", ClassicMetadata(10, (MemberProtocol("p", b"\1"),))
        ),
    ),
    ModernRecord(Kind.TARGET, "g", "m", {}),
    ModernRecord(Kind.TARGET, "g", "m", {T: frozenset({0, 3})}),
    ModernRecord(Kind.CURRENT, "g", "m", Current(3, 2, MemberState.UNREVOKED, {T: {0: 2, 1: 3}}, {T: {2: 1}})),
    ModernRecord(Kind.REGEX, "g", "x.*", ResolvedRegex(("xa", "xb"), 5, 6)),
    ModernRecord(Kind.SHARE_GROUP, "g", "", GroupEpoch(3, -5)),
    ModernRecord(Kind.SHARE_TARGET_EPOCH, "g", "", TargetEpoch(3, 1_700_000_000_000)),
    ModernRecord(Kind.SHARE_MEMBER, "g", "m", MemberMetadata(None, "r", "c", "/h", ("a", "b"))),
    ModernRecord(Kind.SHARE_TARGET, "g", "m", {T: frozenset({0, 3})}),
    ModernRecord(Kind.SHARE_CURRENT, "g", "m", Current(3, 2, MemberState.STABLE, {T: {0: 0, 1: 0}})),
    ModernRecord(
        Kind.SHARE_TOPICS,
        "g",
        "",
        ShareTopics({T: TopicShare("t", frozenset({1}))}, {T: TopicShare("t", frozenset({0, 2}))}, {T: "t"}),
    ),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.kind.name}-{RECORDS.index(record)}")
def test_record_comes_back_as_it_was_written(record: ModernRecord) -> None:
    key, value = record.encode()
    assert decode(key, value) == record
    assert decode(key, None) == record._replace(value=None)


def test_records_have_kafkas_bytes() -> None:
    assert RECORDS[1].encode() == (
        bytes.fromhex("0003 0001 67"),
        bytes.fromhex("0000 00000003 01 00 08 fffffffffffffffb"),
    )
    assert RECORDS[7].encode() == (
        bytes.fromhex("0007 0001 67 0001 6d"),
        bytes.fromhex("0000 02") + T.bytes + bytes.fromhex("03 00000000 00000003 00 00"),
    )


@pytest.mark.parametrize("count", [1, 31, 32, 127, 128, 5_000])
def test_topics_of_a_member_have_the_bytes_that_the_codec_gives_them(count: int) -> None:
    epochs = {number: 7 + number for number in range(count)}
    numbers, ids = frozenset(epochs), [UUID(int=number) for number in (1, 2, 3)]
    target = {ids[0]: frozenset({4}), ids[1]: numbers, ids[2]: numbers}
    current = Current(3, 2, assigned={ids[0]: {4: 9}, ids[1]: epochs, ids[2]: epochs})
    kind, facts = SimpleNamespace, {"member_epoch": 3, "previous_member_epoch": 2, "state": 0}
    topics = [
        kind(topic_id=ids[0], partitions=[4], assignment_epochs=[9]),
        *(kind(topic_id=each, partitions=list(epochs), assignment_epochs=list(epochs.values())) for each in ids[1:]),
    ]
    message = kind(**facts, topic_partitions=topics, assigned_partitions=topics, partitions_pending_revocation=[])
    for name, role, ours in (
        ("TargetAssignmentMember", Kind.TARGET, target),
        ("CurrentMemberAssignment", Kind.CURRENT, current),
    ):
        by_codec = bytearray(2)
        encoder(f"ConsumerGroup{name}Value", 0)(by_codec, message)
        assert ModernRecord(role, "g", "m", ours).encode()[1] == bytes(by_codec)


def test_records_of_share_groups_have_kafkas_bytes() -> None:
    by_kind = {record.kind: record for record in RECORDS}
    assert by_kind[Kind.SHARE_MEMBER].encode() == (
        bytes.fromhex("000a 0001 67 0001 6d"),
        bytes.fromhex("0000 02 72 02 63 03 2f68 03 02 61 02 62 00"),
    )
    assert by_kind[Kind.SHARE_CURRENT].encode() == (
        bytes.fromhex("000e 0001 67 0001 6d"),
        bytes.fromhex("0000 00000003 00000002 00 02") + T.bytes + bytes.fromhex("03 00000000 00000001 00 00"),
    )
    assert by_kind[Kind.SHARE_TOPICS].encode() == (
        bytes.fromhex("000f 0001 67"),
        bytes.fromhex("0000 02")
        + T.bytes
        + bytes.fromhex("02 74 02 00000001 00")
        + bytes.fromhex("02")
        + T.bytes
        + bytes.fromhex("02 74 03 00000000 00000002 00")
        + bytes.fromhex("02")
        + T.bytes
        + bytes.fromhex("02 74 00 00"),
    )


def test_member_without_classic_metadata_says_so_as_in_kafka() -> None:
    """Kafka takes a record without the tagged field for that of a classic member, and writes null."""
    record = RECORDS[4]
    key, value = record.encode()
    assert value is not None
    assert value == bytes.fromhex("0000 00 00 02 63 03 2f68 01 00 00000009 00 01 00 01 00")
    assert decode(key, value) == record
    assert decode(key, value[:-4] + b"\0") == record


def test_current_assignment_of_kafka_before_4_3_has_the_epoch_of_the_member() -> None:
    key = ModernRecord(Kind.CURRENT, "g", "m", None).encode()[0]
    value = bytes.fromhex("0000 00000004 00000003 00 02") + T.bytes + bytes.fromhex("02 00000005 00 01 00")
    record = decode(key, value)
    assert record is not None
    assert record.value == Current(4, 3, MemberState.STABLE, {T: {5: 4}})


@pytest.mark.parametrize("kind", [9, 17, 23, 99])
def test_records_of_other_kinds_are_skipped(kind: int) -> None:
    assert decode(kind.to_bytes(2, "big") + b"\0\1g", b"\0\0") is None


def test_old_topics_of_a_group_are_skipped() -> None:
    assert decode(b"\0\4\0\1g", b"\0\0\1\0") is None


@pytest.mark.parametrize("value", [b"", b"\0\1\0", b"\0\0", b"\0\0\0\0\0"])
def test_malformed_values_are_reported(value: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode(b"\0\3\0\1g", value)


def test_tombstones_of_what_is_not_there_change_nothing() -> None:
    group = ConsumerGroup("g")
    for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER, Kind.REGEX):
        group.apply(ModernRecord(kind, "g", "m", None))
    assert not group.members


def test_two_owners_of_a_partition_are_only_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    group = ConsumerGroup("g")
    for name, epoch in (("a", 4), ("b", 3)):
        group.apply(ModernRecord(Kind.CURRENT, "g", name, Current(epoch, 2, MemberState.STABLE, {T: {0: 2}})))
    assert "both have partition 0" in caplog.text
    assert group.free("a", T, {0})
    assert not group.free("b", T, {0})
    group.apply(ModernRecord(Kind.CURRENT, "g", "b", None))
    assert not group.free("b", T, {0})

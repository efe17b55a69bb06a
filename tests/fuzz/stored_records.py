"""Records of `__consumer_offsets` in every version, and invalid ones. Functions of a Random."""

import struct
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from barnabas_broker.coordinators.groups import messages
from barnabas_broker.coordinators.groups.messages import GroupMetadata, OffsetKey, StoredMember
from barnabas_broker.coordinators.modern.records import (
    SHARE_KINDS,
    Current,
    GroupEpoch,
    Kind,
    MemberMetadata,
    MemberState,
    ModernRecord,
    ResolvedRegex,
    ShareTopics,
    TargetEpoch,
    TopicShare,
    Value,
)
from barnabas_broker.replication.record_log import KeyValue
from barnabas_broker.wire.encoder import encoder
from barnabas_broker.wire.framing import encode_unsigned_varint
from fuzz.hostile_requests import BODY_BREAKS, EDGES

GROUPS = tuple(f"group-{number}" for number in range(40))
TOPICS = ("plain", "plain", "compacted", "gone", "", "é" * 20)
VERSIONS = range(5)
TEXTS = ("", "a", "range", "consumer", "x" * 300, "x" * 40_000, "\0", "\U0001d54f")


def hostile_record(random: Random, groups: tuple[str, ...] = GROUPS) -> tuple[str, KeyValue]:
    """Return the record's group, and a record of some version, or a broken one."""
    group_id = random.choice(groups)
    if random.random() < 0.5:
        key, value = _offset_key(random, group_id), _offset(random)
    else:
        key, value = messages.encode_group_key(group_id), _group(random)
    if random.random() < 0.4:
        key, value = _modern(random, group_id)
    if random.random() < 0.05:
        key = random.choice(BODY_BREAKS)(random, key)
    if random.random() < 0.2:
        value = random.choice(BODY_BREAKS)(random, value)
    return group_id, (key, None if random.random() < 0.03 else value)


def _modern(random: Random, group_id: str) -> tuple[bytes, bytes]:
    """Return a record of a consumer group with member epochs or of a share group, with edges as numbers."""
    numbers = [random.choice((0, 1, 2, 3, 2**30, -1)) for _ in range(4)]
    owned = {UUID(int=1): {0: numbers[2]}}
    topics = {UUID(int=1): TopicShare(random.choice(TOPICS), frozenset(numbers))}
    kind = random.choice([each for each in Kind if each is not Kind.OLD_TOPICS])
    values: dict[Kind, Value] = {
        Kind.GROUP: GroupEpoch(numbers[0], numbers[1]),
        Kind.TARGET_EPOCH: TargetEpoch(numbers[0], numbers[1]),
        Kind.MEMBER: MemberMetadata(random.choice((None, "gate")), None, "c", "/h", TOPICS, None, numbers[0]),
        Kind.TARGET: {UUID(int=1): frozenset(numbers)},
        Kind.CURRENT: Current(numbers[0], numbers[1], random.choice(list(MemberState)), owned, owned),
        Kind.REGEX: ResolvedRegex(TOPICS, numbers[0], numbers[1]),
        Kind.SHARE_MEMBER: MemberMetadata(None, random.choice((None, "rack")), "c", "/h", TOPICS),
        Kind.SHARE_TOPICS: ShareTopics(topics, topics, {UUID(int=2): random.choice(TOPICS)}),
    }
    values = {**{SHARE_KINDS[each]: value for each, value in values.items() if each in SHARE_KINDS}, **values}
    key, encoded = ModernRecord(kind, group_id, random.choice(("m", "n", "")), values[kind]).encode()
    return key, encoded or b""


def _offset_key(random: Random, group_id: str) -> bytes:
    key = messages.encode_offset_key(
        OffsetKey(group_id, random.choice(TOPICS), random.choice((0, 0, 1, 2, 99, -1, -5)))
    )
    return struct.pack(">h", random.choice((0, 1, 1, 1, 3, -1))) + key[2:]


def _offset(random: Random) -> bytes:
    version = random.choice((*VERSIONS, 4, 5, -1))
    head = struct.pack(">hq", version, random.choice((0, 5, *EDGES)))
    epoch = struct.pack(">i", _int32(random.choice((0, *EDGES))))
    metadata = random.choice(TEXTS).encode()
    times = struct.pack(">q", random.choice((0, 1_700_000_000_000, *EDGES)))
    if version < 4:
        tail = struct.pack(">q", random.choice(EDGES)) if version == 1 else b""
        return (
            head + (epoch if version == 3 else b"") + struct.pack(">h", len(metadata) % 2**15) + metadata + times + tail
        )
    return head + epoch + encode_unsigned_varint(len(metadata) + 1) + metadata + times + _tags(random)


def _tags(random: Random) -> bytes:
    size = random.choice((0, 3, 15, 16, 16, 17))
    tag = random.choice((0, 0, 0, 1, 77))
    return random.choice(
        (
            b"\0",
            encode_unsigned_varint(1)
            + encode_unsigned_varint(tag)
            + encode_unsigned_varint(size)
            + UUID(int=7).bytes[:size].ljust(size, b"x"),
        )
    )


def _group(random: Random) -> bytes:
    version = random.choice(VERSIONS)
    members = [_member(random, name) for name in random.choice(((), ("a",), ("a", "b"), ("a", "b", "c")))]
    group = GroupMetadata(
        protocol_type=_mostly(random, "consumer", "connect", ""),
        generation=_int32(_mostly(random, 1, *EDGES)),
        protocol=_mostly(random, "range", None, ""),
        leader=_mostly(random, "a-1", None, "nobody", ""),
        state_timestamp_ms=_mostly(random, 0, *EDGES),
        members=tuple(members),
    )
    out = bytearray(struct.pack(">h", version))
    encoder("GroupMetadataValue", version)(out, group)
    return bytes(out)


def _member(random: Random, name: str) -> StoredMember:
    pick: Callable[..., Any] = random.choice
    return StoredMember(
        member_id=_mostly(random, f"{name}-1", "a-1", ""),
        instance_id=_mostly(random, pick((None, None, name)), "gate", ""),
        client_id=pick(("client", "", "x" * 300)),
        client_host="/127.0.0.1",
        rebalance_timeout_ms=_int32(_mostly(random, 60_000, 0, 100, *EDGES)),
        session_timeout_ms=_int32(_mostly(random, pick((100, 300, 10_000)), *EDGES)),
        subscription=pick(
            (b"", b"\0\1\0\0\0\1\0\5plain\xff\xff\xff\xff", b"\0\1\xff\xff\xff\xff", b"\0\3\x7f\xff\xff\xff")
        ),
        assignment=pick((b"", b"all")),
    )


def _mostly(random: Random, usual: Any, *others: Any) -> Any:
    return usual if random.random() < 0.85 else random.choice(others)


def _int32(number: int) -> int:
    return max(-(2**31), min(number, 2**31 - 1))

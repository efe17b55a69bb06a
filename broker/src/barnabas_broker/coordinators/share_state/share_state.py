"""The stored delivery state of a share-partition: a partition of a topic, as one share group consumes it.

The records of `__share_group_state`, in Kafka's format, are snapshots of a share-partition, and updates of a snapshot.
A key begins with its version: 0 is a snapshot, 1 an update. A snapshot without a value deletes the state. An update
has only the batches that a write has changed, so a state is its last snapshot and all updates after it, in their
order.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.runtime.turns import MalformedRecord
from barnabas_broker.wire.decoder import decoder
from barnabas_broker.wire.encoder import encoder
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.messages import message_class
from barnabas_core import kafka_uuid
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicIdPartition

UNKNOWN_OFFSET: Final = -1
"""The start offset of a share-partition whose leader has not yet chosen one by `share.auto.offset.reset`."""
UNKNOWN_COUNT: Final = -1
"""The delivery complete count that a writer does not know."""


class DeliveryState(IntEnum):
    """The delivery states of a record that are stored; the state Acquired (1) never is."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """A range of offsets, both ends included, with one delivery state and delivery count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class InitializeEntry(msgspec.Struct, frozen=True):
    """The state to begin with: the group epoch as state epoch, and a start offset, which may be UNKNOWN_OFFSET."""

    partition: TopicIdPartition
    state_epoch: int
    start_offset: int


class ReadEntry(msgspec.Struct, frozen=True):
    """A share-partition to read; a leader epoch above the stored one is stored, and fences earlier leaders."""

    partition: TopicIdPartition
    leader_epoch: int


class WriteEntry(msgspec.Struct, frozen=True):
    """The changed batches of a share-partition; a start offset below the stored one leaves the stored one."""

    partition: TopicIdPartition
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    """The number of offsets from the start offset on that are Acknowledged or Archived."""
    batches: Sequence[StateBatch]


class ShareOutcome(NamedTuple):
    """The answer for one share-partition: an error code, and the state if the request reads it.

    A read answers the state epoch, the start offset and the batches; a summary all but the batches.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = UNKNOWN_COUNT
    batches: Sequence[StateBatch] = ()


class SharePartitionKey(NamedTuple):
    """The share group, topic and partition of a share-partition."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def name(self) -> str:
        """The key of FindCoordinator, `group:topicId:partition`; its hash chooses the partition of the state topic."""
        return f"{self.group_id}:{kafka_uuid.to_text(self.topic_id)}:{self.partition}"


def parse_key(name: str) -> SharePartitionKey:
    """Return the key with this name; a group id may contain colons. Raises ValueError."""
    group_id, topic_id, partition = ["", *name.rsplit(":", 2)][-3:]
    if not group_id.strip():
        raise ValueError(f"the key {name!r} of a share-partition must have the form group:topicId:partition")
    return SharePartitionKey(group_id, kafka_uuid.from_text(topic_id), int(partition))


class ShareState(NamedTuple):
    """The state of a share-partition, as the records of the state topic define it."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_ms: int = 0
    """The wall-clock time at which a request made the snapshot."""
    write_ms: int = 0
    """The wall-clock time of the snapshot; it is above `create_ms` if the state had not changed for long."""
    batches: Sequence[StateBatch] = ()
    """The batches in the order of their offsets, without overlaps."""
    updates: int = 0
    """The number of updates since the snapshot."""
    log_offset: int = 0
    """An offset in the state topic; no record before it is needed for this state."""

    @property
    def is_cold(self) -> bool:
        """True if the last snapshot repeats the state, because no request had made one for long."""
        return self.create_ms != self.write_ms


def merged(batches: Sequence[StateBatch], changed: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return the batches with changed ones put over them, from the start offset on.

    As in Kafka, the higher delivery count wins at each offset, and among equal counts the higher delivery state: so
    it does not matter in which order changes arrive. Neighbours with the same state and count become one batch.
    """
    found = list(batches)
    for each in changed:
        _put(found, each)
    return _from(found, start_offset)


def _put(found: list[StateBatch], new: StateBatch) -> None:
    begin = bisect_left(found, new.first_offset, key=_last_offset)
    end = bisect_right(found, new.last_offset, lo=begin, key=_first_offset)
    pieces, offset = [], new.first_offset
    for old in found[begin:end]:
        if old.first_offset < new.first_offset:
            pieces.append(old._replace(last_offset=new.first_offset - 1))
        elif old.first_offset > offset:
            pieces.append(new._replace(first_offset=offset, last_offset=old.first_offset - 1))
        first, last = max(old.first_offset, new.first_offset), min(old.last_offset, new.last_offset)
        pieces.append(max(old, new, key=_rank)._replace(first_offset=first, last_offset=last))
        offset = last + 1
        if old.last_offset > new.last_offset:
            pieces.append(old._replace(first_offset=offset))
    if offset <= new.last_offset:
        pieces.append(new._replace(first_offset=offset))
    left, right = max(begin - 1, 0), end + 1
    found[left:right] = _joined([*found[left:begin], *pieces, *found[end:right]])


def _first_offset(batch: StateBatch) -> int:
    return batch.first_offset


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _joined(pieces: Sequence[StateBatch]) -> list[StateBatch]:
    """Return the pieces, where neighbours with the same state and count are one batch."""
    joined: list[StateBatch] = []
    for each in pieces:
        before = joined[-1] if joined else None
        if before is not None and before.last_offset + 1 == each.first_offset and _rank(before) == _rank(each):
            joined[-1] = before._replace(last_offset=each.last_offset)
        else:
            joined.append(each)
    return joined


def _from(batches: list[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return the batches without what is below the start offset."""
    if not batches or batches[0].first_offset >= start_offset:
        return batches
    kept = batches[bisect_left(batches, start_offset, key=_last_offset) :]
    if kept and kept[0].first_offset < start_offset:
        kept[0] = kept[0]._replace(first_offset=start_offset)
    return kept


_SNAPSHOT: Final = 0
_UPDATE: Final = 1
_KEYS: Final = {_SNAPSHOT: "ShareSnapshotKey", _UPDATE: "ShareUpdateKey"}
_VALUES: Final = {_SNAPSHOT: "ShareSnapshotValue", _UPDATE: "ShareUpdateValue"}
_VERSION: Final = 0
_INT16: Final = struct.Struct(">h")
_NO_EPOCH: Final = -1


class ShareRecord(NamedTuple):
    """A decoded record: a snapshot, an update, or (with a state of None) the deletion of a state."""

    key: SharePartitionKey
    state: ShareState | None
    """The whole state of a snapshot. Of an update: the changed batches, and the state epoch and times are 0."""
    is_update: bool = False
    log_offset: int = 0
    """An offset in the state topic at or below the record's own; 0 for a record that was read from the log."""

    @property
    def name(self) -> str:
        """The name of the share-partition."""
        return self.key.name

    def encode(self) -> tuple[bytes, bytes | None]:
        """Return the encoded key and value of the record."""
        kind = _UPDATE if self.is_update else _SNAPSHOT
        key = _encoded(kind, _KEYS[kind], self.key._asdict())
        if self.state is None:
            return key, None
        fields = {name: getattr(self.state, field) for name, field in _FIELDS[kind].items()}
        fields["state_batches"] = _batches(_VALUES[kind], self.state.batches)
        return key, _encoded(_VERSION, _VALUES[kind], fields)


_FIELDS: Final = {
    _UPDATE: {name: name for name in ("snapshot_epoch", "leader_epoch", "start_offset", "delivery_complete_count")},
    _SNAPSHOT: {
        **{name: name for name in ("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset")},
        "delivery_complete_count": "delivery_complete_count",
        "create_timestamp": "create_ms",
        "write_timestamp": "write_ms",
    },
}
"""The field of ShareState for each field of a value, apart from the batches."""


def _batches(value: str, batches: Sequence[StateBatch]) -> list[Any]:
    kind = message_class(value).StateBatch
    return [kind(**each._asdict()) for each in batches]


def _encoded(version: int, name: str, fields: dict[str, Any]) -> bytes:
    out = bytearray(_INT16.pack(version))
    encoder(name, 0)(out, message_class(name)(**fields))
    return bytes(out)


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """Return the decoded record, None if its version is unknown. Raises MalformedRecord."""
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind not in _KEYS or (value is not None and _INT16.unpack_from(value)[0] != _VERSION):
            return None
        found = decoder(_KEYS[kind], 0)(memoryview(key)[_INT16.size :])
        if value is None:
            return ShareRecord(_key(found), None)
        fields = decoder(_VALUES[kind], 0)(memoryview(value)[_INT16.size :])
        state = ShareState(
            **{field: getattr(fields, name) for name, field in _FIELDS[kind].items()},
            **({"state_epoch": 0} if kind == _UPDATE else {}),
            batches=merged((), (_batch(each) for each in fields.state_batches), fields.start_offset),
        )
        return ShareRecord(_key(found), state, kind == _UPDATE)
    except (struct.error, MalformedRequest, ValueError) as error:
        raise MalformedRecord(f"share state: {error}") from error


def _key(found: Any) -> SharePartitionKey:
    if found.topic_id is None or found.partition < 0:
        raise MalformedRecord(f"the topic id {found.topic_id} or the partition {found.partition} is invalid")
    return SharePartitionKey(found.group_id, found.topic_id, found.partition)


def _batch(found: Any) -> StateBatch:
    if not 0 <= found.first_offset <= found.last_offset:
        raise MalformedRecord(f"a batch has the offsets {found.first_offset} to {found.last_offset}")
    return StateBatch(found.first_offset, found.last_offset, found.delivery_state, found.delivery_count)


def applied(state: ShareState | None, record: ShareRecord) -> ShareState | None:
    """Return the state after a record; None if the record deletes it.

    An update without a snapshot counts as the whole state, as in Kafka: records up to a later snapshot of another
    share-partition were pruned, and the next snapshot of this one follows.
    """
    new = record.state
    if new is None:
        return None
    if state is None or not record.is_update:
        return new._replace(log_offset=record.log_offset)
    start_offset = state.start_offset if new.start_offset == UNKNOWN_OFFSET else new.start_offset
    return state._replace(
        leader_epoch=state.leader_epoch if new.leader_epoch == _NO_EPOCH else new.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=new.delivery_complete_count,
        batches=merged(state.batches, new.batches, start_offset),
        updates=state.updates + 1,
    )

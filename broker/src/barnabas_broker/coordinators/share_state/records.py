"""The records of `__share_group_state`, in Kafka's format: snapshots of a share-partition, and updates of a snapshot.

A key begins with its version: 0 is a snapshot, 1 an update. A snapshot without a value deletes the state. An update has
only the batches that a write has changed, so a state is its last snapshot and all updates after it, in their order.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from barnabas_broker.coordinators.runtime.record_strings import MalformedRecord
from barnabas_broker.coordinators.share_state.share_state import (
    UNKNOWN_OFFSET,
    SharePartitionKey,
    ShareState,
    StateBatch,
    merged,
)
from barnabas_broker.wire.decoder import decoder
from barnabas_broker.wire.encoder import encoder
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.messages import message_class

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

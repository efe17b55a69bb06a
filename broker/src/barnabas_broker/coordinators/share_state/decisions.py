"""The decisions on requests for one share-partition, with Kafka's checks in Kafka's order.

Only Initialize sets the state epoch, and only Read sets the leader epoch; Write is fenced by both.
"""

from typing import Final, NamedTuple

from barnabas_broker.coordinators.share_state.share_state import (
    UNKNOWN_COUNT,
    UNKNOWN_OFFSET,
    DeliveryState,
    InitializeEntry,
    ReadEntry,
    ShareOutcome,
    SharePartitionKey,
    ShareRecord,
    ShareState,
    StateBatch,
    WriteEntry,
    applied,
    merged,
)
from barnabas_core.errors import ErrorCode

_NEGATIVE_PARTITION: Final = "The partition id cannot be a negative number."
_NEGATIVE_LEADER_EPOCH: Final = "The leader epoch cannot be a negative number."
_NEGATIVE_STATE_EPOCH: Final = "The state epoch cannot be a negative number."
_UNINITIALIZED: Final = "{} operation on uninitialized share partition not allowed."
_STATES: Final = frozenset(DeliveryState)

OK: Final = ShareOutcome()


class Circumstances(NamedTuple):
    """The facts on which a decision depends beside the request and the state."""

    is_known: bool
    """True if the image of the metadata has the topic and the partition."""
    now_ms: int
    updates_max: int
    """The number of updates after which the next change is a snapshot (`snapshot.update.records.per.snapshot`)."""


class StateDecision(NamedTuple):
    """The outcome of a request, once the record is committed; None if the request changes nothing."""

    outcome: ShareOutcome
    record: ShareRecord | None = None


def initialize(
    key: SharePartitionKey, found: ShareState | None, entry: InitializeEntry, around: Circumstances
) -> StateDecision:
    """Begin with a new state, unless the state epoch is below the stored one.

    A request with the stored epoch changes nothing: it is one that was sent twice, and the second one may arrive when
    members have acknowledged records. Apache Kafka forgets these acknowledgements.
    """
    error = _invalid(key, state_epoch=entry.state_epoch)
    if error is None and found is not None and found.state_epoch > entry.state_epoch:
        error = _fenced(ErrorCode.FENCED_STATE_EPOCH, "state", entry.state_epoch, found.state_epoch)
    error = error or _unknown(key, around)
    if error is not None:
        return StateDecision(error)
    if found is not None and found.state_epoch == entry.state_epoch:
        return StateDecision(OK)
    state = ShareState(
        snapshot_epoch=0 if found is None else found.snapshot_epoch + 1,
        state_epoch=entry.state_epoch,
        leader_epoch=0,
        start_offset=entry.start_offset,
        delivery_complete_count=UNKNOWN_COUNT if entry.start_offset == UNKNOWN_OFFSET else 0,
        create_ms=around.now_ms,
        write_ms=around.now_ms,
    )
    return StateDecision(OK, ShareRecord(key, state))


def write(key: SharePartitionKey, found: ShareState | None, entry: WriteEntry, around: Circumstances) -> StateDecision:
    """Put changed batches over the stored ones; the start offset never goes back."""
    error = _invalid(key, entry.leader_epoch, entry.state_epoch) or _invalid_batch(entry)
    if error is not None:
        return StateDecision(error)
    if found is None:
        return StateDecision(_invalid_request(_UNINITIALIZED.format("Write")))
    error = _fenced_leader(found, entry.leader_epoch)
    if error is None and found.state_epoch > entry.state_epoch:
        error = _fenced(ErrorCode.FENCED_STATE_EPOCH, "state", entry.state_epoch, found.state_epoch)
    error = error or _unknown(key, around)
    if error is not None:
        return StateDecision(error)
    count = entry.delivery_complete_count
    if entry.start_offset == found.start_offset:
        count = max(count, found.delivery_complete_count)
    elif entry.start_offset < found.start_offset:
        count = found.delivery_complete_count
    start_offset = max(entry.start_offset, found.start_offset)
    changes = found._replace(
        start_offset=start_offset, delivery_complete_count=count, batches=merged((), entry.batches, start_offset)
    )
    return StateDecision(OK, _change(key, found, changes, around))


def read(key: SharePartitionKey, found: ShareState | None, entry: ReadEntry, around: Circumstances) -> StateDecision:
    """Answer with the state; store a leader epoch that is above the stored one."""
    error = _invalid(key, entry.leader_epoch)
    if error is not None:
        return StateDecision(error)
    if found is None:
        return StateDecision(_invalid_request(_UNINITIALIZED.format("Read")))
    error = _fenced_leader(found, entry.leader_epoch) or _unknown(key, around)
    if error is not None:
        return StateDecision(error)
    outcome = ShareOutcome(state_epoch=found.state_epoch, start_offset=found.start_offset, batches=tuple(found.batches))
    if entry.leader_epoch == found.leader_epoch:
        return StateDecision(outcome)
    changes = found._replace(leader_epoch=entry.leader_epoch, batches=())
    return StateDecision(outcome, _change(key, found, changes, around))


def read_summary(key: SharePartitionKey, found: ShareState | None, around: Circumstances) -> StateDecision:
    """Answer with the state but its batches; a share-partition without state has an unknown start offset."""
    error = _invalid(key) or _unknown(key, around)
    if error is not None or found is None:
        return StateDecision(error or ShareOutcome(start_offset=UNKNOWN_OFFSET))
    return StateDecision(
        ShareOutcome(
            state_epoch=found.state_epoch,
            leader_epoch=found.leader_epoch,
            start_offset=found.start_offset,
            delivery_complete_count=found.delivery_complete_count,
        )
    )


def delete(key: SharePartitionKey, found: ShareState | None, around: Circumstances) -> StateDecision:
    """Delete the state; succeed if there is none."""
    error = _invalid(key) or _unknown(key, around)
    return StateDecision(error or OK, None if error or found is None else ShareRecord(key, None))


def snapshot(key: SharePartitionKey, found: ShareState, now_ms: int) -> ShareRecord:
    """Return a snapshot that repeats a state which has not changed for long."""
    return ShareRecord(key, found._replace(snapshot_epoch=found.snapshot_epoch + 1, write_ms=now_ms, updates=0))


def _change(key: SharePartitionKey, found: ShareState, changes: ShareState, around: Circumstances) -> ShareRecord:
    """Return a change as an update; as a snapshot of the changed state if there were many updates."""
    update = ShareRecord(key, changes, is_update=True)
    state = applied(found, update) if found.updates >= around.updates_max else None
    if state is None:
        return update
    now_ms, epoch = around.now_ms, found.snapshot_epoch + 1
    return ShareRecord(key, state._replace(snapshot_epoch=epoch, create_ms=now_ms, write_ms=now_ms, updates=0))


def _invalid(key: SharePartitionKey, leader_epoch: int = 0, state_epoch: int = 0) -> ShareOutcome | None:
    if key.partition < 0:
        return _invalid_request(_NEGATIVE_PARTITION)
    if leader_epoch < 0:
        return _invalid_request(_NEGATIVE_LEADER_EPOCH)
    return _invalid_request(_NEGATIVE_STATE_EPOCH) if state_epoch < 0 else None


def _invalid_batch(entry: WriteEntry) -> ShareOutcome | None:
    """Return the error for a batch that no leader writes; Kafka stores such batches, and loads them."""
    for each in entry.batches:
        if not _is_valid(each):
            return _invalid_request(
                f"the batch of offsets {each.first_offset} to {each.last_offset} with state {each.delivery_state} and "
                f"count {each.delivery_count} is invalid; the last offset must not be below the first, no number "
                "negative, and the state 0, 2, 3 or 4"
            )
    return None


def _is_valid(batch: StateBatch) -> bool:
    return (
        0 <= batch.first_offset <= batch.last_offset and batch.delivery_state in _STATES and batch.delivery_count >= 0
    )


def _fenced_leader(found: ShareState, leader_epoch: int) -> ShareOutcome | None:
    if found.leader_epoch <= leader_epoch:
        return None
    return _fenced(ErrorCode.FENCED_LEADER_EPOCH, "leader", leader_epoch, found.leader_epoch)


def _fenced(code: ErrorCode, which: str, epoch: int, stored: int) -> ShareOutcome:
    return ShareOutcome(code, f"the {which} epoch {epoch} is below the stored one, {stored}")


def _unknown(key: SharePartitionKey, around: Circumstances) -> ShareOutcome | None:
    if around.is_known:
        return None
    return ShareOutcome(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic of the share-partition {key.name} has no such partition"
    )


def _invalid_request(message: str) -> ShareOutcome:
    return ShareOutcome(ErrorCode.INVALID_REQUEST, message)

"""The share-partitions whose records are in one partition of `__share_group_state`.

A request is decided on the state with all changes that are being written, so that many writes of a share-partition may
be under way. What is read and summarized is committed. The topic is never compacted: from time to time every state is
written again as a snapshot, and the records before the oldest snapshot that is needed are deleted.

Requests for one share-partition are decided with Kafka's checks in Kafka's order. Only Initialize sets the
state epoch, and only Read sets the leader epoch; Write is fenced by both.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.runtime.shard import LeftOut
from barnabas_broker.coordinators.runtime.turns import Pace
from barnabas_broker.coordinators.runtime.writer import PartitionWriter
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
    decode,
    merged,
)
from barnabas_broker.storage.errors import StorageError
from barnabas_core.clock import Clock
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicIdPartition

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


class StateDecision(msgspec.Struct, frozen=True):
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


_logger = logging.getLogger(__name__)

OnOutcome = Callable[[ShareOutcome], object]
DecideOnState = Callable[[SharePartitionKey, ShareState | None, Circumstances], StateDecision]


class PrunedLog(Protocol):
    """The log of the coordinator's topic, apart from reads and appends (`runtime.writer.CoordinatorLog`)."""

    def end_offset(self, partition: int) -> int:
        """Return the log end offset, to which the next batch is appended. Raises ApiError."""
        ...

    def delete_before(self, partition: int, offset: int) -> None:
        """Raise the log start offset to a committed offset, as DeleteRecords does. Raises ApiError."""
        ...


class ShareStateCounts(msgspec.Struct):
    """The number of records that requests have written since the start of the broker."""

    writes: int = 0


class ShareStateEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of the share coordinator."""

    config: BrokerConfig
    clock: Clock
    log: PrunedLog
    knows: Callable[[TopicIdPartition], bool]
    """Return True if the image of the metadata has a partition."""
    deleted_topics: Callable[[], Collection[UUID]]
    """Return the ids of the topics that have a tombstone in the image of the metadata."""
    counts: ShareStateCounts


class ShareStateShard:
    """The share-partitions of one partition; each loading of the partition creates a new shard."""

    def __init__(self, environment: ShareStateEnvironment, writer: PartitionWriter[ShareRecord]) -> None:
        self._writer = writer
        self._environment = environment
        self.states: dict[str, tuple[SharePartitionKey, ShareState]] = {}
        """The committed states by the names of the share-partitions."""
        self._ahead: dict[str, ShareState | None] = {}
        """The states with all changes that are being written, of share-partitions that have such changes."""
        self._applied_to = 0
        """An offset before which all records are applied."""
        self.pruned_to = 0
        """The offset to which the log was last pruned."""

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self._writer.partition

    def decoder(self) -> Callable[[bytes, bytes | None], ShareRecord | None]:
        """Return the function that decodes the records of the partition."""
        return decode

    def apply(self, record: ShareRecord) -> None:
        """Apply a record, which was just committed or read from the log, to the states in memory."""
        found = self.states.get(record.name)
        state = applied(None if found is None else found[1], record)
        if state is None:
            self.states.pop(record.name, None)
        else:
            self.states[record.name] = record.key, state
        self._applied_to = max(self._applied_to, record.log_offset)

    def restore(self, left_out: LeftOut) -> Iterator[None]:  # noqa: ARG002  # The runtime passes left_out.
        """Return an empty iterator: `apply` has restored all state."""
        return iter(())

    def contents(self) -> str:
        """Return the number of share-partitions as text for a log line."""
        return f"{len(self.states)} share-partitions"

    def close(self) -> None:
        """Do nothing when this broker stops coordinating the partition: its writer answers the waiting requests."""

    def serve(self) -> Iterator[None]:
        """Delete the states of topics that were deleted while no broker coordinated the partition."""
        return self.forget(self._environment.deleted_topics())

    def initialize(self, key: SharePartitionKey, entry: InitializeEntry, answer: OnOutcome) -> None:
        """Answer once the new state is committed."""
        self._run(key, lambda key, found, around: initialize(key, found, entry, around), answer)

    def write(self, key: SharePartitionKey, entry: WriteEntry, answer: OnOutcome) -> None:
        """Answer once the changed batches are committed."""
        self._run(key, lambda key, found, around: write(key, found, entry, around), answer)

    def delete(self, key: SharePartitionKey, answer: OnOutcome) -> None:
        """Answer once the deletion is committed."""
        self._run(key, delete, answer)

    def read(self, key: SharePartitionKey, entry: ReadEntry, answer: OnOutcome) -> None:
        """Answer once all that is read is committed, and so is the leader epoch if it is a new one."""
        name = key.name
        decision = read(key, self._latest(name), entry, self._around(key))
        if decision.record is None and self._writer.is_writing(name):
            again = partial(self.read, key, entry, answer)
            self._writer.when_idle(name, lambda: self._closed(answer) if self._writer.is_closed else again())
        else:
            self._carry_out(name, decision, answer)

    def _closed(self, answer: OnOutcome) -> None:
        answer(ShareOutcome(ErrorCode.NOT_COORDINATOR))

    def summary(self, key: SharePartitionKey) -> ShareOutcome:
        """Return what is committed, without its batches."""
        found = self.states.get(key.name)
        return read_summary(key, None if found is None else found[1], self._around(key)).outcome

    def _around(self, key: SharePartitionKey) -> Circumstances:
        environment = self._environment
        return Circumstances(
            environment.knows(TopicIdPartition(key.topic_id, key.partition)),
            environment.clock.now_ms(),
            environment.config.share_coordinator_snapshot_update_records_per_snapshot,
        )

    def _run(self, key: SharePartitionKey, decide: DecideOnState, answer: OnOutcome) -> None:
        name = key.name
        self._carry_out(name, decide(key, self._latest(name), self._around(key)), answer)

    def _carry_out(self, name: str, decision: StateDecision, answer: OnOutcome) -> None:
        record = decision.record
        if record is None:
            answer(decision.outcome)
            return
        self._environment.counts.writes += 1
        self._submit(name, record, lambda error: answer(ShareOutcome(error) if error else decision.outcome))

    def _latest(self, name: str) -> ShareState | None:
        """Return the state with all changes that are being written."""
        if name in self._ahead:
            return self._ahead[name]
        found = self.states.get(name)
        return None if found is None else found[1]

    def _submit(self, name: str, record: ShareRecord, answer: Callable[[ErrorCode], object]) -> None:
        try:
            end_offset = self._environment.log.end_offset(self._writer.partition)
        except ApiError:
            answer(ErrorCode.NOT_COORDINATOR)
            return
        record = record._replace(log_offset=end_offset)
        self._ahead[name] = applied(self._latest(name), record)

        def finished(error: ErrorCode) -> None:
            if not self._writer.is_writing(name):
                self._ahead.pop(name, None)
            elif error:
                self._fold(name)
                self._writer.when_idle(name, lambda: self._ahead.pop(name, None))
            answer(error)

        self._writer.submit(name, (record,), finished)

    def _fold(self, name: str) -> None:
        """Compute the state with the changes that are still being written after one of them has failed."""
        found = self.states.get(name)
        state = None if found is None else found[1]
        for record in self._writer.pending(name):
            state = applied(state, record)
        self._ahead[name] = state

    def snapshot_cold(self) -> Iterator[None]:
        """Write a snapshot of each state that no request has snapshotted for long, unless all states are cold.

        One state that changes keeps the log growing, so that the snapshots of all others must move on with it.
        """
        pace, is_cold = Pace(), True
        for _, state in list(self.states.values()):
            is_cold = is_cold and state.is_cold
            if pace.spent(1):
                yield
        for name, (key, _) in [] if is_cold else list(self.states.items()):
            self._snapshot_if_old(name, key)
            if pace.spent(5):
                yield

    def _snapshot_if_old(self, name: str, key: SharePartitionKey) -> None:
        now_ms = self._environment.clock.now_ms()
        found = self._latest(name)
        interval_ms = self._environment.config.share_coordinator_cold_partition_snapshot_interval_ms
        if found is not None and now_ms - found.write_ms >= interval_ms and not self._writer.is_closed:
            self._submit(name, snapshot(key, found, now_ms), lambda _: None)

    def prune(self) -> Iterator[None]:
        """Delete the records before the oldest one that any state still needs; yield between pieces of the work."""
        pace, offset = Pace(), self._applied_to
        for _, state in list(self.states.values()):
            offset = min(offset, state.log_offset)
            if pace.spent(1):
                yield
        if offset > self.pruned_to and not self._writer.is_closed:
            self._delete_before(offset)

    def _delete_before(self, offset: int) -> None:
        try:
            self._environment.log.delete_before(self._writer.partition, offset)
        except (ApiError, StorageError) as error:
            _logger.warning("the log of share group states cannot be pruned to offset %d: %s", offset, error)
        else:
            self.pruned_to = offset

    def forget(self, topics: Collection[UUID]) -> Iterator[None]:
        """Delete the states of topics that were deleted."""
        pace = Pace()
        for name, (key, _) in list(self.states.items()) if topics else ():
            if key.topic_id in topics and not self._writer.is_closed and self._latest(name) is not None:
                self._submit(name, ShareRecord(key, None), lambda _: None)
            if pace.spent(1):
                yield

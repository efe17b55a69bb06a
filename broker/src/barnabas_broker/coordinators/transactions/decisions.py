"""The decisions of the transaction coordinator: how a request changes a transaction, and what the answer is.

All functions are pure. A change of a transaction is pending while it is being written, and from PREPARE until COMPLETE.
The answer is then CONCURRENT_TRANSACTIONS, before producer id, epoch and result are judged: from transaction.version 2
on, a producer may already use the producer id and epoch that its transaction gets with COMPLETE. Where the producer id
and epoch cannot change like this, they are judged first: in EndTxn before transaction.version 2, and in verifications.

The state of a transactional id, as stored in `__transaction_state`, and the allowed transitions between states. A
record has a transactional id, and the state of its last transaction, in Kafka's format. A key begins with version
0. The decoder skips other key versions, which Kafka 4.4 does not use.
"""

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_broker.wire.decoder import decoder
from barnabas_broker.wire.encoder import encoder
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.messages import message_class
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NOT_STARTED: Final = -1
FENCING_EPOCH: Final = 32767
"""The largest epoch of a producer id; only the markers of the last transaction of the producer id have this epoch."""
LAST_CLIENT_EPOCH: Final = FENCING_EPOCH - 1


class TransactionState(IntEnum):
    """The states of a transaction, with their numbers in the records of __transaction_state."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6


def state_name(state: TransactionState) -> str:
    """Return Kafka's name of a state, such as PrepareCommit."""
    return state.name.title().replace("_", "")


EMPTY, ONGOING, DEAD = TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
IDLE: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
PREPARED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})

PREVIOUS_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    EMPTY: IDLE,  # InitProducerId makes a transactional id EMPTY.
    ONGOING: IDLE | {ONGOING},  # AddPartitionsToTxn, AddOffsetsToTxn or, in TV2, Produce adds partitions.
    PREPARE_COMMIT: frozenset({ONGOING}),  # EndTxn commits the transaction.
    PREPARE_ABORT: IDLE | {ONGOING},  # EndTxn, a timeout or InitProducerId aborts; EndTxn of TV2 may abort an idle id.
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),  # All markers have been written.
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: IDLE,  # The transactional id expires, and its tombstone is written.
}
"""The states from which each state may be entered."""


class Transaction(NamedTuple):
    """The state of a transactional id. Records store all fields except `last_epoch`, the epoch before the last bump."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NOT_STARTED
    started_ms: int = NOT_STARTED
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_epoch: int = NO_EPOCH

    @property
    def producer(self) -> ProducerEpoch:
        """The current producer id and epoch."""
        return ProducerEpoch(self.producer_id, self.epoch)

    def enter(self, state: TransactionState, now_ms: int, **changes: Any) -> "Transaction":
        """Return the transaction in the next state `state`, with the fields in `changes`."""
        assert self.state in PREVIOUS_STATES[state], f"a transaction cannot go from {self.state.name} to {state.name}"
        return self._replace(state=state, updated_ms=now_ms, **changes)


class TransactionCounts(msgspec.Struct):
    """The counters of committed transactions, of aborted transactions, and of markers that partition leaders refused.

    A transaction is counted when its completion is stored.
    """

    committed: int = 0
    aborted: int = 0
    refused_markers: Counter[ErrorCode] = msgspec.field(default_factory=Counter)
    """The number of markers that a partition leader refused with a final error, by error code."""


_KEY: Final = "TransactionLogKey"
_VALUE: Final = "TransactionLogValue"
_KEY_VERSION: Final = 0
_VALUE_VERSION_MAX: Final = 1
_INT16: Final = struct.Struct(">h")


class MalformedTransaction(ValueError):
    """The error for a record that cannot be decoded."""


class TransactionRecord(msgspec.Struct, frozen=True):
    """A decoded record of `__transaction_state`; a transaction of None is a tombstone."""

    transactional_id: str
    transaction: Transaction | None
    value_version: int = _VALUE_VERSION_MAX
    """The version of the encoded value: 0 below transaction.version 1, because older brokers read only version 0."""

    @property
    def name(self) -> str:
        """The transactional id of the record."""
        return self.transactional_id

    def encode(self) -> tuple[bytes, bytes | None]:
        """Return the encoded key and value of the record; the value of a tombstone is None."""
        key = _encoded(_KEY, _KEY_VERSION, {"transactional_id": self.transactional_id})
        if self.transaction is None:
            return key, None
        version = min(self.value_version, _VALUE_VERSION_MAX)
        return key, _encoded(_VALUE, version, _fields(self.transaction))


def _encoded(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    out = bytearray(_INT16.pack(version))
    encoder(name, version)(out, message_class(name)(**fields))
    return bytes(out)


def _fields(transaction: Transaction) -> dict[str, Any]:
    return {
        "producer_id": transaction.producer_id,
        "previous_producer_id": transaction.previous_producer_id,
        "next_producer_id": transaction.next_producer_id,
        "producer_epoch": transaction.epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_status": transaction.state,
        "transaction_partitions": None if transaction.state is EMPTY else _topics(transaction.partitions),
        "transaction_last_update_timestamp_ms": transaction.updated_ms,
        "transaction_start_timestamp_ms": transaction.started_ms,
        "client_transaction_version": transaction.client_version,
    }


def _topics(partitions: Iterable[TopicPartition]) -> list[Any]:
    topic_class = message_class(_VALUE).PartitionsSchema
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [topic_class(topic=topic, partition_ids=numbers) for topic, numbers in topics.items()]


def decode(key: bytes, value: bytes) -> TransactionRecord | None:
    """Return the decoded record, None if its version is unknown. Raises MalformedTransaction.

    A transaction that is DEAD has expired, so its record counts as a tombstone.
    """
    try:
        (key_version,), (version,) = _INT16.unpack_from(key), _INT16.unpack_from(value)
        if key_version != _KEY_VERSION or not 0 <= version <= _VALUE_VERSION_MAX:
            return None
        transactional_id = decoder(_KEY, key_version)(memoryview(key)[_INT16.size :]).transactional_id
        found = decoder(_VALUE, version)(memoryview(value)[_INT16.size :])
        transaction = _transaction(found)
        return TransactionRecord(transactional_id, None if transaction.state is DEAD else transaction)
    except (struct.error, MalformedRequest, ValueError) as error:
        raise MalformedTransaction(f"{_VALUE}: {error}") from error


def _transaction(found: Any) -> Transaction:
    return Transaction(
        producer_id=found.producer_id,
        epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        state=TransactionState(found.transaction_status),
        partitions=frozenset(
            TopicPartition(each.topic, number)
            for each in found.transaction_partitions or ()
            for number in each.partition_ids
        ),
        updated_ms=found.transaction_last_update_timestamp_ms,
        started_ms=found.transaction_start_timestamp_ms,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        client_version=found.client_transaction_version,
    )


BUMPING_VERSION: Final = 2
"""The first transaction.version in which every transaction has a producer epoch of its own."""
NOBODY = ProducerEpoch(NO_PRODUCER_ID, NO_EPOCH)


class Decision(NamedTuple):
    """The transaction to write (None if the transaction does not change), and the response to send after the write."""

    error: ErrorCode
    write: Transaction | None = None
    producer: ProducerEpoch = NOBODY
    """The producer id and epoch in the response, for the client's next transaction; NOBODY if the response has none."""


BUSY: Final = Decision(ErrorCode.CONCURRENT_TRANSACTIONS)


def _is_pending(found: Transaction | None, is_writing: bool) -> bool:
    return is_writing or (found is not None and found.state in PREPARED)


def init_producer_id(
    found: Transaction | None,
    is_writing: bool,
    expected: ProducerEpoch,
    timeout_ms: int,
    new_id: int,
    now_ms: int,
    cluster_version: int,
) -> Decision:
    """Return the decision on an InitProducerId: a new epoch or producer id, which fences earlier producers.

    `expected` is the producer id and epoch in the request, NOBODY if the request has none. If a transaction is open,
    the decision aborts the transaction and answers CONCURRENT_TRANSACTIONS, so that the client retries.
    """
    if _is_pending(found, is_writing):
        return BUSY
    known = found or Transaction(new_id, NO_EPOCH, timeout_ms)
    if expected != NOBODY and not _may_be_expected(known, expected):
        return Decision(ErrorCode.PRODUCER_FENCED)
    if known.state is ONGOING:
        return BUSY._replace(write=abort(known, new_id, now_ms, cluster_version))
    current, is_expected = known.producer, expected.epoch in (NO_EPOCH, known.epoch)
    changes: dict[str, Any] = {"timeout_ms": timeout_ms, "partitions": frozenset(), "started_ms": NOT_STARTED}
    if known.epoch >= LAST_CLIENT_EPOCH and is_expected:
        changes |= {"producer_id": new_id, "epoch": 0, "previous_producer_id": known.producer_id}
        changes |= {"last_epoch": known.epoch if expected != NOBODY else NO_EPOCH}
    elif is_expected or known.epoch == NO_EPOCH:
        changes |= {"epoch": known.epoch + 1, "last_epoch": NO_EPOCH if expected == NOBODY else known.epoch}
    elif expected.epoch != known.last_epoch:
        return Decision(ErrorCode.PRODUCER_FENCED)
    elif found is not None:
        # The epoch stays, because the client repeats a request whose response the client has lost.
        changes |= {"epoch": current.epoch}
    written = known.enter(EMPTY, now_ms, **changes)
    return Decision(ErrorCode.NONE, written, written.producer)


def _may_be_expected(known: Transaction, expected: ProducerEpoch) -> bool:
    is_before = expected.producer_id == known.previous_producer_id and expected.epoch >= LAST_CLIENT_EPOCH
    return known.epoch == NO_EPOCH or expected.producer_id == known.producer_id or is_before


def abort(ongoing: Transaction, new_id: int, now_ms: int, cluster_version: int) -> Transaction:
    """Return the transaction in state PREPARE_ABORT, with a new epoch that fences its producer.

    A fenced producer can continue with its last epoch only if the transaction.version of the cluster is at least 2.
    """
    written = _prepare(ongoing, PREPARE_ABORT, True, new_id, now_ms)
    return written if cluster_version >= BUMPING_VERSION else written._replace(last_epoch=NO_EPOCH)


def add_partitions(
    found: Transaction | None,
    is_writing: bool,
    by: ProducerEpoch,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Decision:
    """Return the decision to add partitions to the open transaction, or to begin a transaction with them."""
    if _is_pending(found, is_writing):
        return BUSY
    error = _refusal(found, by)
    if found is None or error is not ErrorCode.NONE:
        return Decision(error)
    if found.state is ONGOING and found.partitions.issuperset(partitions):
        return Decision(ErrorCode.NONE)
    is_first = found.state is not ONGOING
    written = found.enter(
        ONGOING,
        now_ms,
        partitions=frozenset(partitions) | (frozenset() if is_first else found.partitions),
        started_ms=now_ms if is_first else found.started_ms,
        client_version=client_version,
    )
    return Decision(ErrorCode.NONE, written)


def _refusal(found: Transaction | None, by: ProducerEpoch) -> ErrorCode:
    if found is None or by.producer_id != found.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if by.epoch == found.epoch else ErrorCode.PRODUCER_FENCED


def end(
    found: Transaction | None,
    is_writing: bool,
    by: ProducerEpoch,
    commit: bool,
    client_version: int,
    new_id: int,
    now_ms: int,
) -> Decision:
    """Return the decision on an EndTxn; from transaction.version 2 on, each EndTxn bumps the epoch (KIP-890)."""
    is_bumping, is_pending = client_version >= BUMPING_VERSION, _is_pending(found, is_writing)
    if is_bumping and is_pending:
        return BUSY
    if found is None or (by != found.producer and not (is_bumping and _is_retry(found, by))):
        return Decision(_refusal(found, by))
    if is_pending:
        return BUSY
    if by == found.producer and (found.state is ONGOING or (is_bumping and not commit)):
        return _prepared(found, commit, is_bumping, new_id, now_ms)
    is_ended = found.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    if is_ended and (by != found.producer or not is_bumping):
        # The client repeats a request whose response the client has lost.
        return Decision(ErrorCode.NONE, None, found.producer)
    return Decision(ErrorCode.INVALID_TXN_STATE)


def _is_retry(found: Transaction, by: ProducerEpoch) -> bool:
    """True if the transaction has ended, and `by` is the producer id and epoch with which it was open."""
    overflowed = by == (found.previous_producer_id, LAST_CLIENT_EPOCH) and found.epoch == 0
    is_before = overflowed or by == (found.producer_id, found.epoch - 1)
    return is_before and found.state in (COMPLETE_COMMIT, COMPLETE_ABORT)


def _is_committing(found: Transaction) -> bool:
    return found.state in (PREPARE_COMMIT, COMPLETE_COMMIT)


def _prepared(found: Transaction, commit: bool, bump: bool, new_id: int, now_ms: int) -> Decision:
    written = _prepare(found, PREPARE_COMMIT if commit else PREPARE_ABORT, bump, new_id, now_ms)
    # The markers have the transaction version of the EndTxn request: only version 2 bumps the epoch at the end.
    written = written._replace(client_version=BUMPING_VERSION if bump else 0)
    return Decision(ErrorCode.NONE, written, completed(written, now_ms).producer)


def _prepare(found: Transaction, state: TransactionState, bump: bool, new_id: int, now_ms: int) -> Transaction:
    """Return the transaction in a prepared state, with the epoch of its markers.

    If the epoch is the last epoch of the producer id, the next transaction gets the producer id `new_id`.
    """
    started_ms = found.started_ms if found.state is ONGOING else now_ms
    partitions = found.partitions if found.state is ONGOING else frozenset()
    changes: dict[str, Any] = {"started_ms": started_ms, "partitions": partitions}
    if bump:
        is_last = found.epoch + 1 == FENCING_EPOCH
        changes |= {"epoch": found.epoch + 1, "last_epoch": found.epoch}
        changes |= {"next_producer_id": new_id if is_last else NO_PRODUCER_ID}
    return found.enter(state, now_ms, **changes)


def completed(prepared: Transaction, now_ms: int) -> Transaction:
    """Return the completed transaction, once all markers of the prepared transaction are written."""
    changes: dict[str, Any] = {"partitions": frozenset()}
    if prepared.next_producer_id != NO_PRODUCER_ID:
        changes |= {"producer_id": prepared.next_producer_id, "epoch": 0, "last_epoch": prepared.last_epoch}
        changes |= {"previous_producer_id": prepared.producer_id, "next_producer_id": NO_PRODUCER_ID}
    return prepared.enter(COMPLETE_COMMIT if _is_committing(prepared) else COMPLETE_ABORT, now_ms, **changes)


def verify(found: Transaction | None, by: ProducerEpoch, partition: TopicPartition) -> ErrorCode:
    """Return NONE if the partition is in the producer's open transaction, an error code otherwise."""
    error = _refusal(found, by)
    if found is None or error is not ErrorCode.NONE:
        return error
    if found.state in PREPARED:
        return BUSY.error
    is_in = found.state is ONGOING and partition in found.partitions
    return ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE


def is_timed_out(found: Transaction, now_ms: int) -> bool:
    """True if the transaction has been open for longer than its timeout."""
    return found.state is ONGOING and found.started_ms + found.timeout_ms < now_ms


def is_expired(found: Transaction, retention_ms: int, now_ms: int) -> bool:
    """True if the transactional id has no open transaction, and has not changed for the retention time."""
    return found.state in IDLE and found.updated_ms + retention_ms <= now_ms

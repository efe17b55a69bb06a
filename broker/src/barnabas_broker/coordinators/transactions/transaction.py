"""The state of a transactional id, as stored in `__transaction_state`, and the allowed transitions between states.

A record has a transactional id, and the state of its last transaction, in Kafka's format. A key begins with version 0.
The decoder skips other key versions, which Kafka 4.4 does not use.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

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


@dataclass(slots=True)
class TransactionCounts:
    """The counters of committed transactions, of aborted transactions, and of markers that partition leaders refused.

    A transaction is counted when its completion is stored.
    """

    committed: int = 0
    aborted: int = 0
    refused_markers: Counter[ErrorCode] = field(default_factory=Counter)
    """The number of markers that a partition leader refused with a final error, by error code."""


_KEY: Final = "TransactionLogKey"
_VALUE: Final = "TransactionLogValue"
_KEY_VERSION: Final = 0
_VALUE_VERSION_MAX: Final = 1
_INT16: Final = struct.Struct(">h")


class MalformedTransaction(ValueError):
    """The error for a record that cannot be decoded."""


class TransactionRecord(NamedTuple):
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

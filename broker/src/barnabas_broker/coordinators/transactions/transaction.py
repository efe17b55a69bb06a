"""The state of a transactional id, as stored in `__transaction_state`, and the allowed transitions between states."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from barnabas_broker.wire.key_values import ProducerEpoch
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

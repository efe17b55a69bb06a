"""The decisions of the transaction coordinator: how a request changes a transaction, and what the answer is.

All functions are pure. While a transaction is being written, the shard answers CONCURRENT_TRANSACTIONS, unless the
decision is PRODUCER_FENCED.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from barnabas_broker.coordinators.transactions.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    FENCING_EPOCH,
    IDLE,
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    Transaction,
    TransactionState,
)
from barnabas_broker.wire.transaction_markers import ProducerEpoch
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

NOBODY = ProducerEpoch(NO_PRODUCER_ID, NO_EPOCH)


class Decision(NamedTuple):
    """The transaction to write (None if the transaction does not change), and the response to send after the write."""

    error: ErrorCode
    write: Transaction | None = None
    producer: ProducerEpoch = NOBODY
    """The producer id and epoch in the response, for the client's next transaction; NOBODY if the response has none."""


def init_producer_id(
    found: Transaction | None, expected: ProducerEpoch, timeout_ms: int, new_id: int, now_ms: int
) -> Decision:
    """Return the decision on an InitProducerId: a new epoch or producer id, which fences earlier producers.

    `expected` is the producer id and epoch in the request, NOBODY if the request has none. If a transaction is open,
    the decision aborts the transaction and answers CONCURRENT_TRANSACTIONS, so that the client retries.
    """
    known = found or Transaction(new_id, NO_EPOCH, timeout_ms)
    if expected != NOBODY and not _may_be_expected(known, expected):
        return Decision(ErrorCode.PRODUCER_FENCED)
    if known.state in PREPARED:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.state is ONGOING:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS, abort(known, new_id, now_ms))
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


def abort(ongoing: Transaction, new_id: int, now_ms: int) -> Transaction:
    """Return the transaction in state PREPARE_ABORT, with a new epoch that fences its producer."""
    return _prepare(ongoing, PREPARE_ABORT, True, new_id, now_ms)


def add_partitions(
    found: Transaction | None,
    by: ProducerEpoch,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Decision:
    """Return the decision to add partitions to the open transaction, or to begin a transaction with them."""
    error = _refusal(found, by)
    if found is None or error is not ErrorCode.NONE:
        return Decision(error)
    if found.state in PREPARED:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
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
    found: Transaction | None, by: ProducerEpoch, commit: bool, client_version: int, new_id: int, now_ms: int
) -> Decision:
    """Return the decision on an EndTxn; from transaction.version 2 on, each EndTxn bumps the epoch (KIP-890)."""
    if found is None:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client_version >= 2:
        return _end_with_bump(found, by, commit, new_id, now_ms)
    error = _refusal(found, by)
    if error is not ErrorCode.NONE:
        return Decision(error)
    if found.state is ONGOING:
        return _prepared(found, commit, False, new_id, now_ms)
    if found.state is EMPTY or _is_committing(found) != commit:
        return Decision(ErrorCode.INVALID_TXN_STATE)
    return Decision(ErrorCode.NONE if found.state in IDLE else ErrorCode.CONCURRENT_TRANSACTIONS)


def _end_with_bump(found: Transaction, by: ProducerEpoch, commit: bool, new_id: int, now_ms: int) -> Decision:
    is_current, is_late = by == found.producer, _is_one_behind(found, by)
    if by.producer_id != found.producer_id and not (is_late and found.state in IDLE - {EMPTY}):
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if found.state in PREPARED:
        if not is_late:
            return Decision(ErrorCode.PRODUCER_FENCED)
        is_same = _is_committing(found) == commit
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE)
    if is_current and (found.state is ONGOING or not commit):
        return _prepared(found, commit, True, new_id, now_ms)
    if is_current:
        return Decision(ErrorCode.INVALID_TXN_STATE)
    if not is_late or found.state in (EMPTY, ONGOING):
        return Decision(ErrorCode.PRODUCER_FENCED)
    if _is_committing(found) == commit:
        # The transaction has ended already: the client repeats a request whose response the client has lost.
        return Decision(ErrorCode.NONE, None, found.producer)
    # A transaction that timed out was aborted, so its producer is fenced when it commits. A client that aborts a
    # committed transaction has a bug.
    return Decision(ErrorCode.PRODUCER_FENCED if commit else ErrorCode.INVALID_TXN_STATE)


def _is_one_behind(found: Transaction, by: ProducerEpoch) -> bool:
    """True if `by` is the producer id and epoch from before the last epoch bump."""
    overflowed = by == (found.previous_producer_id, LAST_CLIENT_EPOCH) and found.epoch == 0
    return overflowed or by == (found.producer_id, found.epoch - 1)


def _is_committing(found: Transaction) -> bool:
    return found.state in (PREPARE_COMMIT, COMPLETE_COMMIT)


def _prepared(found: Transaction, commit: bool, bump: bool, new_id: int, now_ms: int) -> Decision:
    written = _prepare(found, PREPARE_COMMIT if commit else PREPARE_ABORT, bump, new_id, now_ms)
    # The markers have the transaction version of the EndTxn request: only version 2 bumps the epoch at the end.
    written = written._replace(client_version=2 if bump else 0)
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
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_in = found.state is ONGOING and partition in found.partitions
    return ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE


def is_timed_out(found: Transaction, now_ms: int) -> bool:
    """True if the transaction has been open for longer than its timeout."""
    return found.state is ONGOING and found.started_ms + found.timeout_ms < now_ms


def is_expired(found: Transaction, retention_ms: int, now_ms: int) -> bool:
    """True if the transactional id has no open transaction, and has not changed for the retention time."""
    return found.state in IDLE and found.updated_ms + retention_ms <= now_ms

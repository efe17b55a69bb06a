"""The decisions of the transaction coordinator: how a request changes a transaction, and what the answer is.

All functions are pure. A change of a transaction is pending while it is being written, and from PREPARE until COMPLETE.
The answer is then CONCURRENT_TRANSACTIONS, before producer id, epoch and result are judged: from transaction.version 2
on, a producer may already use the producer id and epoch that its transaction gets with COMPLETE. Where the producer id
and epoch cannot change like this, they are judged first: in EndTxn before transaction.version 2, and in verifications.
"""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

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
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

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

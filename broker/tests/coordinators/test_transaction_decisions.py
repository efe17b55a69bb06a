"""The decisions of the transaction coordinator in each state: the response to a request and the new transaction."""

from typing import Any

import pytest

from barnabas_broker.coordinators.transactions.decisions import (
    BUSY,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    NOBODY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    Decision,
    Transaction,
    TransactionState,
    abort,
    add_partitions,
    completed,
    end,
    init_producer_id,
    is_expired,
    is_timed_out,
    verify,
)
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

FLIGHTS = TopicPartition("flights", 0)
NONE, FENCED, INVALID = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
NEW_ID = 77


def transaction(state: TransactionState, epoch: int = 5, **changes: Any) -> Transaction:
    partitions = frozenset({FLIGHTS}) if state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT) else frozenset()
    return Transaction(7, epoch, 60_000, state, partitions, updated_ms=1_000, started_ms=1_000)._replace(**changes)


@pytest.mark.parametrize(
    ("state", "commit", "epoch", "error"),
    [
        (EMPTY, False, 4, FENCED),
        (EMPTY, True, 4, FENCED),
        (EMPTY, True, 5, INVALID),
        (ONGOING, True, 4, FENCED),
        (COMPLETE_ABORT, False, 4, NONE),
        (COMPLETE_ABORT, True, 4, INVALID),
        (COMPLETE_ABORT, True, 5, INVALID),
        (COMPLETE_COMMIT, False, 4, INVALID),
        (COMPLETE_COMMIT, True, 4, NONE),
        (COMPLETE_COMMIT, True, 5, INVALID),
        (COMPLETE_COMMIT, True, 3, FENCED),
    ],
)
def test_an_end_with_version_2_is_refused_or_a_retry_and_writes_nothing(
    state: TransactionState, commit: bool, epoch: int, error: ErrorCode
) -> None:
    decided = end(transaction(state), False, ProducerEpoch(7, epoch), commit, 2, NEW_ID, 2_000)
    assert decided == Decision(error, None, ProducerEpoch(7, 5) if error is NONE else NOBODY)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_an_abort_without_a_transaction_raises_the_epoch_with_version_2(state: TransactionState) -> None:
    decided = end(transaction(state), False, ProducerEpoch(7, 5), False, 2, NEW_ID, 2_000)
    assert decided.write == transaction(PREPARE_ABORT, 6, partitions=frozenset())._replace(
        updated_ms=2_000, started_ms=2_000, last_epoch=5, client_version=2
    )
    assert decided.producer == ProducerEpoch(7, 6)


def test_the_request_that_ends_a_transaction_sets_the_version_of_its_markers() -> None:
    begun_by_its_first_batch = transaction(ONGOING)._replace(client_version=2)
    written = end(begun_by_its_first_batch, False, ProducerEpoch(7, 5), True, 0, NEW_ID, 2_000).write
    assert written is not None
    assert (written.epoch, written.client_version) == (5, 0)


@pytest.mark.parametrize(
    ("state", "commit", "by", "error"),
    [
        (ONGOING, True, ProducerEpoch(7, 4), FENCED),
        (ONGOING, True, ProducerEpoch(8, 5), MAPPING),
        (EMPTY, True, ProducerEpoch(7, 5), INVALID),
        (COMPLETE_COMMIT, True, ProducerEpoch(7, 5), NONE),
        (COMPLETE_ABORT, True, ProducerEpoch(7, 5), INVALID),
    ],
)
def test_an_end_before_version_2_is_refused_or_a_retry_and_writes_nothing(
    state: TransactionState, commit: bool, by: ProducerEpoch, error: ErrorCode
) -> None:
    decided = end(transaction(state), False, by, commit, 0, NEW_ID, 2_000)
    assert (decided.error, decided.write) == (error, None)


def test_a_retried_end_with_version_2_gets_the_same_response() -> None:
    begun = init_producer_id(None, False, NOBODY, 60_000, 7, 1_000, 2)
    assert begun.producer == ProducerEpoch(7, 0)
    ongoing = add_partitions(begun.write, False, begun.producer, [FLIGHTS], 2, 2_000).write
    assert verify(ongoing, begun.producer, FLIGHTS) is NONE
    assert verify(ongoing, begun.producer, TopicPartition("flights", 1)) is ErrorCode.TRANSACTION_ABORTABLE
    assert add_partitions(ongoing, False, begun.producer, [FLIGHTS], 2, 3_000) == Decision(NONE)
    ended = end(ongoing, False, begun.producer, True, 2, NEW_ID, 4_000)
    assert ended.write is not None
    assert (ended.write.state, ended.write.producer, ended.producer) == (PREPARE_COMMIT, (7, 1), (7, 1))
    assert add_partitions(ended.write, False, ended.producer, [FLIGHTS], 2, 4_000) == BUSY
    done = completed(ended.write, 5_000)
    assert (done.state, done.partitions, done.producer) == (COMPLETE_COMMIT, frozenset(), (7, 1))
    assert end(done, False, begun.producer, True, 2, NEW_ID, 6_000) == Decision(NONE, None, ended.producer)


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    last = ProducerEpoch(7, 32_766)
    ended = end(transaction(ONGOING, 32_766), False, last, True, 2, NEW_ID, 2_000)
    assert ended.write is not None
    assert (ended.write.producer, ended.write.next_producer_id) == ((7, 32_767), NEW_ID)
    assert ended.producer == ProducerEpoch(NEW_ID, 0)
    done = completed(ended.write, 3_000)
    assert (done.producer, done.previous_producer_id) == ((NEW_ID, 0), 7)
    assert end(done, False, last, True, 2, 78, 4_000) == Decision(NONE, None, ProducerEpoch(NEW_ID, 0))


def test_a_new_producer_aborts_the_transaction_of_the_previous_one_and_fences_it() -> None:
    fenced = init_producer_id(transaction(ONGOING), False, NOBODY, 60_000, NEW_ID, 2_000, 2)
    assert (fenced.error, fenced.write) == (BUSY.error, abort(transaction(ONGOING), NEW_ID, 2_000, 2))
    assert fenced.write is not None
    assert init_producer_id(fenced.write, False, NOBODY, 60_000, NEW_ID, 2_000, 2) == BUSY
    again = init_producer_id(completed(fenced.write, 3_000), False, NOBODY, 60_000, NEW_ID, 4_000, 2)
    assert again.producer == ProducerEpoch(7, 7)
    assert end(again.write, False, ProducerEpoch(7, 5), True, 2, NEW_ID, 5_000) == Decision(FENCED)


@pytest.mark.parametrize(
    ("expected", "found", "given"),
    [
        (ProducerEpoch(7, 5), {}, ProducerEpoch(7, 6)),
        (ProducerEpoch(7, 4), {"last_epoch": 4}, ProducerEpoch(7, 5)),  # A retry.
        (ProducerEpoch(7, 4), {}, None),
        (ProducerEpoch(8, 5), {}, None),
        (ProducerEpoch(7, 32_766), {"epoch": 32_766}, ProducerEpoch(NEW_ID, 0)),
        (ProducerEpoch(6, 32_766), {"epoch": 0, "previous_producer_id": 6, "last_epoch": 32_766}, ProducerEpoch(7, 0)),
    ],
)
def test_an_init_with_an_expected_epoch_gets_the_next_one_or_is_fenced(
    expected: ProducerEpoch, found: dict[str, object], given: ProducerEpoch | None
) -> None:
    known = transaction(EMPTY, **found)  # type: ignore[arg-type]
    decided = init_producer_id(known, False, expected, 60_000, NEW_ID, 2_000, 2)
    assert decided.error is (FENCED if given is None else NONE)
    assert decided.producer == (given or NOBODY)


def test_transactions_time_out_and_unused_ids_expire() -> None:
    assert [is_timed_out(transaction(ONGOING), now_ms) for now_ms in (61_000, 61_001)] == [False, True]
    assert not is_timed_out(transaction(EMPTY), 10**9)
    assert [is_expired(transaction(EMPTY), 500, now_ms) for now_ms in (1_499, 1_500)] == [False, True]
    assert not is_expired(transaction(PREPARE_COMMIT), 500, 10**9)


@pytest.mark.parametrize("is_writing", [False, True])
@pytest.mark.parametrize("state", TransactionState)
def test_a_pending_change_is_reported_before_the_producer_is_judged(state: TransactionState, is_writing: bool) -> None:
    if state not in PREPARED and not is_writing:
        return
    found = transaction(state)
    for by in (ProducerEpoch(pid, epoch) for pid in (7, 8) for epoch in (4, 5, 6)):
        assert init_producer_id(found, is_writing, by, 60_000, NEW_ID, 2_000, 2) == BUSY
        assert add_partitions(found, is_writing, by, [FLIGHTS], 0, 2_000) == BUSY
        for commit in (False, True):
            assert end(found, is_writing, by, commit, 2, NEW_ID, 2_000) == BUSY
            first = BUSY if by == found.producer else Decision(FENCED if by.producer_id == 7 else MAPPING)
            assert end(found, is_writing, by, commit, 0, NEW_ID, 2_000) == first


@pytest.mark.parametrize(
    ("by", "error"),
    [
        (ProducerEpoch(7, 5), ErrorCode.CONCURRENT_TRANSACTIONS),
        (ProducerEpoch(7, 4), FENCED),
        (ProducerEpoch(8, 5), MAPPING),
    ],
)
def test_a_verification_judges_the_producer_before_a_prepared_transaction(by: ProducerEpoch, error: ErrorCode) -> None:
    assert verify(transaction(PREPARE_COMMIT), by, FLIGHTS) is error


@pytest.mark.parametrize(("cluster_version", "error"), [(0, FENCED), (1, FENCED), (2, NONE)])
def test_a_fenced_producer_continues_with_its_epoch_only_from_version_2_on(
    cluster_version: int, error: ErrorCode
) -> None:
    fenced = completed(abort(transaction(ONGOING), NEW_ID, 2_000, cluster_version), 3_000)
    again = init_producer_id(fenced, False, ProducerEpoch(7, 5), 60_000, NEW_ID, 4_000, cluster_version)
    assert again.error is error

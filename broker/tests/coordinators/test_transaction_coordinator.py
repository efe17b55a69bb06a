"""The transaction coordinator on its log responds only after the commit of its records, and ends all transactions."""

import pytest
from transaction_world import EXPIRATION_MS, FLIGHTS, TransactionWorld

from barnabas_broker.coordinators.transactions.decisions import Decision
from barnabas_broker.wire.key_values import Marker, ProducerEpoch
from barnabas_core.errors import ApiError, ErrorCode


def test_a_transaction_is_committed_and_the_next_one_begins() -> None:
    world = TransactionWorld()
    producer = world.begun()
    assert producer == ProducerEpoch(101, 0)
    assert world.coordinator.verify("pay", producer, [FLIGHTS]) == {FLIGHTS: ErrorCode.NONE}
    ended = world.end(producer)
    assert (ended.error, ended.producer) == (ErrorCode.NONE, ProducerEpoch(101, 1))
    assert world.state() == "PREPARE_COMMIT"
    assert world.add(ended.producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.write_markers() == [Marker(101, 1, 0, is_commit=True)]
    assert world.state() == "COMPLETE_COMMIT"
    assert world.add(ended.producer) is ErrorCode.NONE


def test_the_coordinator_responds_and_sends_markers_only_after_the_decision_is_committed() -> None:
    world = TransactionWorld()
    producer = world.begun()
    world.log.holding = True
    answers: list[object] = []
    world.coordinator.end("pay", producer, commit=True, client_version=2, new_id=-1, answer=answers.append)
    world.timers.pass_time()
    assert (answers, world.sending) == ([], [])
    assert world.end(producer).error is ErrorCode.CONCURRENT_TRANSACTIONS
    world.log.commit()
    assert len(answers) == len(world.sending) == 1


def test_a_new_coordinator_sends_the_markers_again_with_its_own_epoch() -> None:
    world = TransactionWorld()
    world.end(world.begun(), commit=False)
    (before,) = world.sending
    world.sending.clear()
    world.fail_over()
    assert not before.is_wanted()
    assert world.write_markers() == [Marker(101, 1, 1, is_commit=False)]
    assert world.state() == "COMPLETE_ABORT"


def test_a_decision_that_is_committed_after_the_timeout_still_takes_effect() -> None:
    world = TransactionWorld()
    producer = world.begun()
    world.log.holding = True
    answers: list[Decision] = []
    world.coordinator.end("pay", producer, commit=True, client_version=2, new_id=-1, answer=answers.append)
    world.timers.pass_time(6)
    assert [each.error for each in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.sending == []
    world.log.commit()
    assert len(world.write_markers()) == 1


def test_the_completion_of_a_transaction_is_stored_later_if_the_log_refuses_it() -> None:
    world = TransactionWorld()
    world.end(world.begun())
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    world.write_markers()
    assert world.state() == "PREPARE_COMMIT"
    world.log.failing = None
    world.timers.pass_time(1)
    assert world.state() == "COMPLETE_COMMIT"


def test_a_second_producer_fences_the_first_and_aborts_its_transaction() -> None:
    world = TransactionWorld()
    first = world.begun()
    assert world.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.write_markers() == [Marker(101, 1, 0, is_commit=False)]
    assert world.init().producer == ProducerEpoch(101, 2)
    assert world.end(first).error is ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_is_refused_once_the_decision_of_its_successor_is_stored() -> None:
    world = TransactionWorld()
    first = world.begun()
    world.init()
    world.write_markers()
    second = world.init().producer
    world.add(second)
    world.log.holding = True
    answers: list[Decision] = []
    world.coordinator.end("pay", second, commit=True, client_version=2, new_id=-1, answer=answers.append)
    assert world.end(first).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(first, version=0).error is ErrorCode.PRODUCER_FENCED
    assert world.end(second).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert answers == []
    world.log.holding = False
    world.log.commit()
    world.write_markers()
    assert world.end(first).error is ErrorCode.PRODUCER_FENCED


def test_a_transaction_is_aborted_after_its_timeout() -> None:
    world = TransactionWorld()
    producer = world.begun()
    world.timers.pass_time(75)
    assert world.state() == "PREPARE_ABORT"
    world.write_markers()
    assert world.end(producer).error is ErrorCode.INVALID_TXN_STATE


def test_an_unused_transactional_id_expires() -> None:
    world = TransactionWorld()
    world.init()
    world.timers.pass_time(EXPIRATION_MS / 1000 + 3_700)
    with pytest.raises(ApiError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        world.coordinator.describe("pay")
    world.fail_over()
    assert list(world.coordinator.transactions()) == []

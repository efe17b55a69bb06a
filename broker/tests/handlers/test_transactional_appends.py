"""The first batch of a transaction waits for verification by the coordinator; a marker in between invalidates it."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from one_replica import FLIGHTS, NOW_MS
from producing_broker import MANY, Client, Producing, true_batch

from barnabas_broker.handlers.pending_produce import CHECK_MS_MIN
from barnabas_broker.storage.inspection import KeptBatches
from barnabas_broker.wire.key_values import Marker, ProducerEpoch
from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT
from barnabas_core.config.log_config import CleanupPolicy, LogConfig
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

COMPACTED = LogConfig(cleanup_policies=frozenset({CleanupPolicy.COMPACT}))
ASKED = ("payments", ProducerEpoch(7, 0), FLIGHTS, True)


class Gate:
    """A gate that returns the error that a test sets, or none if it is None, and notes its calls."""

    def __init__(self) -> None:
        self.word: ErrorCode | None = ErrorCode.NONE
        self.kept = KeptBatches(1_000, "for coordinators")
        self.takes_in = True
        self.asked: list[tuple[str, ProducerEpoch, TopicPartition, bool]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.loop = asyncio.new_event_loop()

    def ask(
        self, transactional_id: str, by: ProducerEpoch, partition: TopicPartition, *, adds: bool
    ) -> asyncio.Future[ErrorCode]:
        self.asked.append((transactional_id, by, partition, adds))
        self.meanwhile()
        answer: asyncio.Future[ErrorCode] = asyncio.Future(loop=self.loop)
        if self.word is not None:
            answer.set_result(self.word)
        return answer


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Producing]:
    broker = Producing(tmp_path)
    broker.handler_environment.gate = Gate()
    yield broker
    broker.handler_environment.gate.loop.close()


@pytest.fixture
def client(broker: Producing) -> Client:
    client = Client(broker)
    client.transactional_id = "payments"
    return client


def batch(sequence: int = 0, epoch: int = 0, records: int = 3) -> bytearray:
    return true_batch(
        records, attributes=TRANSACTIONAL_BIT, producer_id=7, producer_epoch=epoch, base_sequence=sequence
    )


def end(broker: Producing, epoch: int, version: int) -> None:
    broker.partition.append_marker(Marker(7, epoch, 0, is_commit=True), version, NOW_MS)


def test_only_the_first_batch_of_a_transaction_in_a_partition_is_verified(broker: Producing, client: Client) -> None:
    assert client.send(batch()).error_code == ErrorCode.NONE
    assert client.send(batch(3)).base_offset == 3
    assert broker.handler_environment.gate.asked == [ASKED]
    assert broker.partition.log.producers.is_in_transaction(7, 0)


def test_a_first_batch_does_not_add_its_partition_below_the_required_feature_level(
    broker: Producing, client: Client
) -> None:
    broker.handler_environment.gate.takes_in = False
    client.send(batch())
    assert broker.handler_environment.gate.asked == [("payments", ProducerEpoch(7, 0), FLIGHTS, False)]


def test_a_batch_that_is_sent_again_is_recognized_as_a_duplicate(broker: Producing, client: Client) -> None:
    client.send(batch())
    again = client.send(batch())
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert len(broker.handler_environment.gate.asked) == 1


@pytest.mark.parametrize(("sequence", "epoch"), [(0, 0), (7, 0), (7, 1)], ids=["duplicate", "gap", "new epoch"])
def test_a_batch_of_no_transaction_gets_the_error_of_the_coordinator_whatever_its_sequence(
    broker: Producing, client: Client, sequence: int, epoch: int
) -> None:
    client.send(batch())
    end(broker, 0, 0)
    broker.handler_environment.gate.word = ErrorCode.TRANSACTION_ABORTABLE
    assert client.send(batch(sequence, epoch)).error_code == ErrorCode.TRANSACTION_ABORTABLE


def test_no_later_request_is_read_while_a_batch_is_verified(broker: Producing, client: Client) -> None:
    client.begin(bytes(batch()))
    assert client.is_muted
    broker.run_what_was_spawned()
    assert not client.is_muted


@pytest.mark.parametrize(
    ("word", "version", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_an_error_of_the_coordinator_is_mapped_to_one_that_producers_know(
    broker: Producing, client: Client, word: ErrorCode, version: int, told: ErrorCode
) -> None:
    client.version, broker.handler_environment.gate.word = version, word
    assert client.send(batch()).error_code == told
    assert broker.partition.log.log_end_offset == 0


def test_a_batch_is_refused_if_a_marker_arrives_while_it_is_verified(broker: Producing, client: Client) -> None:
    client.version = 11
    broker.handler_environment.gate.meanwhile = lambda: end(broker, 0, 0)
    assert client.send(batch()).error_code == ErrorCode.INVALID_TXN_STATE
    assert not broker.partition.log.producers.is_in_transaction(7, 0)


@pytest.mark.parametrize("timeout_ms", [0, 1])
def test_the_timeout_of_a_request_does_not_limit_the_verification(
    broker: Producing, client: Client, timeout_ms: int
) -> None:
    client.timeout_ms = timeout_ms
    client.begin(bytes(batch()))
    broker.timers.pass_time(1)
    broker.run_what_was_spawned()
    assert client.results()[0].error_code == ErrorCode.NONE
    assert broker.partition.log.log_end_offset == 3


def run_next(broker: Producing) -> None:
    """Run only the next of the tasks that were spawned."""
    asyncio.run(broker.spawned.pop(0))


@pytest.mark.parametrize("ends", [False, True])
def test_a_batch_that_waits_for_the_check_of_its_records_is_appended_unless_its_transaction_ends(
    broker: Producing, client: Client, ends: bool
) -> None:
    broker.partition.configure(COMPACTED)
    client.version = 11
    assert client.send(batch()).error_code == ErrorCode.NONE
    client.begin(bytes(batch(3, records=MANY)))
    if ends:
        broker.partition.append_marker(Marker(7, 0, 0, is_commit=False), 0, NOW_MS)
    end_offset = broker.partition.log.log_end_offset
    broker.run_what_was_spawned()
    expected = (ErrorCode.INVALID_TXN_STATE, 0) if ends else (ErrorCode.NONE, MANY)
    assert (client.results()[0].error_code, broker.partition.log.log_end_offset - end_offset) == expected


@pytest.mark.parametrize("ends", [False, True])
def test_a_first_batch_keeps_its_verification_while_its_records_are_checked(
    broker: Producing, client: Client, ends: bool
) -> None:
    broker.partition.configure(COMPACTED)
    client.version = 11
    broker.handler_environment.gate.takes_in = False
    client.begin(bytes(batch(records=MANY)))
    run_next(broker)
    if ends:
        broker.partition.append_marker(Marker(7, 0, 0, is_commit=False), 0, NOW_MS)
    broker.run_what_was_spawned()
    assert client.results()[0].error_code == (ErrorCode.INVALID_TXN_STATE if ends else ErrorCode.NONE)
    assert broker.partition.log.producers.is_in_transaction(7, 0) is not ends


def test_a_batch_of_an_ended_transaction_is_not_appended_with_the_verification_of_the_next(
    broker: Producing, client: Client
) -> None:
    broker.partition.configure(COMPACTED)
    client.version = 11
    assert client.send(batch()).error_code == ErrorCode.NONE
    client.begin(bytes(batch(3, records=MANY)))
    late = broker.spawned.pop()
    broker.partition.append_marker(Marker(7, 0, 0, is_commit=False), 0, NOW_MS)
    following = Client(broker, version=11)
    following.transactional_id = "payments"
    following.begin(bytes(batch(3 + MANY, records=MANY)))
    asyncio.run(late)
    assert client.results()[0].error_code == ErrorCode.INVALID_TXN_STATE


def test_giving_up_a_batch_does_not_invalidate_the_verification_of_its_retry(broker: Producing, client: Client) -> None:
    client.begin(bytes(batch()))
    client.answers.clear()
    again = Client(broker)
    again.transactional_id = "payments"
    again.begin(bytes(batch()))
    assert client.give_up is not None
    client.give_up()
    broker.run_what_was_spawned()
    assert again.results()[0].error_code == ErrorCode.NONE


def test_a_marker_of_the_previous_transaction_does_not_invalidate_the_verification(
    broker: Producing, client: Client
) -> None:
    broker.handler_environment.gate.meanwhile = lambda: end(broker, 1, 2)
    assert client.send(batch(epoch=1)).error_code == ErrorCode.NONE


def test_a_verified_batch_with_an_old_producer_epoch_is_refused(broker: Producing, client: Client) -> None:
    client.send(batch())
    end(broker, 1, 2)
    assert client.send(batch(3)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_must_begin_with_sequence_0(broker: Producing, client: Client) -> None:
    assert client.send(batch(3)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_is_refused_immediately_if_no_memory_is_left(broker: Producing, client: Client) -> None:
    broker.handler_environment.gate.kept = KeptBatches(100, "for coordinators")
    other = Client(broker, "other")
    other.transactional_id = "payments"
    other.begin(bytes(batch()))
    client.begin(bytes(batch()))
    assert not client.is_muted
    assert client.results()[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    broker.run_what_was_spawned()
    assert other.results()[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("ending", ["timeout", "close"])
def test_a_batch_that_waits_for_a_coordinator_that_hangs_holds_its_memory_until_its_request_ends(
    broker: Producing, client: Client, ending: str
) -> None:
    gate, inspector = broker.handler_environment.gate, broker.handler_environment.inspector
    gate.word = None
    client.begin(bytes(batch()))
    assert (gate.kept.bytes_kept, inspector.kept.bytes_kept) == (len(batch()), 0)
    if ending == "timeout":
        broker.timers.pass_time(CHECK_MS_MIN / 1000)
        assert client.results()[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    else:
        assert client.give_up is not None
        client.give_up()
    broker.run_what_was_spawned()
    assert gate.kept.bytes_kept == 0
    assert broker.partition.log.log_end_offset == 0


def test_a_transactional_batch_without_a_transactional_id_is_refused(client: Client) -> None:
    client.transactional_id = None
    assert client.send(batch()).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

"""Produce accepts, corrects or refuses batches with records that contradict their header."""

import asyncio
import logging
from pathlib import Path

import pytest
from one_replica import FLIGHTS, NOW_MS
from producing_broker import MANY, Client, Producing, no_records, true_batch

from barnabas_broker.handlers.batch_trust import (
    CLIENTS_MAX,
    FIRST_BATCHES,
    OTHER_CLIENTS,
    InvalidOutcome,
)
from barnabas_broker.storage.helper import HelperDied, Request, Response
from barnabas_broker.storage.inspection import KEPT_BYTES_MAX, BatchInspector
from barnabas_broker.wire.record_batch import HEADER_BYTES, Codec, parse_header, sealed_batch
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import CleanupPolicy, LogConfig, TimestampType
from barnabas_core.errors import ErrorCode


@pytest.fixture
def broker(tmp_path: Path) -> Producing:
    return Producing(tmp_path)


@pytest.mark.parametrize("seen", [0, FIRST_BATCHES + 1])
@pytest.mark.parametrize("told_ms", [-1, 0, NOW_MS - 1, NOW_MS + 90_000_000])
def test_an_impossible_max_timestamp_is_corrected_in_every_batch(broker: Producing, seen: int, told_ms: int) -> None:
    client = Client(broker)
    client.send_true_ones(seen)
    assert client.send(true_batch(max_timestamp_ms=told_ms)).error_code == 0
    assert broker.stored_times_ms() == [NOW_MS + 2] * (seen + 1)
    assert broker.invalid == {("sarama", InvalidOutcome.CORRECTED): 1}


def test_a_producer_with_wrong_max_timestamps_is_corrected_for_its_whole_connection(
    broker: Producing,
) -> None:
    client = Client(broker)
    for _ in range(FIRST_BATCHES * 3):
        assert client.send(true_batch(max_timestamp_ms=NOW_MS)).error_code == 0
    assert broker.stored_times_ms() == [NOW_MS + 2] * FIRST_BATCHES * 3


@pytest.mark.parametrize("count", [3, MANY])
def test_bytes_that_are_not_records_are_refused_in_the_first_batches(broker: Producing, count: int) -> None:
    refused = Client(broker).send(no_records(count, 40 * count))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert refused.record_errors == []
    assert broker.partition.log.log_end_offset == 0
    assert broker.invalid == {("sarama", InvalidOutcome.REFUSED): 1}


def test_a_batch_too_small_for_its_number_of_records_is_always_refused(broker: Producing) -> None:
    client = Client(broker)
    client.send_true_ones(FIRST_BATCHES + 1)
    assert client.send(no_records(3, 20)).error_code == ErrorCode.INVALID_RECORD


def test_all_batches_of_a_connection_are_inspected_after_an_invalid_one(broker: Producing) -> None:
    client = Client(broker)
    client.send_true_ones(1)
    assert client.send(no_records()).error_code == 0  # The batch is not inspected.
    assert client.send(no_records(3, 20)).error_code == ErrorCode.INVALID_RECORD
    for _ in range(FIRST_BATCHES + 1):
        assert client.send(no_records()).error_code == ErrorCode.INVALID_RECORD


def test_several_first_batches_of_one_record_are_inspected(broker: Producing) -> None:
    client = Client(broker)
    for _ in range(FIRST_BATCHES - 1):
        assert client.send(true_batch(1)).error_code == 0
    assert client.send(no_records()).error_code == ErrorCode.INVALID_RECORD


def test_trust_in_one_connection_does_not_extend_to_another(broker: Producing) -> None:
    liar, honest = Client(broker, "liar"), Client(broker, "honest")
    honest.send_true_ones(FIRST_BATCHES + 1)
    liar.send(no_records())
    assert honest.send(no_records()).error_code == 0
    assert Client(broker, "honest").send(no_records()).error_code == ErrorCode.INVALID_RECORD


def corrupt(batch: bytearray, place: int, new: bytes) -> bytearray:
    body = bytearray(batch[HEADER_BYTES:])
    body[place : place + 1] = new
    return sealed_batch(parse_header(batch, 0), bytes(body))


@pytest.mark.parametrize(
    ("what", "broken"),
    [
        ("a record that is longer than its fields", corrupt(true_batch(1), 0, b"\x1e")),
        ("a negative length", corrupt(true_batch(1), 0, b"\x01")),
        ("an offset delta that is not 0", corrupt(true_batch(1), 3, b"\x02")),
        ("a key that ends past the batch", corrupt(true_batch(1), 4, b"\x7e")),
        ("a key that ends beyond all bytes", corrupt(true_batch(1), 4, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f")),
        ("a value that ends behind its record", corrupt(true_batch(2), 8, b"\x0e")),
        ("headers that are not there", corrupt(true_batch(1), 14, b"\x02")),
        ("a negative number of headers", corrupt(true_batch(1), 14, b"\x01")),
        (
            "bytes after the last record",
            sealed_batch(parse_header(true_batch(1), 0), bytes(true_batch(1)[61:]) + b"\0"),
        ),
        ("fewer records than are told", sealed_batch(parse_header(true_batch(4), 0), bytes(true_batch(3)[61:]))),
        ("more records than are told", sealed_batch(parse_header(true_batch(2), 0), bytes(true_batch(3)[61:]))),
        ("a codec's name and other bytes", true_batch(3)[:21] + b"\0\4" + true_batch(3)[23:]),
    ],
)
def test_malformed_records_are_refused(broker: Producing, what: str, broken: bytearray) -> None:
    resealed = sealed_batch(parse_header(broken, 0), bytes(broken[HEADER_BYTES:]))
    refused = Client(broker).send(resealed)
    assert refused.error_code == ErrorCode.INVALID_RECORD, what
    assert broker.invalid == {("sarama", InvalidOutcome.REFUSED): 1}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("records", [3, MANY])
def test_valid_batches_are_stored_unchanged_whether_the_helper_inspects_them_or_not(
    broker: Producing, codec: Codec, records: int
) -> None:
    client = Client(broker)
    batch = true_batch(records, attributes=codec)
    stored = client.send(batch)
    assert (stored.error_code, stored.base_offset) == (0, 0)
    data = (broker.folder / f"{FLIGHTS}" / f"{0:020}.log").read_bytes()
    assert data[HEADER_BYTES - 44 :] == batch[HEADER_BYTES - 44 :]  # The broker sets the offset and the leader epoch.
    assert bool(broker.helper.asked) == (records == MANY)
    assert broker.invalid == {}


def test_the_helper_inspects_a_small_batch_that_decompresses_to_a_large_one(broker: Producing) -> None:
    large = encode_batch([Record(0, NOW_MS, None, bytes(900_000))], attributes=Codec.ZSTD)
    assert Client(broker).send(large).error_code == 0
    assert len(broker.helper.asked) == 1


def test_batches_of_a_connection_keep_their_order_when_the_helper_inspects_one(broker: Producing) -> None:
    client = Client(broker)
    producer = {"producer_id": 5, "producer_epoch": 0}
    client.begin(bytes(true_batch(MANY, base_sequence=0, **producer)))
    muted = [client.is_muted]  # The next batch has to wait, although it could be appended immediately.
    broker.run_what_was_spawned()
    assert [*muted, client.is_muted] == [True, False]
    assert client.results()[0].error_code == 0
    client.begin(bytes(true_batch(1, base_sequence=MANY, **producer)))
    assert not client.is_muted
    assert client.results()[0].base_offset == MANY


def test_a_record_timestamp_out_of_bounds_is_refused_despite_a_valid_header(broker: Producing) -> None:
    hidden = encode_batch(
        [Record(0, NOW_MS, None, b""), Record(1, NOW_MS + 3_600_001, None, b"")], max_timestamp_ms=NOW_MS
    )
    refused = Client(broker).send(hidden)
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [1]


def test_max_timestamps_are_not_checked_with_log_append_time(tmp_path: Path) -> None:
    broker = Producing(tmp_path, LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert Client(broker).send(true_batch(max_timestamp_ms=-1)).error_code == 0
    assert broker.stored_times_ms() == [NOW_MS]
    assert broker.invalid == {}


def test_the_error_names_records_without_a_key_in_a_compacted_topic(tmp_path: Path) -> None:
    broker = Producing(tmp_path, LogConfig(cleanup_policies=frozenset({CleanupPolicy.COMPACT})))
    made = [Record(number, NOW_MS, key, b"value") for number, key in enumerate((b"a", None, b"b", None))]
    refused = Client(broker).send(encode_batch(made))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [(each.batch_index, each.batch_index_error_message) for each in refused.record_errors] == [
        (1, "record 1 has no key, but cleanup.policy=compact requires one"),
        (3, "record 3 has no key, but cleanup.policy=compact requires one"),
    ]
    assert refused.error_message.startswith("2 of 4 records are refused: record 1 has no key")
    assert broker.invalid == {}


def ages(*ages_ms: int) -> bytearray:
    return encode_batch([Record(number, NOW_MS - age, b"k", b"v") for number, age in enumerate(ages_ms)])


def test_the_limit_on_the_age_of_records_applies_to_each_record(tmp_path: Path) -> None:
    broker = Producing(tmp_path, LogConfig(timestamp_before_max_ms=1000))
    client = Client(broker)
    for _ in range(FIRST_BATCHES + 1):
        assert client.send(ages(0, 1000, 0)).error_code == 0
    refused = client.send(ages(0, 10**9, 0))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [1]


def test_invalid_batches_are_logged_once_per_client_and_counted_for_limited_clients(
    broker: Producing, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(CLIENTS_MAX + 5):
            Client(broker, f"client-{number}").send(no_records())
            Client(broker, f"client-{number}").send(no_records())
    lines = [record.getMessage() for record in caplog.records if "invalid" in record.getMessage()]
    assert len(lines) == CLIENTS_MAX + 5
    assert lines[0].startswith(
        "client 'client-0' sends invalid batches to topic flights; the first invalid batch was refused: a varint"
    )
    assert len(broker.invalid) == CLIENTS_MAX + 1
    assert broker.invalid[OTHER_CLIENTS, InvalidOutcome.REFUSED] == 10


class NoHelper:
    async def request(self, request: Request) -> Response:
        raise HelperDied("the helper process ended with exit code -9")


def test_batches_that_must_be_inspected_get_a_retriable_error_without_a_helper(broker: Producing) -> None:
    broker.handler_environment.inspector = BatchInspector(NoHelper(), broker.clock, asyncio.timeout)  # type: ignore[arg-type]
    client, implausible = Client(broker), true_batch(MANY, max_timestamp_ms=0)
    errors = [client.send(each).error_code for each in (true_batch(MANY), true_batch(MANY), implausible, implausible)]
    late = ErrorCode.REQUEST_TIMED_OUT
    assert errors == [late, ErrorCode.NONE, late, late]


def test_many_small_batches_in_one_request_do_not_block_the_loop(broker: Producing) -> None:
    client = Client(broker)
    broker.partition.configure(LogConfig(cleanup_policies=frozenset({CleanupPolicy.COMPACT})))
    client.begin(*[bytes(true_batch(50))] * 30)
    assert len(broker.spawned) == 10
    broker.run_what_was_spawned()
    assert [result.error_code for result in client.results()] == [0] * 30


def test_the_bytes_of_batches_that_wait_for_inspection_are_limited(broker: Producing) -> None:
    large = bytes(encode_batch([Record(number, NOW_MS, b"key", bytes(1000)) for number in range(MANY)]))
    compacted = frozenset({CleanupPolicy.COMPACT})
    config = LogConfig(cleanup_policies=compacted, message_bytes_max=1 << 30, segment_bytes=1 << 30)
    broker.partition.configure(config)
    fit = KEPT_BYTES_MAX // len(large)
    clients = [Client(broker, f"client-{number}") for number in range(fit + 1)]
    for client in clients:
        client.begin(large)
    assert len(broker.spawned) == fit
    broker.run_what_was_spawned()
    errors = [client.results()[0].error_code for client in clients]
    assert errors == [ErrorCode.NONE] * fit + [ErrorCode.REQUEST_TIMED_OUT]
    assert clients[-1].send(large).error_code == ErrorCode.NONE  # There is memory again.


def test_concurrent_batches_are_inspected_one_at_a_time_until_all_are_trusted(broker: Producing) -> None:
    batch, clients = bytes(true_batch(MANY)), [Client(broker, f"client-{number}") for number in range(10)]
    for waiting in range(len(clients), 0, -1):
        for client in clients:
            client.begin(batch)
        assert len(broker.spawned) == 1
        assert sum(bool(client.answers) for client in clients) == len(clients) - 1
        broker.run_what_was_spawned()
        assert [client.results()[0].error_code for client in clients] == [0] * len(clients)
        assert len(broker.helper.asked) == len(clients) - waiting + 1
    for client in clients:
        client.begin(batch)
    assert broker.spawned == []


def test_only_batches_with_impossible_headers_are_inspected_while_the_helper_is_busy(
    broker: Producing,
) -> None:
    busy, client = Client(broker, "busy"), Client(broker)
    busy.begin(bytes(true_batch(MANY)))
    client.begin(bytes(no_records(MANY, 40 * MANY)))
    assert client.results()[0].error_code == 0
    client.begin(bytes(true_batch(MANY, max_timestamp_ms=0)))
    assert client.answers == []
    broker.run_what_was_spawned()
    assert client.results()[0].error_code == 0
    assert client.send(no_records(MANY, 40 * MANY)).error_code == ErrorCode.INVALID_RECORD

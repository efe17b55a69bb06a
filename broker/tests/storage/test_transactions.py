"""The transactions of one log: markers, the last stable offset, the index of aborted ones, and their recovery."""

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_samples import NOW_MS, OneLog, append, batch, counted_lines, headers_in

from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.logs.log import Log, aborted_among
from barnabas_broker.storage.logs.log_loader import close_logs
from barnabas_broker.storage.logs.truncation import append_as_follower, append_marker, check_marker, truncate_to
from barnabas_broker.storage.producer_state import KEPT_MS, Producer, ProducerCount, ProducerStates
from barnabas_broker.storage.segments.indexes import AbortedTransaction, TransactionIndex
from barnabas_broker.wire.key_values import Marker, decode_marker, encode_marker
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.errors import ApiError, ErrorCode

ALPHA, BETA = 5, 6
TRANSACTIONAL = 0x10


def send(log: Log, producer_id: int, sequence: int, *, epoch: int = 0, value: bytes = b"value") -> int:
    """Append one record of a transaction, and return its offset."""
    return append(log, transactional(producer_id, sequence, epoch=epoch, value=value)).base_offset


def transactional(producer_id: int, sequence: int, *, epoch: int = 0, value: bytes = b"value") -> memoryview:
    """Return a batch with one record of a transaction."""
    return memoryview(
        encode_batch(
            [Record(0, NOW_MS, None, value)],
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


def end(log: Log, producer_id: int, *, epoch: int = 0, commit: bool = False, version: int = 0) -> int:
    """Append a marker, and return its offset."""
    marker = Marker(producer_id, epoch, 0, commit)
    return append_marker(log, marker, version, max(log.epochs.latest_epoch, 0), NOW_MS)


def stable(log: Log, high_watermark: int | None = None) -> int:
    return log.producers.transactions.stable_until(log.log_end_offset if high_watermark is None else high_watermark)


def aborted(log: Log, offset: int = 0, bytes_max: int = 1 << 20) -> list[tuple[int, int]]:
    records = log.read(offset, bytes_max, log.log_end_offset, at_least_one_batch=True)
    assert records is not None
    return aborted_among(log, offset, records)


@pytest.mark.parametrize(
    ("version", "is_open", "epoch", "coordinator_epoch", "refusal"),
    [
        (0, True, 3, 7, None),
        (0, False, 3, 7, None),
        (1, True, 4, 7, None),
        (1, True, 2, 7, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, True, 4, 7, None),
        (2, True, 3, 7, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, False, 3, 7, None),
        (2, False, 2, 7, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, True, 4, 6, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (0, True, -1, 7, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_markers_are_checked_against_the_epochs_of_the_producer_and_the_coordinator(
    version: int, is_open: bool, epoch: int, coordinator_epoch: int, refusal: ErrorCode | None
) -> None:
    producer = Producer(ALPHA, 3)
    producer.coordinator_epoch, producer.transaction_first_offset = 7, 0 if is_open else -1
    code = None
    try:
        check_marker(producer, Marker(ALPHA, epoch, coordinator_epoch, True), version)
    except ApiError as error:
        code = error.code
    assert code is refusal


def test_a_marker_is_a_control_batch_as_kafka_writes_it() -> None:
    marker = Marker(ALPHA, 3, 9, True)
    data = encode_marker(marker, NOW_MS)
    header = parse_header(data, 0)
    assert (header.attributes, header.base_sequence, header.record_count) == (0x30, -1, 1)
    assert bytes(data[-12:]) == b"\x00\x00\x00\x01\x0c\x00\x00\x00\x00\x00\x09\x00"
    assert decode_marker(data, header) == marker
    assert decode_marker(data, header._replace(record_count=0)) is None


def test_readers_of_committed_records_stop_at_the_first_open_transaction(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    append(log, batch(2))
    send(log, ALPHA, 0)
    send(log, BETA, 0)
    assert stable(log) == 2
    end(log, ALPHA, commit=True)
    assert stable(log, high_watermark=4) == 2  # The marker at 4 is not committed.
    assert stable(log, high_watermark=5) == 3
    end(log, BETA)
    assert stable(log, high_watermark=5) == 3
    assert stable(log, high_watermark=6) == 6


def test_the_transaction_index_returns_the_aborted_transactions_of_a_read(tmp_path: Path) -> None:
    log = OneLog(tmp_path).with_config(segment_bytes=300).open()
    send(log, ALPHA, 0)
    send(log, BETA, 0)
    for number in range(1, 8):
        send(log, BETA, number)
    end(log, BETA)
    end(log, ALPHA, commit=True)
    send(log, ALPHA, 1)
    end(log, ALPHA)
    assert len(log.segments) > 3
    assert aborted(log, 0, 1) == [(BETA, 1)]
    assert aborted(log, 11) == [(ALPHA, 11)]
    close_logs([log])
    files = sorted(log.files.scan(log.directory), key=lambda each: each.name)
    data = b"".join(log.files.read(f"{log.directory}/{each.name}") for each in files if each.name.endswith(".txnindex"))
    assert data == struct.pack(">hqqqq", 0, BETA, 1, 9, 0) + struct.pack(">hqqqq", 0, ALPHA, 11, 12, 13)


def test_transactions_agree_with_the_log_after_a_crash_and_a_truncation(tmp_path: Path) -> None:
    made = OneLog(tmp_path)
    log = made.open()
    send(log, ALPHA, 0)
    end(log, ALPHA)
    log.flush()
    send(log, BETA, 0)
    send(log, ALPHA, 1)
    end(log, ALPHA)
    log = made.open(recovery_point=2)
    assert aborted(log) == [(ALPHA, 0), (ALPHA, 3)]
    assert stable(log) == 2
    truncate_to(log, 4)
    assert aborted(log) == [(ALPHA, 0)]
    end(log, BETA, commit=True)
    assert stable(log) == 3
    close_logs([log])
    assert stable(made.open(recovery_point=log.log_end_offset, clean=True)) == 3


def test_a_follower_has_the_same_transactions_as_its_leader(tmp_path: Path) -> None:
    leader, follower = OneLog(tmp_path / "leader").open(), OneLog(tmp_path / "follower").open()
    send(leader, ALPHA, 0)
    send(leader, BETA, 0)
    end(leader, ALPHA)
    records = leader.read(0, 1 << 20, 3, at_least_one_batch=True)
    assert records is not None
    data = records.file.read_at(records.position, records.length)
    assert len(headers_in(data)) == 3
    append_as_follower(follower, memoryview(data), 0, 3, NOW_MS)
    assert stable(follower) == stable(leader) == 1
    assert aborted(follower) == aborted(leader) == [(ALPHA, 0)]
    assert list(follower.producers.snapshot()) == list(leader.producers.snapshot())


def test_a_late_record_of_an_ended_transaction_is_refused_if_the_marker_raised_the_epoch(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    send(log, ALPHA, 0)
    end(log, ALPHA, epoch=1, version=2)
    with pytest.raises(ApiError) as refused:
        send(log, ALPHA, 1)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, ALPHA, 0, epoch=1) == 2
    with pytest.raises(ApiError):
        end(log, ALPHA, epoch=1, version=2)
    assert log.log_end_offset == 3


@pytest.mark.parametrize("happens", ["nothing", "marker", "later epoch", "other epoch", "held by nobody"])
def test_a_log_appends_the_first_batch_of_a_transaction_only_with_a_current_verification(
    tmp_path: Path, happens: str
) -> None:
    log = OneLog(tmp_path).open()
    header = parse_header(transactional(ALPHA, 0), 0)
    held = [log.producers.verifications.begin(ALPHA, 1 if happens == "other epoch" else 0, has_own_epoch=False)]
    if happens == "marker":
        end(log, ALPHA)
    elif happens == "later epoch":
        held.append(log.producers.verifications.begin(ALPHA, 1, has_own_epoch=False))
    elif happens == "held by nobody":
        held.clear()
    begun, verification = log.log_end_offset, held[0] if held else None
    if happens == "nothing":
        log.append(transactional(ALPHA, 0), header, 0, NOW_MS, verification)
        log.append(transactional(ALPHA, 1), parse_header(transactional(ALPHA, 1), 0), 0, NOW_MS)
        assert log.log_end_offset == begun + 2
        end(log, ALPHA)
        header = parse_header(transactional(ALPHA, 2), 0)
        begun += 3
    with pytest.raises(ApiError) as refused:
        log.append(transactional(ALPHA, header.base_sequence), header, 0, NOW_MS, verification)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    assert log.log_end_offset == begun


ENTRY = struct.Struct(">hqqqq")


def damaged(data: bytes, how: str) -> bytes:
    """Return a transaction index in which an entry cannot be true."""
    if how == "torn":
        return data[:-1]
    if how == "one bit each":
        return bytes([data[0] ^ 0x40]) + data[1:]
    fields = list(ENTRY.unpack_from(data))
    place, value = {"version": (0, 1), "first": (2, 2**40), "below the segment": (3, -1), "order": (3, 2**40)}[how]
    fields[place] = value
    return ENTRY.pack(*fields) + data[ENTRY.size :]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", ["torn", "one bit each", "version", "first", "below the segment", "order"])
def test_a_transaction_index_with_an_entry_that_cannot_be_true_is_rebuilt_from_its_segment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, clean: bool
) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=300)
    log = one.open()
    send(log, BETA, 0)
    for number in range(6):
        send(log, ALPHA, number)
        end(log, ALPHA)
    end(log, BETA)
    before = aborted(log), aborted(log, 5)
    close_logs([log])
    path = max(path for path in one.directory.glob("*.txnindex") if path.stat().st_size >= 2 * ENTRY.size)
    good = path.read_bytes()
    path.write_bytes(damaged(good, how))
    log = one.open(recovery_point=log.log_end_offset, clean=clean)
    assert (aborted(log), aborted(log, 5)) == before
    assert path.read_bytes() == good
    assert f"{path} has an entry that cannot be true" in caplog.text


def test_the_cost_of_a_read_does_not_grow_with_transactions_that_were_aborted_behind_it(tmp_path: Path) -> None:
    def lines(count: int) -> int:
        log = OneLog(tmp_path / str(count)).open()
        send(log, BETA, 0)
        for number in range(count):
            send(log, ALPHA, number)
            end(log, ALPHA)
        records = log.read(0, 1, log.log_end_offset, at_least_one_batch=True)
        assert records is not None
        aborted_among(log, 0, records)
        with counted_lines() as counted:
            found = log.segments.active.transactions.overlapping(0, 1)
        assert found == ([], False)
        return counted[0]

    assert lines(1_000) < lines(10) + 200


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=400),
    st.integers(0, 1_300),
    st.integers(1, 1_300),
)
@settings(max_examples=100, deadline=None)
def test_the_search_for_aborted_transactions_finds_what_a_walk_finds(
    made: list[tuple[int, int]], offset: int, end_offset: int
) -> None:
    index, marker, all_of_them = TransactionIndex(PosixFileSystem(), "nowhere", 0, 0), 0, []
    for back, step in made:
        marker += step
        all_of_them.append(AbortedTransaction(1, max(marker - 1 - back, 0), marker, 0))
        index.add(all_of_them[-1])
    found, is_complete = index.overlapping(offset, end_offset)
    assert found == [each for each in all_of_them if each.last_offset >= offset and each.first_offset < end_offset]
    assert not is_complete


def test_no_producer_with_an_open_transaction_is_forgotten() -> None:
    count = ProducerCount(partition_max=3)
    states = ProducerStates(count)
    states.record(parse_header(transactional(1, 0), 0), 0, 0)
    for number in (2, 3):
        states.record(parse_header(batch(producer_id=number, epoch=0, sequence=0), 0), number, 9)
    states.expire(NOW_MS, 2**62)
    states.check(parse_header(batch(producer_id=4, epoch=0, sequence=0), 0), None, NOW_MS + KEPT_MS)
    again = ProducerStates(count, states.snapshot())
    assert states.producers.keys() == again.producers.keys() == {1}
    assert again.transactions.stable_until(100) == 0


def test_the_cost_of_a_new_producer_does_not_grow_with_open_transactions() -> None:
    def lines(opened: int) -> int:
        states = ProducerStates(ProducerCount(partition_max=1))
        for number in range(opened):
            states.record(parse_header(transactional(number, 0), 0), number, 0)
        with counted_lines() as count, pytest.raises(ApiError):
            states.check(parse_header(batch(producer_id=opened, epoch=0, sequence=0), 0), None, NOW_MS)
        return count[0]

    assert lines(1_000) < lines(10) + 100

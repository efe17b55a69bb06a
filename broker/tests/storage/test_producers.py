"""Idempotent producers: duplicates, gaps, epochs, and their state on disk."""

import tracemalloc
from pathlib import Path

import pytest
from storage_samples import NOW_MS, OneLog, append, batch

from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_closing import close_logs
from barnabas_broker.storage.logs.log_offsets import LogAppend
from barnabas_broker.storage.logs.truncation import truncate_to
from barnabas_broker.storage.producer_state.producer_snapshots import SnapshotEntry, decode_snapshot, encode_snapshot
from barnabas_broker.storage.producer_state.producers import PARTITION_MAX, ProducerCount, ProducerStates
from barnabas_broker.wire.record_batch import BatchHeader, parse_header
from barnabas_core.errors import ApiError, ErrorCode

PRODUCER = 5
SEQUENCE_MAX = 2**31 - 1


def send(log: Log, sequence: int, *, records: int = 1, epoch: int = 0, producer_id: int = PRODUCER) -> LogAppend:
    return append(log, batch(records, producer_id=producer_id, epoch=epoch, sequence=sequence))


def refusal(log: Log, sequence: int, *, records: int = 1, epoch: int = 0) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(ApiError) as refused:
        send(log, sequence, records=records, epoch=epoch)
    assert log.log_end_offset == end
    return refused.value.code


def test_a_repeat_of_the_last_five_batches_is_answered_with_their_offsets_and_times(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    for number in range(6):
        send(log, 2 * number, records=2)
    for number in range(1, 6):
        assert send(log, 2 * number, records=2) == LogAppend(2 * number, 2 * number + 2, NOW_MS, True)
    assert log.log_end_offset == 12
    assert refusal(log, 0, records=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("sequence", "records", "epoch", "code"),
    [
        (3, 1, 1, None),
        (4, 1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (2, 1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 2, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 1, 2, None),
        (3, 1, 2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (3, 1, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 3, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_batch_is_checked_against_the_last_sequence_and_epoch_of_its_producer(
    tmp_path: Path, sequence: int, records: int, epoch: int, code: ErrorCode | None
) -> None:
    log = OneLog(tmp_path).open()
    send(log, 0, records=3, epoch=1)
    if code is None:
        assert send(log, sequence, records=records, epoch=epoch).base_offset == 3
    else:
        assert refusal(log, sequence, records=records, epoch=epoch) is code


def test_an_unknown_producer_may_begin_with_any_sequence(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    assert send(log, 1000).base_offset == 0
    assert send(log, 1001).base_offset == 1


@pytest.mark.parametrize(("first", "records", "following"), [(SEQUENCE_MAX, 1, 0), (SEQUENCE_MAX - 1, 4, 2)])
def test_sequences_wrap_to_zero(tmp_path: Path, first: int, records: int, following: int) -> None:
    log = OneLog(tmp_path).open()
    send(log, first, records=records)
    assert send(log, first, records=records).duplicate
    assert refusal(log, following + 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, following).base_offset == records


def test_idle_producers_are_forgotten(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    send(log, 0)
    log.known_producers.expire(NOW_MS + 86_399_999)
    assert refusal(log, 7) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.known_producers.expire(NOW_MS + 86_400_000)
    assert send(log, 7).base_offset == 1


def twelve_batches_each(folder: Path, clean: bool) -> tuple[OneLog, Log]:
    """Write twelve batches of two producers in many segments, and close the log or leave it as after a crash."""
    one = OneLog(folder).with_config(segment_bytes=300)
    log = one.open()
    for number in range(12):
        send(log, number)
        send(log, 2 * number, producer_id=9, records=2)
    if clean:
        close_logs([log])
    return one, log


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_batch_of_a_producer_is_still_known_after_a_restart(tmp_path: Path, clean: bool) -> None:
    one, log = twelve_batches_each(tmp_path, clean)
    log = one.open(recovery_point=log.syncs.recovery_point, clean=clean)
    assert send(log, 11) == LogAppend(33, 34, NOW_MS, True)
    assert send(log, 22, producer_id=9, records=2) == LogAppend(34, 36, NOW_MS, True)
    assert send(log, 12).base_offset == 36


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_five_batches_of_a_producer_are_still_known_after_a_restart(tmp_path: Path, clean: bool) -> None:
    one, log = twelve_batches_each(tmp_path, clean)
    for _ in range(2):  # A log without new records keeps the snapshot that it was opened with.
        log = one.open(recovery_point=log.syncs.recovery_point, clean=clean)
        for number in range(7, 12):
            assert send(log, number) == LogAppend(3 * number, 3 * number + 1, NOW_MS, True)
            assert send(log, 2 * number, producer_id=9, records=2) == LogAppend(
                3 * number + 1, 3 * number + 3, NOW_MS, True
            )
        assert refusal(log, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if clean:
            close_logs([log])


def test_a_snapshot_has_the_newest_batch_of_a_producer_last_because_kafka_uses_the_last(
    tmp_path: Path,
) -> None:
    one = OneLog(tmp_path)
    log = one.open()
    for number in range(7):
        send(log, number)
    close_logs([log])
    (path,) = one.directory.glob("*.snapshot")
    entries = decode_snapshot(path.read_bytes())
    assert [(entry.producer_id, entry.last_sequence, entry.last_offset) for entry in entries] == [
        (PRODUCER, number, number) for number in range(2, 7)
    ]


def test_a_roll_takes_a_snapshot_and_the_log_replaces_damaged_ones(tmp_path: Path) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=200)
    log = one.open()
    for number in range(7):
        send(log, number)
    close_logs([log])
    snapshots = sorted(one.directory.glob("*.snapshot"))
    assert [int(path.stem) for path in snapshots] == [2, 4, 6, 7]
    for path in snapshots[-2:]:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    log = one.open(recovery_point=7, clean=True)
    assert send(log, 6).duplicate
    assert [path.name for path in sorted(one.directory.glob("*.snapshot"))] == [path.name for path in snapshots[:2]]


def test_a_truncation_restores_producers_to_the_remaining_records(tmp_path: Path) -> None:
    log = OneLog(tmp_path).with_config(segment_bytes=300).open()
    for number in range(9):
        send(log, number)
    truncate_to(log, 5)
    assert refusal(log, 8) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 4).duplicate
    assert send(log, 5).base_offset == 5


def test_a_snapshot_has_the_format_of_kafka() -> None:
    entry = SnapshotEntry(1, 2, 3, 4, 5, 6, 7, 8)
    data = encode_snapshot([entry])
    assert data.hex() == (
        "0001"
        "8b65c022"
        "00000001"
        "0000000000000001"
        "0002"
        "00000003"
        "0000000000000004"
        "00000005"
        "0000000000000006"
        "00000007"
        "0000000000000008"
    )
    assert decode_snapshot(data) == [entry]
    with pytest.raises(ValueError, match="the CRC in the file does not match"):
        decode_snapshot(data[:-1] + b"\x09")
    with pytest.raises(ValueError, match="has 0 bytes, but its header needs"):
        decode_snapshot(b"")


def header_of(producer_id: int, sequence: int = 0) -> BatchHeader:
    return parse_header(batch(producer_id=producer_id, epoch=0, sequence=sequence), 0)


def test_a_partition_with_too_many_producers_forgets_the_one_that_was_silent_longest() -> None:
    count = ProducerCount()
    states = ProducerStates(count)
    for producer_id in range(PARTITION_MAX):
        states.record(header_of(producer_id), producer_id, NOW_MS)
    states.record(header_of(0, 1), PARTITION_MAX, NOW_MS)
    states.record(header_of(PARTITION_MAX), PARTITION_MAX + 1, NOW_MS)
    assert (len(states.producers), count.total) == (PARTITION_MAX, PARTITION_MAX)
    assert 1 not in states.producers
    assert states.check_sequence(header_of(0, 1)) is not None
    states.expire(NOW_MS + 1, 1)
    assert count.total == 0


def test_a_new_producer_replaces_one_of_its_partition_if_the_broker_has_too_many() -> None:
    count = ProducerCount(total_max=20)
    crowd, others = ProducerStates(count), ProducerStates(count)
    for producer_id in range(100):
        crowd.record(header_of(producer_id), producer_id, NOW_MS)
    assert list(crowd.producers) == list(range(80, 100))
    for producer_id in range(10):
        others.record(header_of(producer_id), producer_id, NOW_MS)
    assert list(others.producers) == list(range(5, 10))
    assert count.total == 25
    del crowd
    assert count.total == 5


def test_the_newest_producers_are_loaded_from_a_snapshot_with_too_many() -> None:
    entries = [SnapshotEntry(number, 0, 0, number, 0, NOW_MS - number, -1, -1) for number in range(PARTITION_MAX + 10)]
    states = ProducerStates(ProducerCount(), entries)
    assert states.producers.keys() == set(range(PARTITION_MAX))


def test_a_producer_with_five_batches_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        states, headers = ProducerStates(ProducerCount()), [header_of(0, sequence) for sequence in range(5)]
        before, _ = tracemalloc.get_traced_memory()
        for producer_id in range(1_000, 3_000):
            for number, header in enumerate(headers):
                states.record(header._replace(producer_id=producer_id), 10**9 + 5 * producer_id + number, NOW_MS)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(states.producers) < 550

"""Idempotent producers: duplicates, gaps, epochs, and their state on disk."""

import tracemalloc
from pathlib import Path

import pytest
from storage_samples import NOW_MS, OneLog, append, batch

from barnabas_broker.storage.disk.checkpoints import SnapshotEntry, decode_snapshot, encode_snapshot
from barnabas_broker.storage.logs import log_history
from barnabas_broker.storage.logs.log import Log, LogAppend
from barnabas_broker.storage.logs.log_loader import close_logs
from barnabas_broker.storage.logs.truncation import truncate_to
from barnabas_broker.storage.producer_state import KEPT_IF_SCARCE, KEPT_MS, ProducerCount, ProducerStates
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


@pytest.mark.parametrize("cut", [False, True])
def test_a_sync_writes_a_large_snapshot_of_a_roll_in_a_thread_unless_the_log_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    monkeypatch.setattr(log_history, "WRITTEN_AT_ONCE_MAX", 3)
    one = OneLog(tmp_path)
    log = one.open()
    for producer_id in range(4):
        send(log, 0, producer_id=producer_id)
    log.roll(NOW_MS)
    send(log, 1, producer_id=0)  # The snapshot must not have this batch.
    job = log.due_flush(NOW_MS)
    assert job is not None
    assert log.known_producers.snapshots.offsets == []
    job.run()
    if cut:
        truncate_to(log, 2)
    log.syncs.flushed(job, log.log_end_offset)
    names = sorted(path.name for path in one.directory.glob("*.snapshot"))
    assert (names, log.known_producers.snapshots.offsets) == (([], []) if cut else ([f"{4:020}.snapshot"], [4]))
    if not cut:
        entries = decode_snapshot((one.directory / names[0]).read_bytes())
        assert [(entry.producer_id, entry.last_sequence) for entry in entries] == [(each, 0) for each in range(4)]


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


def arrive(states: ProducerStates, producer_id: int, offset: int, *, after_ms: int = 0, sequence: int = 0) -> bool:
    """Check and record a batch at a time; return True if the log had it already."""
    header = header_of(producer_id, sequence)
    if states.check(header, None, NOW_MS + after_ms) is not None:
        return True
    states.record(header, offset, 2**62 - offset)  # The client chooses the timestamp.
    return False


def test_many_new_producers_do_not_make_a_partition_forget_one_that_has_written_recently() -> None:
    states = ProducerStates(ProducerCount(partition_max=100))
    arrive(states, 0, 0)
    for producer_id in range(1, 100):
        arrive(states, producer_id, producer_id, after_ms=1_000)
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            arrive(states, 100, 100, after_ms=KEPT_MS)
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert arrive(states, 0, 100, after_ms=KEPT_MS)
    assert not arrive(states, 0, 101, after_ms=KEPT_MS, sequence=1)


def test_a_full_partition_forgets_the_producers_that_were_silent_longest() -> None:
    count = ProducerCount(partition_max=10)
    states = ProducerStates(count)
    for producer_id in range(10):
        arrive(states, producer_id, producer_id)
    states.expire(NOW_MS + 20_000, 2**62)
    for offset in range(10, 14):
        arrive(states, offset - 10, offset, after_ms=30_000, sequence=1)
    arrive(states, 10, 14, after_ms=20_000 + KEPT_MS)
    assert sorted(states.producers) == [0, 1, 2, 3, 10]
    assert count.total == 5


def test_a_full_broker_refuses_new_producers_and_partitions_with_many_forget_silent_ones() -> None:
    count = ProducerCount(total_max=KEPT_IF_SCARCE + 100)
    crowd, others = ProducerStates(count), ProducerStates(count)
    for producer_id in range(KEPT_IF_SCARCE + 90):
        arrive(crowd, producer_id, producer_id)
    for producer_id in range(10):
        arrive(others, producer_id, producer_id)
    with pytest.raises(ApiError, match="and 1100 to all"):
        arrive(others, 10, 10)
    for states in (crowd, others):
        states.expire(NOW_MS + 15_000, 2**62)
        states.expire(NOW_MS + 15_000 + KEPT_MS, 2**62)
    assert (len(crowd.producers), len(others.producers)) == (KEPT_IF_SCARCE, 10)
    assert not arrive(others, 10, 10, after_ms=KEPT_MS)
    del crowd
    assert count.total == 11


def test_all_producers_are_loaded_from_a_snapshot() -> None:
    entries = [SnapshotEntry(number, 0, 0, number, 0, NOW_MS - number, -1, -1) for number in range(50)]
    states = ProducerStates(ProducerCount(partition_max=10), entries)
    assert states.producers.keys() == set(range(50))


def test_producers_are_loaded_with_the_log_and_not_by_its_first_use(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    log = one.open()
    send(log, 0)
    close_logs([log])
    log = one.open(recovery_point=1, clean=True)
    for path in one.directory.glob("*.snapshot"):
        path.unlink()
    assert send(log, 0).duplicate


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

"""Compaction of transactions: aborted records are removed and supersede no others; markers are removed last."""

from collections.abc import Sequence
from pathlib import Path

from compaction_samples import OneCompactedLog, Pair

from barnabas_broker.storage.logs.log import aborted_among
from barnabas_broker.storage.logs.truncation import append_marker
from barnabas_broker.wire.key_values import Marker
from barnabas_broker.wire.record_batch import DELETE_HORIZON_BIT

ALPHA, BETA = 5, 6
TRANSACTIONAL = 0x10
RETENTION_MS = 1000


def a_log(path: Path) -> OneCompactedLog:
    return OneCompactedLog(path).with_config(delete_retention_ms=RETENTION_MS)


def send(made: OneCompactedLog, pairs: Sequence[Pair], producer_id: int = ALPHA, sequence: int = 0) -> int:
    """Append a batch of a transaction, and return its base offset."""
    return made.append(pairs, producer_id=producer_id, sequence=sequence, attributes=TRANSACTIONAL)


def end(made: OneCompactedLog, producer_id: int = ALPHA, *, epoch: int = 0, commit: bool = False) -> int:
    """Append a marker, and return its offset."""
    return append_marker(made.log, Marker(producer_id, epoch, 0, commit), 0, 0, made.clock.now_ms())


def clean(made: OneCompactedLog) -> None:
    """Do one round, with one more dirty record, because there would be no round without it."""
    made.append([(b"dirt", b"")])
    made.roll()
    assert made.clean()
    assert not made.cleaner.backoff.failed


def markers(made: OneCompactedLog) -> list[int]:
    return [header.base_offset for header, _ in made.batches() if header.is_control]


def aborted(made: OneCompactedLog) -> list[tuple[int, int]]:
    records = made.log.read(0, 1 << 20, made.log.log_end_offset, at_least_one_batch=True)
    assert records is not None
    return aborted_among(made.log, 0, records)


def test_aborted_records_are_removed_at_once_and_supersede_no_committed_ones(tmp_path: Path) -> None:
    made = a_log(tmp_path)
    made.append([(b"a", b"old")])
    made.append([(b"a", b"committed")])
    send(made, [(b"a", b"aborted")])
    send(made, [(b"b", b"aborted")], sequence=1)
    end(made)
    clean(made)
    assert [value for _, value in made.records().values() if value] == [b"committed", b"\0\0\0\0\0\0"]
    assert aborted(made) == [(ALPHA, 2)]
    made.crash()
    assert made.log.producers.producers[ALPHA].last_sequence == 1, "the batch stays, without its record"
    assert aborted(made) == [(ALPHA, 3)]


def test_an_aborted_record_whose_marker_is_past_the_round_supersedes_no_others(tmp_path: Path) -> None:
    made = a_log(tmp_path)
    made.append([(b"a", b"committed")])
    send(made, [(b"a", b"aborted")])
    made.roll()
    end(made)
    assert made.clean()
    assert [value for key, value in made.records().values() if key == b"a"] == [b"committed"]


def test_a_marker_is_removed_some_time_after_the_last_record_of_its_transaction(tmp_path: Path) -> None:
    made = a_log(tmp_path)
    send(made, [(b"a", b"aborted")])
    gone = end(made)
    send(made, [(b"a", b"superseded")], BETA)
    also_gone = end(made, BETA, commit=True)
    send(made, [(b"a", b"kept")], sequence=1)
    send(made, [(b"b", b"kept")], BETA, 1)
    needed, also_needed = end(made, commit=True), end(made, BETA, commit=True)
    clean(made)
    assert markers(made) == [gone, also_gone, needed, also_needed], "this round still found their records"
    clean(made)
    assert markers(made) == [gone, also_gone, needed, also_needed]
    horizons = [header.base_offset for header, _ in made.batches() if header.attributes & DELETE_HORIZON_BIT]
    assert horizons == [gone, also_gone]
    assert aborted(made) == []
    clean(made)
    assert markers(made) == [gone, also_gone, needed, also_needed]
    made.clock.passed_ms += RETENTION_MS
    clean(made)
    assert markers(made) == [needed, also_needed]
    made.crash()
    assert made.log.producers.transactions.stable_until(100) == 100


def test_a_marker_is_kept_if_only_it_has_the_epoch_of_its_producer(tmp_path: Path) -> None:
    made = a_log(tmp_path)
    send(made, [(b"a", b"aborted")])
    fence = end(made, epoch=1)
    for _ in range(3):
        clean(made)
        made.clock.passed_ms += RETENTION_MS
    assert markers(made) == [fence]
    for snapshot in made.directory.glob("*.snapshot"):
        snapshot.unlink()
    made.crash()
    assert made.log.producers.producers[ALPHA].epoch == 1

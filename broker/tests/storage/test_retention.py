"""The segments that retention deletes, and the state that a deletion leaves."""

from pathlib import Path

import pytest
from storage_samples import NOW_MS, OneLog, append, batch

from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_loader import close_logs
from barnabas_core.config.log_config import CleanupPolicy, LogConfig
from harness.retention import enforce_retention

SIZE = len(batch(1))
DAY_MS = 86_400_000


def days(tmp_path: Path, **settings: int) -> tuple[OneLog, Log]:
    """Return a log with five segments of two batches, a day between one and the next; the last is active."""
    one = OneLog(tmp_path).with_config(segment_bytes=2 * SIZE, roll_ms=10 * DAY_MS, **settings)
    log = one.open()
    for number in range(10):
        append(log, batch(timestamps=[NOW_MS + number // 2 * DAY_MS]))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]
    return one, log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize(
    ("now_days", "left"),
    [(2, [0, 2, 4, 6, 8]), (2.1, [2, 4, 6, 8]), (4.5, [6, 8]), (5.5, [8]), (6.5, [10])],
)
def test_segments_whose_newest_record_is_too_old_are_deleted(tmp_path: Path, now_days: float, left: list[int]) -> None:
    _, log = days(tmp_path, retention_ms=2 * DAY_MS)
    enforce_retention(log, NOW_MS + int(now_days * DAY_MS), high_watermark=10)
    assert bases(log) == left
    assert log.log_start_offset == left[0]
    assert log.log_end_offset == 10


@pytest.mark.parametrize(
    ("retention_bytes", "left"),
    [
        (10 * SIZE, [0, 2, 4, 6, 8]),
        (8 * SIZE + 1, [0, 2, 4, 6, 8]),
        (8 * SIZE, [2, 4, 6, 8]),
        (5 * SIZE, [4, 6, 8]),
        (1, [8]),
        (0, [10]),
        (-1, [0, 2, 4, 6, 8]),
    ],
)
def test_segments_are_deleted_while_the_log_is_too_large_by_at_least_one_of_them(
    tmp_path: Path, retention_bytes: int, left: list[int]
) -> None:
    _, log = days(tmp_path, retention_bytes=retention_bytes)
    enforce_retention(log, NOW_MS, high_watermark=10)
    assert bases(log) == left


@pytest.mark.parametrize(("start", "left"), [(1, [0, 2, 4, 6, 8]), (4, [4, 6, 8]), (5, [4, 6, 8]), (10, [8])])
@pytest.mark.parametrize("policy", list(CleanupPolicy))
def test_segments_below_the_log_start_offset_are_deleted_with_every_policy(
    tmp_path: Path, start: int, left: list[int], policy: CleanupPolicy
) -> None:
    _, log = days(tmp_path)
    log.configure(LogConfig(cleanup_policies=frozenset({policy})))
    log.increment_log_start_offset(start)
    enforce_retention(log, NOW_MS, high_watermark=10)
    assert bases(log) == left
    assert log.log_start_offset == start


def test_a_compacted_topic_keeps_old_segments(tmp_path: Path) -> None:
    _, log = days(tmp_path)
    log.configure(LogConfig(cleanup_policies=frozenset({CleanupPolicy.COMPACT}), retention_ms=1, retention_bytes=1))
    assert enforce_retention(log, NOW_MS + 100 * DAY_MS, high_watermark=10) == 0


@pytest.mark.parametrize(("high_watermark", "left"), [(0, [0, 2, 4, 6, 8]), (5, [4, 6, 8]), (9, [8]), (10, [10])])
def test_no_record_at_or_past_the_high_watermark_is_deleted(
    tmp_path: Path, high_watermark: int, left: list[int]
) -> None:
    _, log = days(tmp_path, retention_ms=0)
    enforce_retention(log, NOW_MS + 100 * DAY_MS, high_watermark)
    assert bases(log) == left


def test_records_without_timestamps_are_as_old_as_their_file(tmp_path: Path) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=SIZE, retention_ms=DAY_MS)
    log = one.open()
    for _ in range(3):
        append(log, batch(timestamps=[-1]))
    written_ms = one.file(0, ".log").stat().st_mtime_ns // 1_000_000
    assert enforce_retention(log, written_ms + DAY_MS - 1000, 3) == 0
    assert enforce_retention(log, written_ms + DAY_MS + 60_000, 3) == 3


def test_a_loaded_log_knows_the_age_of_its_segments(tmp_path: Path) -> None:
    one, log = days(tmp_path, retention_ms=2 * DAY_MS)
    close_logs([log])
    again = one.open(recovery_point=10, clean=True)
    enforce_retention(again, NOW_MS + int(4.5 * DAY_MS), high_watermark=10)
    assert bases(again) == [6, 8]


def test_deleted_files_are_renamed_at_once_and_removed_after_the_delay(tmp_path: Path) -> None:
    one, log = days(tmp_path, retention_ms=2 * DAY_MS, file_delete_delay_ms=60_000)
    now_ms = NOW_MS + int(2.1 * DAY_MS)
    enforce_retention(log, now_ms, high_watermark=10)
    assert not one.file(0, ".log").exists()
    trash = one.environment.trash
    assert trash.take(now_ms + 59_999) == []
    due = sorted(Path(path).name for path in trash.take(now_ms + 60_000))
    assert due == [f"{0:020d}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")]


def test_epochs_and_snapshots_of_deleted_segments_are_forgotten(tmp_path: Path) -> None:
    one = OneLog(tmp_path).with_config(segment_bytes=2 * SIZE)
    log = one.open()
    for number in range(10):
        append(log, batch(1), leader_epoch=number // 3)
    log.increment_log_start_offset(6)
    enforce_retention(log, NOW_MS, high_watermark=10)
    assert log.epochs.entries == [(2, 6), (3, 9)]
    assert [int(path.stem) for path in sorted(one.directory.glob("*.snapshot"))] == [6, 8]


@pytest.mark.parametrize(
    ("settings", "timestamps", "segments"),
    [
        ({"segment_bytes": 3 * SIZE}, [0] * 9, 3),
        ({"segment_bytes": 1}, [0] * 4, 4),
        ({"roll_ms": 100}, [0, 100, 101, 150, 201, 202], 3),
        ({"index_interval_bytes": 0, "index_bytes_max": 17}, [-1] * 9, 3),
        ({"index_interval_bytes": 0, "index_bytes_max": 17}, list(range(9)), 5),
    ],
)
def test_a_segment_is_rolled_by_size_time_and_full_index(
    tmp_path: Path, settings: dict[str, int], timestamps: list[int], segments: int
) -> None:
    log = OneLog(tmp_path).with_config(**settings).open()
    for timestamp in timestamps:
        append(log, batch(timestamps=[timestamp]))
    assert len(log.segments) == segments


def test_a_segment_is_rolled_before_relative_offsets_leave_32_bits(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    append(log, batch(1))
    log.skip_to(2**31 - 1)
    append(log, batch(1))
    append(log, batch(1))
    assert bases(log) == [0, 2**31]
    assert len(log.segments.active.path(".log").rsplit("/", 1)[1]) == 24


def test_jitter_spreads_the_rolls(tmp_path: Path) -> None:
    one = OneLog(tmp_path).with_config(roll_ms=1000, roll_jitter_ms=500, segment_bytes=10_000)
    log = one.open()
    jitters = [log.segments.active.roll_jitter_ms]
    for number in range(1, 20):
        append(log, batch(timestamps=[number * 5000]))
        jitters.append(log.segments.active.roll_jitter_ms)
    assert len(set(jitters)) > 5
    assert all(0 <= jitter < 500 for jitter in jitters)

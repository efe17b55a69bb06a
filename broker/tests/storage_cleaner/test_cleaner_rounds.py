"""The order and the times in which logs are compacted, and the retries of one that fails (KAFKA-19895)."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cleaner_samples import dirty
from compaction_samples import PLANES, HelperHere, OneCompactedLog
from msgspec.structs import replace

from barnabas_broker.app.supervision import Supervisor
from barnabas_broker.storage.cleaner.manager import PAUSE_MS_MAX, segments_to_rewrite
from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.helper import CleanSegments, HelperDied, MapKeys, Request
from barnabas_broker.storage.logs.truncation import truncate_fully_and_start_at
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.topic_partition import TopicPartition
from harness.manual_timers import ManualTimer

OTHERS = TopicPartition("others", 0)


def add_dirty_log(one: OneCompactedLog, batches: int) -> None:
    one.logs.create(OTHERS, UUID(int=9), one.config)
    log = one.logs.logs[OTHERS]
    for number in range(batches):
        data = memoryview(encode_batch([Record(0, one.clock.now_ms(), b"k%d" % number, b"v")]))
        log.append(data, parse_header(data, 0), 0, one.clock.now_ms())
    log.roll(one.clock.now_ms())


def dies(_: Request) -> None:
    raise HelperDied("the helper process ended with exit code -9")


def asked(helper: HelperHere, kind: type) -> list[Any]:
    return [request for request, _ in helper.asked if isinstance(request, kind)]


def test_a_failed_partition_is_retried_for_ever_after_pauses_that_double(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    one.helper.before = dies
    pauses = []
    for _ in range(12):
        assert one.clean()
        failed = one.cleaner.backoff.failed[PLANES]
        pauses.append(failed.retry_ms - one.clock.now_ms())
        one.clock.passed_ms += pauses[-1] - 1
        assert not one.clean()
        one.clock.passed_ms += 1
    assert pauses == [min(15_000 << number, PAUSE_MS_MAX) for number in range(12)]
    assert one.cleaner.backoff.failures_total == 12
    assert failed.reason == "the helper process ended with exit code -9"
    assert failed.dirty_bytes > 400
    one.helper.before = lambda _: None
    assert one.clean()
    assert one.cleaner.backoff.failed == {}
    assert sorted(one.records()) == [3]


def test_one_failed_partition_does_not_stop_the_others(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    add_dirty_log(one, 3)

    def dies_of_planes(request: Any) -> None:
        if "planes" in request.directory:
            dies(request)

    one.helper.before = dies_of_planes
    assert one.clean()
    assert one.clean()
    assert not one.clean()
    assert set(one.cleaner.backoff.failed) == {PLANES}
    assert {Path(each.directory).name for each in asked(one.helper, CleanSegments)} == {"others-0"}


def test_the_dirtiest_log_is_compacted_first(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    assert one.clean()
    one.append([(b"a", b"1")])
    one.roll()
    add_dirty_log(one, 3)
    one.helper.asked.clear()
    assert one.clean()
    assert one.clean()
    assert [Path(each.directory).name for each in asked(one.helper, MapKeys)] == ["others-0", "planes-0"]


def test_a_damaged_batch_fails_the_round_and_its_offset_is_reported(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    content = bytearray(one.file(0, ".log").read_bytes())
    content[100] ^= 1
    one.file(0, ".log").write_bytes(content)
    assert one.clean()
    assert "the CRC of the batch at offset 0 does not match" in one.cleaner.backoff.failed[PLANES].reason
    assert one.storage_errors == []


class FullDisk(PosixFileSystem):
    """A file system that takes no changes once it is full."""

    is_full = False

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().set_modified_ms(path, modified_ms)


def test_a_round_that_fails_on_a_full_disk_leaves_no_file_and_is_retried(tmp_path: Path) -> None:
    files = FullDisk()
    one = dirty(tmp_path)
    one.files = files
    one.crash()
    files.is_full = True
    assert one.clean()
    assert "No space left on device" in one.cleaner.backoff.failed[PLANES].reason
    assert not list(one.directory.glob("*.cleaned"))
    files.is_full = False
    one.clock.passed_ms += 15_000
    assert one.clean()
    assert sorted(one.records()) == [3]


def test_a_failed_sync_in_the_helper_takes_the_log_dir_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = dirty(tmp_path)

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", fail)
    assert one.clean()
    assert [type(error).__name__ for error in one.storage_errors] == ["LogDirFailed"]


class BreaksInTheSwap(PosixFileSystem):
    """A disk that fails at the first rename to `.deleted`."""

    def rename(self, old: str, new: str) -> None:
        if new.endswith(".deleted"):
            raise OSError(errno.EIO, "Input/output error")
        super().rename(old, new)


def test_a_disk_failure_during_a_swap_is_reported_to_the_owner_of_the_partition(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    one.files = BreaksInTheSwap()
    one.crash()
    assert one.clean()
    assert [type(error).__name__ for error in one.storage_errors] == ["LogDirFailed"]
    assert not list(one.directory.glob("*.swap"))
    one.files = PosixFileSystem()
    one.crash()
    assert sorted(one.records()) == [0, 1, 2, 3]
    assert one.clean()
    assert sorted(one.records()) == [3]


def test_no_record_is_removed_for_a_newer_one_that_is_not_synced(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", b"1")])
    one.roll()
    one.append([(b"a", b"2")])
    one.log.roll(one.clock.now_ms())
    assert asyncio.run(one.cleaner.clean_dirtiest())
    assert sorted(one.records()) == [0, 1]
    assert one.clean()
    assert sorted(one.records()) == [1]


def test_segments_are_not_merged_over_more_offsets_than_an_index_entry_holds(tmp_path: Path) -> None:
    one = OneCompactedLog(tmp_path)
    one.append([(b"a", b"1")])
    truncate_fully_and_start_at(one.log, 5, 0)
    one.append([(b"a", b"1")])
    one.roll()
    first = one.log.segments.first
    one.log.skip_to(first.base_offset + 2**31 - 1)
    one.append([(b"b", b"1")])
    one.roll()
    one.append([(b"c", b"1")])
    one.roll()
    bases = [segment.base_offset for segment in one.log.segments]
    groups = segments_to_rewrite(one.log, one.log.log_end_offset)
    assert [[segment.base_offset for segment in group] for group in groups] == [[5, bases[1]], [bases[2]]]


def test_a_cleaner_checkpoint_outside_the_log_is_ignored(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nplanes 0 77\n")
    assert one.clean()
    assert sorted(one.records()) == [3]


def test_no_log_is_compacted_while_the_cleaner_is_switched_off(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    one.settings = replace(one.settings, log_cleaner_enable=False)
    assert not one.clean()
    assert one.helper.asked == []


async def the_timer(one: OneCompactedLog) -> ManualTimer:
    """Return the timer that begins the next round."""
    while not one.timers.waiting:
        await asyncio.sleep(0)
    (timer,) = one.timers.waiting
    return timer


async def test_rounds_are_started_by_a_timer_until_the_cleaner_is_stopped(tmp_path: Path) -> None:
    one = dirty(tmp_path)
    supervisor = Supervisor(pytest.fail)
    one.cleaner.start(supervisor.supervise)
    timer = await the_timer(one)
    assert timer.delay_s == 15.0
    timer.run()
    assert await the_timer(one) is not timer
    assert one.cleaner.stats.rounds == 1
    supervisor.stopping()
    await one.cleaner.stop()
    assert one.timers.waiting == []
    assert one.helper.stopped


async def test_a_bug_in_a_round_does_not_end_the_rounds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = dirty(tmp_path)

    def bug(_: Request) -> None:
        raise ZeroDivisionError

    one.helper.before = bug
    supervisor = Supervisor(pytest.fail)
    one.cleaner.start(supervisor.supervise)
    (await the_timer(one)).run()
    await the_timer(one)
    supervisor.stopping()
    await one.cleaner.stop()
    assert "compaction failed; the next attempt is in 15000 ms" in caplog.text


def test_a_segment_whose_age_cannot_be_read_fails_the_round_of_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = dirty(tmp_path).with_config(min_compaction_lag_ms=1)

    def broken(_: Segment) -> tuple[int, int]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Segment, "largest_timestamp", broken)
    assert not one.clean()
    assert set(one.cleaner.backoff.failed) == {PLANES}
    assert one.storage_errors == []

"""A failed sync may have lost pages although the next one passes: the log dir goes offline (fsyncgate)."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from log_manager_samples import manager
from storage_samples import NOW_MS, acknowledged_later, append, batch, read_all

from barnabas_broker.app.log_tasks import held_logs
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.storage.disk.checkpoints import NO_INCARNATION, LastIncarnation
from barnabas_broker.storage.disk.files import OpenFiles, PosixFile, PosixFileSystem, Trash
from barnabas_broker.storage.errors import DiskFull, LogDirFailed, LogDirRefused
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity, Kept
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.flushes import flush_below
from harness.manual_clock import ManualClock

FLIGHTS = TopicPartition("flights", 0)
TOPIC_ID = UUID(int=7)
ERRORS = [errno.ENOSPC, errno.EDQUOT, errno.EIO]


def started(*paths: Path, last_incarnation: LastIncarnation = NO_INCARNATION) -> LogManager:
    environment = LogEnvironment(PosixFileSystem(), OpenFiles(100), Trash(), random.Random(0))
    settings = LogManagerSettings([str(path) for path in paths])
    logs = LogManager(environment, ManualClock(), settings, BrokerIdentity("cluster", 1), lambda _: LogConfig())
    logs.on_sync_due = acknowledged_later
    logs.load(last_incarnation=last_incarnation)
    return logs


def filled(logs: LogManager, directory: Path) -> Log:
    log = logs.create(FLIGHTS, TOPIC_ID, LogConfig(), str(directory))
    for _ in range(3):
        append(log, batch(2))
    return log


def failing_syncs(monkeypatch: pytest.MonkeyPatch, code: int, *, at: str = "") -> None:
    """Let syncs of files and directories below `at` fail."""

    def fail(descriptor: int) -> None:
        if at in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(os, "fsync", fail)


@pytest.mark.parametrize("code", ERRORS)
def test_a_failed_sync_counts_as_a_failed_disk_for_every_error_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    log = filled(started(tmp_path), tmp_path)
    failing_syncs(monkeypatch, code)
    with pytest.raises(LogDirFailed, match="written data may be lost"):
        log.flush()
    assert log.syncs.recovery_point == 0


class ToldReads(PosixFileSystem):
    """A file system that calls `on_read` for each small file that is read."""

    def __init__(self) -> None:
        self.on_read: Callable[[], object] = lambda: None

    def read(self, path: str) -> bytes:
        self.on_read()
        return super().read(path)


def test_unsynced_logs_of_a_returning_log_dir_are_listed_despite_a_listing_during_its_load(
    tmp_path: Path,
) -> None:
    files = ToldReads()
    environment = LogEnvironment(files, OpenFiles(100), Trash(), random.Random(0))
    settings = LogManagerSettings([str(tmp_path)])
    logs = LogManager(environment, ManualClock(), settings, BrokerIdentity("cluster", 1), lambda _: LogConfig())
    logs.load()
    filled(logs, tmp_path).roll(NOW_MS)
    logs.fail_dir(LogDirFailed(str(tmp_path), "a sync failed"))
    files.on_read = logs.unflushed_logs
    assert logs.probe(logs.log_dirs)
    assert logs.unflushed_logs() == [logs.logs[FLIGHTS]]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_an_append_on_a_full_disk_leaves_the_disk_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    log = filled(started(tmp_path), tmp_path)

    def full(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFull):
        append(log, batch(1))


@pytest.mark.parametrize("code", ERRORS)
def test_a_failed_sync_of_a_checkpoint_counts_as_a_failed_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    logs = started(tmp_path)
    filled(logs, tmp_path).flush()
    failing_syncs(monkeypatch, code)
    with pytest.raises(LogDirFailed):
        logs.checkpoint_calls(lambda _: None)[0]()


@pytest.mark.parametrize("code", ERRORS)
def test_a_shutdown_whose_sync_fails_leaves_no_clean_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    logs = started(tmp_path)
    filled(logs, tmp_path)
    failing_syncs(monkeypatch, code, at="flights-0")
    logs.shutdown(lambda _: None)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("code", ERRORS)
def test_a_failed_sync_of_a_moving_replica_is_a_failure_of_the_target_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    logs = started(tmp_path / "a", tmp_path / "b")
    filled(logs, tmp_path / "a")
    move = logs.moves.start(FLIGHTS, str(tmp_path / "b"))
    assert move is not None
    move.copy(1 << 20)
    failing_syncs(monkeypatch, code)
    for step in (move.sync, lambda: move.swap(NOW_MS)):
        with pytest.raises(LogDirFailed) as failed:
            step()
        assert failed.value.log_dir == str(tmp_path / "b")


def test_records_in_memory_are_written_again_when_a_disk_returns_after_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = started(tmp_path)
    log = filled(logs, tmp_path)
    flush_below(log, 4)
    logs.checkpoint(lambda _: None)
    logs.fail_dir(LogDirFailed(str(tmp_path), "a sync failed"))
    written: list[tuple[int, int]] = []
    pwrite = os.pwrite

    def noted(descriptor: int, data: bytes, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".log"):
            written.append((position, len(data)))
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", noted)
    assert logs.probe(logs.log_dirs)
    size = len(batch(2))
    assert written == [(2 * size, size)]
    again = logs.logs[FLIGHTS]
    assert again.syncs.recovery_point == 4
    assert len(read_all(again)) == 3


def test_a_log_dir_that_came_back_with_fewer_records_is_not_marked_clean(tmp_path: Path) -> None:
    """Its broker may shut down before it has reported the loss to the metadata store."""
    logs = started(tmp_path)
    filled(logs, tmp_path)
    segment = next((tmp_path / str(FLIGHTS)).glob("*.log"))
    logs.fail_dir(LogDirFailed(str(tmp_path), "a sync failed"))
    lost = len(batch(2))
    with segment.open("r+b") as file:
        file.seek(2 * lost)
        file.write(bytes(lost))
    assert logs.probe(logs.log_dirs)
    logs.shutdown(lambda _: None)
    assert not started(tmp_path).was_clean


def test_records_in_memory_are_written_again_by_the_next_process_after_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page cache is complete: only a note of the process before shows that the disk may lack some of it."""
    logs = started(tmp_path)
    filled(logs, tmp_path)
    with monkeypatch.context() as failing:
        failing_syncs(failing, errno.EIO, at="flights-0")
        logs.shutdown(lambda _: None)
    rewritten: list[int] = []
    monkeypatch.setattr(PosixFile, "rewrite", lambda _, position: rewritten.append(position))
    assert len(read_all(started(tmp_path).logs[FLIGHTS])) == 3
    assert rewritten == [0]
    started(tmp_path)
    assert rewritten == [0]


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_log_is_not_whole_if_the_page_cache_lost_data_after_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_dropped: bool
) -> None:
    """The machine was not restarted, so all written data would otherwise be there."""
    logs = started(tmp_path)
    filled(logs, tmp_path)
    logs.create(TopicPartition("flights", 1), TOPIC_ID, LogConfig(), str(tmp_path))
    with monkeypatch.context() as failing:
        failing_syncs(failing, errno.EIO, at="flights-0")
        logs.shutdown(lambda _: None, 5)
    if is_dropped:
        (segment,) = tmp_path.glob("flights-0/*.log")
        os.truncate(segment, segment.stat().st_size // 2)
        os.truncate(segment, 2 * segment.stat().st_size)
    again = started(tmp_path, last_incarnation=LastIncarnation((5,), machine_ran_on=True))
    kept = {each.partition: each.kept for each in held_logs(again, MetadataImage())}
    assert kept == {0: Kept.SOME if is_dropped else Kept.ALL, 1: Kept.ALL}


def test_a_damaged_log_keeps_the_note_of_a_failed_sync_for_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was not written again: data that its disk lacks would count as written once the log is repaired."""
    logs = started(tmp_path)
    log = filled(logs, tmp_path)
    flush_below(log, 4)
    logs.checkpoint(lambda _: None)
    with monkeypatch.context() as failing:
        failing_syncs(failing, errno.EIO, at="flights-0")
        logs.shutdown(lambda _: None)
    segment = next((tmp_path / "flights-0").glob("*.log"))
    segment.write_bytes(b"\xff" * len(batch(2)) + segment.read_bytes()[len(batch(2)) :])
    assert FLIGHTS in started(tmp_path).failed
    assert (tmp_path / ".sync-failed").exists()


def test_no_note_of_a_failed_sync_is_left_in_a_log_dir_of_another_broker(tmp_path: Path) -> None:
    mounted, elsewhere, other = tmp_path / "mounted", tmp_path / "elsewhere", tmp_path / "other"
    logs = started(mounted, other)
    mounted.rename(elsewhere)
    logs.fail_dir(logs.log_dirs[0].problems()[0])
    another = manager(mounted, identity=BrokerIdentity("cluster", 2))
    another.load()
    before = sorted(mounted.iterdir())
    assert not logs.probe(logs.log_dirs)
    assert isinstance(logs.log_dirs[0].failure, LogDirRefused)
    assert sorted(mounted.iterdir()) == before

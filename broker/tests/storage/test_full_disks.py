"""Full and failing disks under a log manager."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from log_manager_samples import CONFIG, TOPIC_ID, FullAfter, fill, flights, manager, started
from storage_samples import NOW_MS, append, batch, read_all

from barnabas_broker.storage.disk.files import LogFile, PosixFileSystem
from barnabas_broker.storage.errors import (
    DiskFull,
    Exhausted,
    LogDirFailed,
    LogDirRefused,
    SyncFailed,
    storage_error,
)
from barnabas_core.config.log_config import LogConfig
from harness.retention import enforce_retention


def test_a_full_disk_refuses_the_batch_and_leaves_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    append(log, batch(2))
    path = tmp_path / "flights-0" / f"{0:020d}.log"
    disk = FullAfter(monkeypatch, bytes_left=30)
    sent = batch(1, producer_id=4, epoch=0, sequence=0)
    for _ in range(2):
        with pytest.raises(DiskFull, match="no space left"):
            append(log, sent)
        assert path.stat().st_size == len(batch(2))
        assert log.log_end_offset == 2
    assert len(read_all(log)) == 1
    disk.bytes_left = 10_000
    assert append(log, sent).base_offset == 2
    assert append(log, sent).duplicate


def test_a_broker_starts_and_reads_on_a_full_disk_and_retention_frees_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = started(tmp_path)
    config = LogConfig(segment_bytes=2 * len(batch(1)), index_interval_bytes=0)
    log = logs.create(flights(0), TOPIC_ID, config)
    for number in range(7):
        append(log, batch(1, producer_id=4, epoch=0, sequence=number), leader_epoch=number)
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the process dies"))
    (tmp_path / ".sync-failed").unlink()  # No sync has failed: only the process has died.
    assert not (tmp_path / "flights-0" / "leader-epoch-checkpoint").exists()
    FullAfter(monkeypatch, bytes_left=0)
    again = started(tmp_path).logs[flights(0)]
    assert len(read_all(again)) == 7
    assert again.epochs.end_offset_for(3, again.log_end_offset) == (3, 4)
    again.configure(LogConfig(retention_bytes=0))
    with pytest.raises(DiskFull):
        enforce_retention(again, NOW_MS, high_watermark=7)
    assert [segment.base_offset for segment in again.segments] == [6]


def test_a_failing_disk_is_distinguished_from_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    append(log, batch(2))

    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(LogDirFailed, match=r"the disk failed .*Input/output error") as failed:
        append(log, batch(1))
    assert failed.value.log_dir == str(tmp_path)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_lack_of_descriptors_or_memory_does_not_count_as_a_failed_disk(tmp_path: Path, code: int) -> None:
    error = storage_error(str(tmp_path), "flights-0", OSError(code, os.strerror(code)))
    assert isinstance(error, Exhausted)
    sync_failed = SyncFailed(OSError(code, os.strerror(code)))
    assert isinstance(storage_error(str(tmp_path), "flights-0", sync_failed), LogDirFailed)


def test_a_start_without_free_descriptors_takes_no_log_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = started(tmp_path)
    append(logs.create(flights(0), TOPIC_ID, CONFIG), batch(2))
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the process dies"))
    again = manager(tmp_path)

    def used_up(*_: object) -> LogFile:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as exhausted:
        exhausted.setattr(PosixFileSystem, "open_file", used_up)
        with pytest.raises(LogDirRefused):
            again.load()
    assert again.failed == {}
    assert again.probe(again.log_dirs)
    assert len(read_all(again.logs[flights(0)])) == 1


class FullBelow(PosixFileSystem):
    """The disk of one directory takes no small file: checkpoints, snapshots and marks."""

    def __init__(self) -> None:
        self.directory: Path | None = None

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        if self.directory is not None and Path(path).is_relative_to(self.directory):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write_atomically(path, data, sync=sync)


def test_a_shutdown_marks_the_other_log_dirs_clean_if_one_disk_is_full(tmp_path: Path) -> None:
    files = FullBelow()
    logs = manager(tmp_path / "a", tmp_path / "b", files=files)
    logs.load()
    ends = fill(logs, 2)
    files.directory = tmp_path / "a"
    logs.shutdown(lambda log: ends[log.topic_partition])
    assert all(log_dir.is_online for log_dir in logs.log_dirs), "a full disk has not failed"
    marks = [(tmp_path / name / ".kafka_cleanshutdown").exists() for name in ("a", "b")]
    assert marks == [False, True]
    again = started(tmp_path / "b")
    assert again.logs[flights(1)].log_end_offset == ends[flights(1)]


def test_a_shutdown_marks_the_other_log_dirs_clean_if_one_is_missing(tmp_path: Path) -> None:
    logs = started(tmp_path / "a", tmp_path / "b")
    ends = fill(logs, 2)
    shutil.rmtree(tmp_path / "a")
    logs.shutdown(lambda log: ends[log.topic_partition])
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    again = started(tmp_path / "a", tmp_path / "b")
    assert set(again.logs) == {flights(1)}

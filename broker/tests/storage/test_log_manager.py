"""Log dirs: their owner, the logs that a start finds in them, and failures that do not affect other log dirs."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from uuid import UUID

import pytest
from log_manager_samples import BROKER, CONFIG, TOPIC_ID, FullAfter, HeldWrites, fill, flights, manager, started
from storage_samples import NOW_MS, append, batch, read_all

from barnabas_broker.storage.disk.files import FlushJob, PosixFileSystem
from barnabas_broker.storage.errors import DiskFull, LogDirFailed, LogDirRefused
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity, LogDir, LogDirState
from barnabas_broker.storage.log_dirs.log_dir_loader import LoadProgress
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_syncs import sync_now
from barnabas_broker.storage.logs.truncation import truncate_to
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from harness.deadline import PATIENCE_S


class CountedSyncs(PosixFileSystem):
    """A file system that records the small files that were synced when they were written."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        super().write_atomically(path, data, sync=sync)
        self.synced += [path] * sync


def due_flushes(logs: LogManager, now_ms: int) -> list[tuple[Log, FlushJob]]:
    return [(log, job) for log in logs.logs.values() if (job := log.due_flush(now_ms)) is not None]


def test_logs_are_loaded_after_a_clean_shutdown(tmp_path: Path) -> None:
    logs = started(tmp_path)
    ends = fill(logs, 3)
    logs.shutdown(lambda log: ends[log.topic_partition])
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    again = started(tmp_path)
    assert {key: log.log_end_offset for key, log in again.logs.items()} == ends
    assert {log.topic_id for log in again.logs.values()} == {TOPIC_ID}
    assert again.log_dirs[0].offsets("replication-offset-checkpoint") == ends
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_logs_are_loaded_after_a_crash_and_the_progress_is_reported(tmp_path: Path) -> None:
    logs = started(tmp_path)
    ends = fill(logs, 3)
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the process dies"))
    heard: list[LoadProgress] = []
    again = manager(tmp_path)
    again.load(heard.append)
    assert {key: log.log_end_offset for key, log in again.logs.items()} == ends
    assert heard[-1] == LoadProgress(str(tmp_path), 3, 3, 6 * len(batch(1)))


def test_the_log_start_offset_survives_a_crash_after_a_checkpoint(tmp_path: Path) -> None:
    logs = started(tmp_path)
    fill(logs, 3)
    log = logs.logs[flights(2)]
    log.increment_log_start_offset(2)
    logs.checkpoint(lambda _: None)
    assert (tmp_path / "log-start-offset-checkpoint").read_bytes() == b"0\n1\nflights 2 2\n"
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the process dies"))
    again = started(tmp_path).logs[flights(2)]
    assert (again.log_start_offset, again.log_end_offset) == (2, 3)


def test_partitions_created_at_once_are_spread_by_their_expected_size(tmp_path: Path) -> None:
    logs = manager(tmp_path / "a", tmp_path / "b", placement="least-bytes")
    logs.load()
    append(logs.create(flights(0), TOPIC_ID, CONFIG, str(tmp_path / "a")), batch(1))
    for number in range(1, 8):  # Each is expected to become as large as the only log with data.
        logs.create(flights(number), TOPIC_ID, CONFIG)
    assert [len(log_dir.logs) for log_dir in logs.log_dirs] == [4, 4]


def test_rolled_segments_are_synced_by_jobs_and_the_recovery_point_follows(tmp_path: Path) -> None:
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, LogConfig(segment_bytes=2 * len(batch(1))))
    for _ in range(5):
        append(log, batch(1))
    assert log.syncs.recovery_point == 0
    [(flushed, job)] = due_flushes(logs, NOW_MS)
    job.run()
    assert log.syncs.recovery_point == 0
    flushed.syncs.flushed(job, flushed.log_end_offset)
    assert log.syncs.recovery_point == 4
    assert due_flushes(logs, NOW_MS) == []


def test_a_log_is_synced_after_flush_messages_and_flush_ms(tmp_path: Path) -> None:
    logs = started(tmp_path)
    logs.on_sync_due = sync_now
    log = logs.create(flights(0), TOPIC_ID, LogConfig(flush_messages=3, flush_ms=1000))
    append(log, batch(1))
    due_flushes(logs, NOW_MS)
    append(log, batch(2))
    assert (log.syncs.recovery_point, due_flushes(logs, NOW_MS + 999)) == (1, [])
    append(log, batch(1))
    assert log.syncs.recovery_point == 4
    append(log, batch(1))
    assert [job.recovery_point for _, job in due_flushes(logs, NOW_MS + 1000)] == [5]


def test_a_log_dir_that_another_process_holds_is_refused(tmp_path: Path) -> None:
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(LogDirRefused, match="another process has locked the log dir"):
            started(tmp_path)
        other.communicate(b"\n")
    assert started(tmp_path).log_dirs[0].is_online


@pytest.mark.parametrize("identity", [BrokerIdentity("other", 1), BrokerIdentity(BROKER.cluster_id, 2)])
def test_a_log_dir_of_another_broker_is_refused(tmp_path: Path, identity: BrokerIdentity) -> None:
    started(tmp_path).shutdown(lambda _: None)
    belongs = "the log dir belongs to node.id=1 of cluster.id=MkU3OEVBNTcwNTJENDM2Qk; this broker is node.id="
    with pytest.raises(LogDirRefused, match=belongs):
        manager(tmp_path, identity=identity).load()


def test_a_broken_meta_properties_is_refused_with_its_missing_fields(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    with pytest.raises(
        LogDirRefused, match=r"no log dir can be used: .*the file lacks cluster\.id, directory\.id, node\.id"
    ):
        started(tmp_path)


def test_a_broken_meta_properties_takes_only_its_own_log_dir_offline(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.mkdir()
    (bad / "meta.properties").write_bytes(b"version=1\n\xff")
    logs = started(bad, good)
    assert [log_dir.state for log_dir in logs.log_dirs] == [LogDirState.OFFLINE, LogDirState.ONLINE]
    assert "meta.properties cannot be read" in str(logs.log_dirs[0].failure)


def test_one_bad_log_dir_does_not_stop_the_others(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.write_text("a file where a directory should be")
    logs = started(bad, good)
    assert [log_dir.state for log_dir in logs.log_dirs] == [LogDirState.OFFLINE, LogDirState.ONLINE]
    assert logs.create(flights(0), TOPIC_ID, CONFIG).log_dir == str(good)
    with pytest.raises(ApiError, match=r"Not a directory|File exists"):
        logs.create(flights(1), TOPIC_ID, CONFIG, str(bad))


def test_a_broker_without_a_usable_log_dir_does_not_start(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("")
    with pytest.raises(LogDirRefused, match=r"no log dir can be used: .*bad: the disk failed"):
        started(bad)


def test_new_partitions_are_created_in_the_log_dir_with_the_fewest(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    logs = started(*paths)
    for number in range(7):
        logs.create(flights(number), TOPIC_ID, CONFIG)
    assert [len(log_dir.logs) for log_dir in logs.log_dirs] == [3, 2, 2]


def test_an_unknown_log_dir_is_refused_with_a_list_of_the_known_ones(tmp_path: Path) -> None:
    logs = started(tmp_path)
    with pytest.raises(
        ApiError, match=f"log dir /nowhere is unknown; the broker has the log dirs {tmp_path}"
    ) as refused:
        logs.create(flights(0), TOPIC_ID, CONFIG, "/nowhere")
    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND


def test_a_log_dir_that_vanishes_goes_offline_and_comes_back_with_its_logs(tmp_path: Path) -> None:
    mounted, elsewhere, other = tmp_path / "mounted", tmp_path / "elsewhere", tmp_path / "other"
    logs = started(mounted, other)
    fill(logs, 4)
    held = set(logs.log_dirs[0].logs)
    assert logs.log_dirs[0].problems() == []
    mounted.rename(elsewhere)
    [error] = logs.log_dirs[0].problems()
    assert isinstance(error, LogDirFailed)
    assert logs.fail_dir(error) == held
    assert set(logs.logs) == {flights(number) for number in range(4)} - held
    assert logs.fail_dir(error) == set()
    logs.probe(logs.log_dirs)
    assert not held & logs.logs.keys()
    elsewhere.rename(mounted)
    logs.probe(logs.log_dirs)
    back = {key: log for key, log in logs.logs.items() if key in held}
    assert back.keys() == held
    assert logs.log_dirs[0].state is LogDirState.ONLINE
    assert all(len(read_all(log)) == log.topic_partition.partition + 1 for log in back.values())
    append(back[flights(0)], batch(1))


def test_a_log_that_returns_is_set_aside_if_its_partition_has_a_new_log(tmp_path: Path) -> None:
    mounted, elsewhere, other = tmp_path / "mounted", tmp_path / "elsewhere", tmp_path / "other"
    logs = started(mounted, other)
    append(logs.create(flights(0), TOPIC_ID, CONFIG, str(mounted)), batch(3))
    mounted.rename(elsewhere)
    logs.fail_dir(logs.log_dirs[0].problems()[0])
    append(logs.create(flights(0), TOPIC_ID, CONFIG), batch(1))
    elsewhere.rename(mounted)
    logs.probe(logs.log_dirs)
    assert logs.log_dirs[0].is_online
    assert logs.logs[flights(0)].log_dir == str(other)
    assert [path.name.rpartition("-")[2] for path in mounted.glob("flights*")] == ["stray"]


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "recovery-point-offset-checkpoint"])
def test_a_checkpoint_that_cannot_be_read_takes_its_log_dir_offline(tmp_path: Path, name: str) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    started(bad, good)
    (bad / name).mkdir()  # Opening it for reading fails.
    logs = started(bad, good)
    assert [log_dir.is_online for log_dir in logs.log_dirs] == [False, True]


def test_a_deleted_log_is_renamed_and_its_files_are_removed_after_the_delay(tmp_path: Path) -> None:
    logs = started(tmp_path)
    fill(logs, 1)
    logs.delete(flights(0))
    assert logs.get(flights(0)) is None
    [renamed] = tmp_path.glob("flights-0.*-delete")
    assert logs.due_deletions(NOW_MS + 59_999) == []
    logs.remove_files(logs.due_deletions(NOW_MS + 60_000))
    assert not renamed.exists()
    assert logs.create(flights(0), TOPIC_ID, CONFIG).log_end_offset == 0


def test_a_deleted_log_that_cannot_be_removed_does_not_keep_others_from_removal(tmp_path: Path) -> None:
    class Refuses(PosixFileSystem):
        def remove(self, path: str) -> None:
            if path.startswith(str(tmp_path / "a")) and path.endswith("-delete"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().remove(path)

    logs = manager(tmp_path / "a", tmp_path / "b", files=Refuses())
    logs.load()
    for number, name in enumerate("ab"):
        append(logs.create(flights(number), TOPIC_ID, CONFIG, str(tmp_path / name)), batch())
        logs.delete(flights(number))
    logs.remove_files(logs.due_deletions(NOW_MS + 60_000))
    assert [len(list((tmp_path / name).glob("*-delete"))) for name in "ab"] == [1, 0]


def test_the_log_of_an_earlier_topic_of_the_same_name_is_set_aside(tmp_path: Path) -> None:
    logs = started(tmp_path)
    fill(logs, 1)
    assert logs.claim(flights(0), TOPIC_ID) is logs.get(flights(0))
    assert logs.claim(flights(0), UUID(int=5)) is None
    assert logs.create(flights(0), UUID(int=5), CONFIG).log_end_offset == 0
    [stray] = tmp_path.glob("flights-0.*-stray")
    assert (stray / f"{0:020d}.log").stat().st_size == len(batch(1))
    assert set(started_again(logs, tmp_path).logs) == {flights(0)}


def started_again(logs: LogManager, path: Path) -> LogManager:
    """Return the next start, after a crash of the process that has `logs`."""
    for log_dir in logs.log_dirs:
        log_dir.fail(LogDirFailed(log_dir.path, "the process dies"))
    return started(path)


def test_the_next_start_completes_a_deletion_that_a_crash_interrupted(tmp_path: Path) -> None:
    logs = started(tmp_path)
    fill(logs, 2)
    logs.delete(flights(0))
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the process dies"))
    again = started(tmp_path)
    assert set(again.logs) == {flights(1)}
    again.remove_files(again.due_deletions(NOW_MS))
    assert list(tmp_path.glob("*-delete")) == []


def test_a_log_whose_creation_failed_does_not_hide_the_one_created_in_another_log_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    logs = started(first, second)
    disk = FullAfter(monkeypatch, bytes_left=0)
    with pytest.raises(DiskFull):
        logs.create(flights(0), TOPIC_ID, CONFIG, str(first))
    disk.bytes_left = 100_000
    append(logs.create(flights(0), TOPIC_ID, CONFIG, str(second)), batch(2))
    logs.shutdown(lambda _: None)
    again = started(first, second)
    found = again.get(flights(0))
    assert found is not None
    assert found.log_end_offset == 2
    assert not (first / "flights-0").exists()


def test_records_appended_after_a_truncation_are_checked_by_the_next_start(tmp_path: Path) -> None:
    """With the old recovery point a batch torn by a power cut would count as damage, which is never truncated."""
    logs = started(tmp_path)
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    for _ in range(5):
        append(log, batch(1))
    log.flush()
    late = logs.checkpoint_calls(lambda _: None)
    logs.checkpoint(lambda _: None)
    truncate_to(log, 2)
    for call in late:
        call()
    append(log, batch(1), leader_epoch=1)
    path = tmp_path / "flights-0" / f"{0:020d}.log"
    with path.open("r+b") as file:
        file.seek(2 * len(batch(1)))
        file.write(bytes(len(batch(1))))
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the power is lost"))
    again = started(tmp_path)
    assert again.logs[flights(0)].log_end_offset == 2


def test_a_recreated_log_takes_no_offsets_from_the_checkpoints_of_the_earlier_one(tmp_path: Path) -> None:
    """After a crash it would have the start offset of the earlier log, and a torn batch would count as damage."""
    logs = started(tmp_path)
    ends = fill(logs, 3)
    for log in logs.logs.values():
        log.flush()
    logs.logs[flights(2)].increment_log_start_offset(2)
    logs.checkpoint(lambda log: ends[log.topic_partition])
    for number in (1, 2):
        logs.delete(flights(number))
        append(logs.create(flights(number), UUID(int=99), CONFIG), batch(1))
    for name in ("recovery-point", "log-start", "replication"):
        noted = logs.log_dirs[0].offsets(f"{name}-offset-checkpoint")
        assert [noted.get(flights(number), 0) for number in (1, 2)] == [0, 0]
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the process dies"))
    again = started(tmp_path).logs[flights(2)]
    assert (again.log_start_offset, again.log_end_offset) == (0, 1)


def test_a_recreated_log_takes_no_appends_before_the_checkpoints_are_written(tmp_path: Path) -> None:
    files = CountedSyncs()
    logs = manager(tmp_path, files=files)
    logs.load()
    ends = fill(logs, 2)
    logs.checkpoint(lambda log: ends[log.topic_partition])
    logs.delete(flights(1))
    waiting: list[LogDir] = []
    logs.truncated.on_added = waiting.append
    files.synced.clear()
    log = logs.create(flights(1), UUID(int=99), CONFIG)
    assert files.synced == []
    assert log.known_producers.are_held_back
    with pytest.raises(ApiError) as refused:
        append(log, batch(1))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    logs.truncated.complete(waiting[0])
    assert [each.name for each in (tmp_path / "flights-1").iterdir()] == ["partition.metadata"]
    assert append(log, batch(1)).base_offset == 0
    noted = logs.log_dirs[0].offsets("replication-offset-checkpoint")
    assert noted == {flights(0): ends[flights(0)]}
    assert not logs.create(flights(2), UUID(int=99), CONFIG).known_producers.are_held_back


def test_two_checkpoints_of_high_watermarks_are_not_written_at_once(tmp_path: Path) -> None:
    """Both write one temporary file, and the checkpoint requested first must not be written last."""
    files = HeldWrites()
    logs = manager(tmp_path, files=files)
    logs.load()
    ends = fill(logs, 1)
    log_dir = logs.log_dirs[0]
    files.held_name = "replication-offset-checkpoint"
    threads = [
        Thread(target=log_dir.checkpoint_high_watermarks, args=(lambda log: ends[log.topic_partition],))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert files.entered.acquire(timeout=PATIENCE_S)
    assert not files.entered.acquire(timeout=0.2)
    files.let_go.release(2)
    for thread in threads:
        thread.join()
    assert log_dir.offsets("replication-offset-checkpoint") == ends

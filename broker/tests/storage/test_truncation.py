"""A truncation reads little, and its log takes appends once a crash cannot bring the removed records back."""

import random
from pathlib import Path
from uuid import UUID

import pytest
from log_manager_samples import FullAfter
from storage_samples import NOW_MS, OneLog, acknowledged_later, append, batch, read_all

from barnabas_broker.storage.disk.files import LogFile, OpenFiles, PosixFile, PosixFileSystem, Trash
from barnabas_broker.storage.errors import DiskFull, LogDirFailed
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_loader import close_logs
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_broker.storage.logs.truncation import append_as_follower, truncate_to
from barnabas_broker.storage.producer_state import ProducedBatch, ProducerStates
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock
from harness.retention import enforce_retention


class CountingFiles(PosixFileSystem):
    """A file system that counts the bytes that are read, and the checkpoints that are written."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self.checkpoints = 0

    def open_file(self, path: str) -> LogFile:
        return _CountingFile(self, super().open_file(path))

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        self.checkpoints += path.endswith("recovery-point-offset-checkpoint")
        super().write_atomically(path, data, sync=sync)


class _CountingFile(PosixFile):
    def __init__(self, counts: CountingFiles, file: LogFile) -> None:
        super().__init__(PosixFile.fileno(file))  # type: ignore[arg-type]
        self._counts = counts
        self._file = file

    def __del__(self) -> None:
        """The file closes by itself."""

    def read_at(self, position: int, length: int) -> bytes:
        data = super().read_at(position, length)
        self._counts.bytes_read += len(data)
        return data


class NotedSyncs(PosixFileSystem):
    """A file system that records, in order, the synced logs with their size, and the written checkpoints."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int]] = []

    def open_file(self, path: str) -> LogFile:
        return _NotedFile(self.steps, path, super().open_file(path))

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        self.steps.append((Path(path).name, 0))
        super().write_atomically(path, data, sync=sync)


class _NotedFile(PosixFile):
    def __init__(self, steps: list[tuple[str, int]], path: str, file: LogFile) -> None:
        super().__init__(PosixFile.fileno(file))  # type: ignore[arg-type]
        self._steps, self._path, self._file = steps, Path(path), file

    def __del__(self) -> None:
        """The file closes by itself."""

    def sync(self) -> None:
        if self._path.suffix == ".log":
            self._steps.append((self._path.parent.name, self.size_bytes()))
        super().sync()


BATCH_BYTES = 1000
BATCHES = 3000
READ_BYTES_MAX = 64 * 1024


def test_truncating_a_log_without_idempotent_producers_reads_little_of_it(tmp_path: Path) -> None:
    files = CountingFiles()
    log = OneLog(tmp_path, files=files).open()
    for _ in range(BATCHES):
        append(log, batch(value=bytes(BATCH_BYTES)))
    assert log.segments.size_bytes > 30 * READ_BYTES_MAX
    files.bytes_read = 0
    truncate_to(log, BATCHES - 3)
    assert append(log, batch(), leader_epoch=1).base_offset == BATCHES - 3
    assert files.bytes_read < READ_BYTES_MAX


def known(states: ProducerStates) -> dict[int, tuple[int, list[ProducedBatch]]]:
    return {each.producer_id: (each.epoch, each.batches) for each in states.producers.values()}


@pytest.mark.parametrize("seed", range(30))
def test_a_truncated_log_has_the_producers_of_a_log_without_the_removed_records(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    cut, kept = (
        OneLog(tmp_path / name).with_config(segment_bytes=chance.choice([2000, 10**6]), index_interval_bytes=200)
        for name in ("cut", "kept")
    )
    log, model, count = cut.open(), kept.open(), chance.randrange(1, 120)
    offset = chance.randrange(count)
    sequences: dict[int, tuple[int, int]] = {}
    for number in range(count):
        producer_id = min(chance.randrange(1, 8), chance.randrange(1, 40))
        epoch, sequence = sequences.get(producer_id, (0, 0))
        if chance.random() < 0.05:
            epoch, sequence = epoch + 1, 0
        sequences[producer_id] = epoch, sequence + 1
        for one in (log, model) if number < offset else (log,):
            append(one, batch(producer_id=producer_id, epoch=epoch, sequence=sequence))
        if number == count // 2 and chance.random() < 0.5:
            close_logs([log])
            log = cut.open(recovery_point=log.syncs.recovery_point, clean=True)
    truncate_to(log, chance.randrange(offset, count))
    truncate_to(log, offset)
    assert read_all(log) == read_all(model)
    assert known(log.producers) == known(model.producers)


def manager(path: Path, files: PosixFileSystem) -> LogManager:
    environment = LogEnvironment(files, OpenFiles(100), Trash(), random.Random(0))
    logs = LogManager(
        environment, ManualClock(), LogManagerSettings([str(path)]), BrokerIdentity("c", 1), lambda _: LogConfig()
    )
    logs.on_sync_due = acknowledged_later
    logs.load()
    return logs


def refusal_of(log: Log, *, as_follower: bool) -> ErrorCode | None:
    data = batch()
    try:
        if as_follower:
            append_as_follower(log, data, 0, 0, NOW_MS)
        else:
            append(log, data)
    except ApiError as error:
        return error.code
    return None


def test_a_log_truncated_below_its_recovery_point_takes_no_appends_before_the_checkpoint(tmp_path: Path) -> None:
    files = CountingFiles()
    logs = manager(tmp_path, files)
    [log_dir] = logs.log_dirs
    added: list[object] = []
    logs.truncated.on_added = added.append
    several = [logs.create(TopicPartition("flights", number), UUID(int=7), LogConfig()) for number in range(20)]
    for log in several:
        for _ in range(4):
            append(log, batch())
        log.flush()
    logs.checkpoint(lambda _: None)
    files.checkpoints = 0
    for log in several:
        truncate_to(log, 2)
        assert log.known_producers.are_held_back
        assert {refusal_of(log, as_follower=each) for each in (True, False)} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert log.log_end_offset == 2
        assert enforce_retention(log, NOW_MS, 2) == 0
    assert set(log_dir.offsets("recovery-point-offset-checkpoint").values()) == {4}
    logs.truncated.complete(log_dir)
    assert set(log_dir.offsets("recovery-point-offset-checkpoint").values()) == {2}
    assert files.checkpoints == 1
    assert added == [log_dir] * 20
    assert {refusal_of(log, as_follower=False) for log in several} == {None}


@pytest.mark.parametrize("segment_bytes", [100, 10_000])
def test_a_log_truncated_below_its_start_offset_keeps_later_records_after_a_crash(
    tmp_path: Path, segment_bytes: int
) -> None:
    """Records were deleted by a request, and the records after them by an unclean election."""
    where, config = TopicPartition("flights", 0), LogConfig(segment_bytes=segment_bytes)
    logs = manager(tmp_path, PosixFileSystem())
    log = logs.create(where, UUID(int=7), config)
    for _ in range(8):
        append(log, batch())
    log.increment_log_start_offset(6)
    enforce_retention(log, NOW_MS, 8)
    assert (log.segments.first.base_offset == 0) == (segment_bytes == 10_000)
    log.increment_log_start_offset(7)
    logs.checkpoint(lambda _: None)
    truncate_to(log, 2)
    assert append(log, batch()).base_offset == 2
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the process dies"))
    again = manager(tmp_path, PosixFileSystem()).logs[where]
    assert (again.log_start_offset, again.log_end_offset) == (2, 3)
    assert len(read_all(again)) == 1


def test_a_truncation_of_synced_records_is_synced_before_the_log_takes_appends(tmp_path: Path) -> None:
    """A power cut would otherwise bring the removed records back, before those of a later segment."""
    files = NotedSyncs()
    logs = manager(tmp_path, files)
    [log_dir] = logs.log_dirs
    logs.truncated.on_added = lambda _: None
    synced, unsynced = (logs.create(TopicPartition("flights", each), UUID(int=7), LogConfig()) for each in (0, 1))
    for log in (synced, unsynced):
        for _ in range(4):
            append(log, batch())
    synced.flush()
    logs.checkpoint(lambda _: None)
    files.steps.clear()
    for log in (synced, unsynced):
        truncate_to(log, 2)
    assert [log.known_producers.are_held_back for log in (synced, unsynced)] == [True, False]
    logs.truncated.complete(log_dir)
    left = synced.segments.active.size_bytes
    assert files.steps[:2] == [("flights-0", left), ("recovery-point-offset-checkpoint", 0)]
    assert "flights-1" not in {name for name, _ in files.steps}, "unsynced records may wait in the page cache"
    assert append(synced, batch()).base_offset == 2


def test_a_truncation_of_records_found_at_a_start_is_synced_before_the_log_takes_appends(tmp_path: Path) -> None:
    """All records that a power cut has left are on the disk, also those above the recovery point."""
    where, files = TopicPartition("flights", 0), NotedSyncs()
    logs = manager(tmp_path, files)
    log = logs.create(where, UUID(int=7), LogConfig())
    append(log, batch())
    log.flush()
    logs.checkpoint(lambda _: None)
    for _ in range(3):
        append(log, batch())
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the power goes"))
    logs = manager(tmp_path, files)
    [log_dir], log = logs.log_dirs, logs.logs[where]
    logs.truncated.on_added = lambda _: None
    assert (log.syncs.recovery_point, log.log_end_offset) == (1, 4)
    files.steps.clear()
    truncate_to(log, 2)
    assert log.known_producers.are_held_back
    logs.truncated.complete(log_dir)
    assert files.steps[:1] == [("flights-0", log.segments.active.size_bytes)]
    append(log, batch())
    files.steps.clear()
    truncate_to(log, 2)
    assert not log.known_producers.are_held_back, "the later records were neither found by a start nor synced"


def test_a_truncation_during_a_sync_is_synced_before_the_log_takes_appends(tmp_path: Path) -> None:
    files = NotedSyncs()
    logs = manager(tmp_path, files)
    logs.truncated.on_added = lambda _: None
    log = logs.create(TopicPartition("flights", 0), UUID(int=7), LogConfig())
    for _ in range(4):
        append(log, batch())
    job = log.syncs.flush_job(log.log_end_offset)
    assert job is not None
    job.run()
    truncate_to(log, 2)
    log.syncs.flushed(job, log.log_end_offset)
    assert (log.syncs.recovery_point, log.known_producers.are_held_back) == (0, True)


def test_a_truncation_of_records_appended_during_a_sync_is_synced_before_the_log_takes_appends(
    tmp_path: Path,
) -> None:
    """The sync may have written some of them: with a later segment a power cut would leave records of two leaders."""
    logs = manager(tmp_path, NotedSyncs())
    logs.truncated.on_added = lambda _: None
    log = logs.create(TopicPartition("flights", 0), UUID(int=7), LogConfig())
    append(log, batch())
    job = log.syncs.flush_job(log.log_end_offset)
    assert job is not None
    append(log, batch(4))
    job.run()
    log.syncs.flushed(job, log.log_end_offset)
    append(log, batch(4))
    truncate_to(log, 5)
    assert not log.known_producers.are_held_back, "the records after the sync were not synced"
    truncate_to(log, 1)
    assert (log.syncs.recovery_point, log.log_end_offset, log.known_producers.are_held_back) == (1, 1, True)


def test_a_truncation_of_a_segment_that_was_never_synced_waits_for_no_sync(tmp_path: Path) -> None:
    logs = manager(tmp_path, NotedSyncs())
    logs.truncated.on_added = lambda _: None
    log = logs.create(TopicPartition("flights", 0), UUID(int=7), LogConfig())
    append(log, batch())
    log.flush()
    log.roll(NOW_MS)
    append(log, batch())
    append(log, batch())
    truncate_to(log, 2)
    assert not log.known_producers.are_held_back


def test_a_truncated_log_takes_no_appends_before_its_producers_are_loaded_from_the_last_snapshot(
    tmp_path: Path,
) -> None:
    files = CountingFiles()
    logs = manager(tmp_path, files)
    [log_dir] = logs.log_dirs
    logs.truncated.on_added = lambda _: None
    log = logs.create(TopicPartition("flights", 0), UUID(int=7), LogConfig())
    for number in range(20):
        append(log, batch(producer_id=1, epoch=0, sequence=number))
        if number in (9, 18):
            log.roll(NOW_MS)
    truncate_to(log, 12)
    assert log.known_producers.are_held_back
    assert log.known_producers.snapshots.offsets == [10]
    files.checkpoints = 0
    logs.truncated.complete(log_dir)
    assert files.checkpoints == 0, "no removed record can be on the disk"
    assert log.producers.last_offsets() == {1: 11}


def test_the_producers_loaded_for_a_truncation_are_dropped_after_the_next_truncation(tmp_path: Path) -> None:
    logs = manager(tmp_path, PosixFileSystem())
    [log_dir] = logs.log_dirs
    logs.truncated.on_added = lambda _: None
    log = logs.create(TopicPartition("flights", 0), UUID(int=7), LogConfig())
    for number in range(20):
        append(log, batch(producer_id=1, epoch=0, sequence=number))
    log.flush()
    truncate_to(log, 12)
    [cut] = logs.truncated.take(log_dir)
    replay = cut.log.producer_replay()
    replay.run()
    truncate_to(log, 6)
    cut.reloaded(replay)
    assert log.known_producers.are_held_back
    logs.truncated.complete(log_dir)
    assert append(log, batch(producer_id=1, epoch=0, sequence=6)).base_offset == 6
    assert append(log, batch(producer_id=1, epoch=0, sequence=5)).duplicate


def test_a_truncated_log_takes_no_appends_while_a_full_disk_takes_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = manager(tmp_path, PosixFileSystem())
    [log_dir] = logs.log_dirs
    logs.truncated.on_added = lambda _: None
    log = logs.create(TopicPartition("flights", 0), UUID(int=7), LogConfig())
    append(log, batch(4))
    log.flush()
    truncate_to(log, 0)
    disk = FullAfter(monkeypatch, bytes_left=0)
    for _ in range(2):
        with pytest.raises(DiskFull):
            logs.truncated.complete(log_dir)
        assert log.known_producers.are_held_back
    disk.bytes_left = 10_000
    logs.truncated.complete(log_dir)
    assert append(log, batch(1)).base_offset == 0

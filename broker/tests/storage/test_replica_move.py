"""A log moves to another log dir while it is appended to and read (F28)."""

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from storage_samples import NOW_MS, DiesAtARename, append, batch, bytes_of, headers_in, read_all

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.files import OpenFiles, PosixFile, PosixFileSystem, Trash, remove_all
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.log_dirs.replica_moves import ReplicaMove
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_broker.storage.logs.truncation import truncate_to
from barnabas_core.config.log_config import LONG_MAX, LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.failing_disk import FailsOnce
from harness.manual_clock import ManualClock
from harness.retention import enforce_retention

SIZE = len(batch(1))
CONFIG = LogConfig(segment_bytes=5 * SIZE, index_interval_bytes=0)
FLIGHTS = TopicPartition("flights", 0)
TOPIC_ID = UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")


class NotedFile:
    """A file whose syncs are noted."""

    def __init__(self, file: PosixFile, path: str, steps: list[tuple[str, str, int]]) -> None:
        self._file = file
        self._path = path
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._steps.append(("sync", self._path, self._file.size_bytes()))
        self._file.sync()


class NotedSteps(PosixFileSystem):
    """A file system that records syncs and renames in order."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str, int]] = []

    def open_file(self, path: str) -> Any:
        return NotedFile(super().open_file(path), path, self.steps)  # type: ignore[arg-type]

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        super().write_atomically(path, data, sync=sync)
        if sync:
            self.steps.append(("sync", path, len(data)))

    def rename(self, old: str, new: str) -> None:
        self.steps.append(("rename", old, 0))
        super().rename(old, new)

    def sync_dir(self, path: str) -> None:
        self.steps.append(("sync names", path, 0))
        super().sync_dir(path)


class CallsOff(PosixFileSystem):
    """A file system that calls `meanwhile` before it writes an index, as the loop may while a thread syncs."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        if path.endswith(".index"):
            self.meanwhile()
        super().write_atomically(path, data, sync=sync)


def started(path: Path, files: PosixFileSystem, trash: Trash | None = None, dirs: str = "ab") -> LogManager:
    environment = LogEnvironment(files, OpenFiles(100), Trash() if trash is None else trash, random.Random(0))
    settings = LogManagerSettings([str(path / name) for name in dirs])
    logs = LogManager(environment, ManualClock(), settings, BrokerIdentity("cluster", 1), lambda _: CONFIG)
    logs.load()
    return logs


def filled(logs: LogManager, directory: Path) -> Log:
    log = logs.create(FLIGHTS, TOPIC_ID, CONFIG, str(directory))
    for number in range(23):
        append(log, batch(1, producer_id=8, epoch=0, sequence=number), leader_epoch=number // 10)
    return log


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("*/")]


def begun(logs: LogManager, directory: Path) -> ReplicaMove:
    move = logs.moves.start(FLIGHTS, str(directory))
    assert move is not None
    return move


def test_a_refused_move_does_not_cancel_the_one_in_progress(tmp_path: Path) -> None:
    """Repeated requests would otherwise keep the move from completing."""
    logs = started(tmp_path, PosixFileSystem(), dirs="abc")
    log = filled(logs, tmp_path / "a")
    damaged = tmp_path / "b" / str(FLIGHTS)
    move = begun(logs, tmp_path / "c")
    damaged.mkdir()
    with pytest.raises(ApiError, match="move the directory away first"):
        logs.moves.start(FLIGHTS, str(tmp_path / "b"))
    assert logs.moves.under_way == {FLIGHTS: move}
    assert logs.moves.start(FLIGHTS, log.log_dir) is None
    assert logs.moves.under_way == {}, "a move to the current log dir cancels the move"


def test_a_log_does_not_move_to_a_log_dir_with_a_damaged_log_of_its_name(tmp_path: Path) -> None:
    logs = started(tmp_path, PosixFileSystem())
    filled(logs, tmp_path / "a")
    damaged = tmp_path / "b" / str(FLIGHTS)
    damaged.mkdir()
    with pytest.raises(ApiError, match=f"{damaged} exists already.*move the directory away first") as raised:
        logs.moves.start(FLIGHTS, str(tmp_path / "b"))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not logs.moves.under_way


def test_appends_and_reads_continue_during_and_after_a_move(tmp_path: Path) -> None:
    logs = started(tmp_path, PosixFileSystem())
    old = filled(logs, tmp_path / "a")
    old.increment_log_start_offset(7)
    enforce_retention(old, NOW_MS, 23)
    reading = old.read(8, 1 << 20, 23, at_least_one_batch=True)
    move = begun(logs, tmp_path / "b")
    number = 23
    while move.lag_bytes > 2 * SIZE:
        move.copy(3 * SIZE)
        if number < 40:
            append(old, batch(1, producer_id=8, epoch=0, sequence=number), leader_epoch=2)
            number += 1
    move.sync()
    new = logs.moves.finish(move)
    assert logs.get(FLIGHTS) is new
    assert (new.log_dir, new.log_start_offset, new.log_end_offset) == (str(tmp_path / "b"), 7, number)
    assert new.epochs.entries == old.epochs.entries
    assert new.topic_id == TOPIC_ID
    assert [header.base_offset for header in read_all(new)] == list(range(7, number))
    assert headers_in(bytes_of(reading))[0].base_offset == 8
    assert append(new, batch(1, producer_id=8, epoch=0, sequence=number - 1)).duplicate
    assert append(new, batch(1, producer_id=8, epoch=0, sequence=number)).base_offset == number
    assert [path.name for path in (tmp_path / "a").glob("flights-0*")] == [Path(old.directory).name]
    logs.remove_files(logs.due_deletions(NOW_MS + CONFIG.file_delete_delay_ms))
    assert list((tmp_path / "a").glob("flights-0*")) == []


def test_a_producer_may_repeat_any_of_its_last_five_batches_after_a_move(tmp_path: Path) -> None:
    """The batches were in flight when their leader died, and the new leader has moved its log meanwhile."""
    logs = started(tmp_path, PosixFileSystem())
    filled(logs, tmp_path / "a")
    new = logs.moves.finish(begun(logs, tmp_path / "b"))
    repeated = [append(new, batch(1, producer_id=8, epoch=0, sequence=number)) for number in range(18, 23)]
    assert [(each.base_offset, each.duplicate) for each in repeated] == [(number, True) for number in range(18, 23)]
    with pytest.raises(ApiError) as refused:
        append(new, batch(1, producer_id=8, epoch=0, sequence=24))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(new, batch(1, producer_id=8, epoch=0, sequence=23)).base_offset == 23


def test_segments_deleted_during_a_move_are_not_in_the_copy(tmp_path: Path) -> None:
    logs = started(tmp_path, PosixFileSystem())
    log = filled(logs, tmp_path / "a")
    move = begun(logs, tmp_path / "b")
    move.copy(12 * SIZE)
    log.increment_log_start_offset(6)
    enforce_retention(log, NOW_MS, 23)
    new = logs.moves.finish(move)
    assert [segment.base_offset for segment in new.segments] == [5, 10, 15, 20]
    assert sorted(path.name for path in (tmp_path / "b/flights-0").glob("*.log"))[0] == f"{5:020d}.log"


def test_a_copy_is_completely_synced_before_it_replaces_the_log(tmp_path: Path) -> None:
    """This includes segments that were rolled after the last `sync`: the recovery point of the copy is its end."""
    files = NotedSteps()
    logs = started(tmp_path, files)
    log = filled(logs, tmp_path / "a")
    move = begun(logs, tmp_path / "b")
    move.copy(18 * SIZE)
    move.sync()
    for number in range(23, 40):
        append(log, batch(1, producer_id=8, epoch=0, sequence=number), leader_epoch=number // 10)
    new = logs.moves.finish(move)
    assert new.syncs.recovery_point == new.log_end_offset == 40
    synced = {path: size for step, path, size in files.steps if step == "sync" and path.startswith(move.directory)}
    for path in (tmp_path / "b" / "flights-0").iterdir():
        assert synced.get(f"{move.directory}/{path.name}") == path.stat().st_size, path.name
    assert new.epochs.save_call() is None


def test_each_rename_of_a_swap_is_synced_before_the_next(tmp_path: Path) -> None:
    files = NotedSteps()
    logs = started(tmp_path, files)
    old = filled(logs, tmp_path / "a")
    old_directory = old.directory
    move = begun(logs, tmp_path / "b")
    logs.moves.finish(move)
    steps = [(step, path) for step, path, _ in files.steps if step != "sync"]
    assert steps[-6:] == [
        ("sync names", move.directory),
        ("sync names", str(tmp_path / "b")),
        ("rename", old_directory),
        ("sync names", str(tmp_path / "a")),
        ("rename", move.directory),
        ("sync names", str(tmp_path / "b")),
    ]


def test_the_lag_of_a_copy_is_the_whole_log_after_a_truncation(tmp_path: Path) -> None:
    """The swap would otherwise have to copy all of the log again in one turn."""
    logs = started(tmp_path, PosixFileSystem())
    log = filled(logs, tmp_path / "a")
    move = begun(logs, tmp_path / "b")
    move.copy(100 * SIZE)
    assert move.lag_bytes == 0
    truncate_to(log, 22)
    assert move.lag_bytes == 22 * SIZE


def test_a_copy_starts_again_after_a_truncation(tmp_path: Path) -> None:
    logs = started(tmp_path, PosixFileSystem())
    log = filled(logs, tmp_path / "a")
    move = begun(logs, tmp_path / "b")
    move.copy(100 * SIZE)
    truncate_to(log, 12)
    for _ in range(11):
        append(log, batch(1, value=b"other"))
    new = logs.moves.finish(move)
    assert b"other" in bytes_of(new.read(12, 10, 23, at_least_one_batch=True))
    assert len(read_all(new)) == 23


def test_a_log_that_moves_back_does_not_get_the_recovery_point_it_had_there_before(tmp_path: Path) -> None:
    """The log was truncated meanwhile: records appended below the old recovery point may be torn by a power cut."""
    logs = started(tmp_path, PosixFileSystem())
    log = filled(logs, tmp_path / "a")
    log.flush()
    logs.checkpoint(lambda _: None)
    log = logs.moves.finish(begun(logs, tmp_path / "b"))
    truncate_to(log, 10)
    move = begun(logs, tmp_path / "a")
    logs.moves.sync(move)
    log = logs.moves.finish(move)
    append(log, batch(1))
    noted = logs.log_dirs[0].offsets(checkpoints.RECOVERY_POINTS)
    assert noted.get(FLIGHTS, 0) <= log.syncs.recovery_point == 10


def test_a_move_to_the_current_log_dir_cancels_the_one_in_progress(tmp_path: Path) -> None:
    logs = started(tmp_path, PosixFileSystem())
    filled(logs, tmp_path / "a")
    move = begun(logs, tmp_path / "b")
    move.copy(1000)
    assert logs.moves.start(FLIGHTS, str(tmp_path / "a")) is None
    assert logs.moves.under_way == {}
    logs.remove_files(logs.due_deletions(NOW_MS))
    assert list((tmp_path / "b").glob("flights*")) == []


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_move_that_is_cancelled_during_its_sync_does_not_count_as_a_failed_disk(
    tmp_path: Path, is_deleted: bool
) -> None:
    """All other partitions of the target log dir would otherwise go offline, even if the first log dir has failed."""
    files = CallsOff()
    logs = started(tmp_path, files)
    log = filled(logs, tmp_path / "a")
    move = begun(logs, tmp_path / "b")
    move.copy(log.segments.size_bytes)
    files.meanwhile = lambda: logs.delete(FLIGHTS) if is_deleted else logs.moves.stop(FLIGHTS)
    logs.moves.sync(move)
    assert files.exists(str(tmp_path / "a" / str(FLIGHTS))) != is_deleted
    assert [each.state for each in map(checkpoints.parse_partition_dir, names(tmp_path / "b")) if each] == ["-delete"]


def test_a_move_to_an_unknown_log_dir_is_refused(tmp_path: Path) -> None:
    logs = started(tmp_path, PosixFileSystem())
    filled(logs, tmp_path / "a")
    with pytest.raises(ApiError, match="log dir /nowhere is unknown; the broker has"):
        logs.moves.start(FLIGHTS, "/nowhere")


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_crash_at_any_step_of_a_swap_leaves_the_whole_log_once(tmp_path: Path, renames: int) -> None:
    files = DiesAtARename()
    logs = started(tmp_path, files)
    filled(logs, tmp_path / "a")
    move = begun(logs, tmp_path / "b")
    move.copy(100 * SIZE)
    files.renames_left = renames
    died = False
    try:
        logs.moves.finish(move)
    except KeyboardInterrupt:
        died = True
    for log_dir in logs.log_dirs:
        (Path(log_dir.path) / ".lock").unlink()
    again = started(tmp_path, PosixFileSystem())
    assert died == (renames < 2)
    assert len(read_all(again.logs[FLIGHTS])) == 23
    assert sum(FLIGHTS in log_dir.logs for log_dir in again.log_dirs) == 1


@pytest.mark.parametrize("step", range(1, 31))
def test_a_log_stays_in_its_log_dir_if_any_step_of_a_swap_fails(tmp_path: Path, step: int) -> None:
    files, trash = FailsOnce(), Trash()
    files.code = errno.ENOSPC
    logs = started(tmp_path, files, trash)
    log = filled(logs, tmp_path / "a")
    move = begun(logs, tmp_path / "b")
    move.copy(100 * SIZE)
    logs.moves.sync(move)
    files.steps_left = step
    with suppress(StorageError):
        logs.moves.finish(move)
    has_failed, files.steps_left = files.steps_left <= 0, -1
    logs.moves.stop(FLIGHTS)
    current = logs.get(FLIGHTS)
    assert current is not None
    assert (current is log) == has_failed
    append(current, batch(1, producer_id=8, epoch=0, sequence=23), leader_epoch=3)
    remove_all(files, trash.take(LONG_MAX))
    assert len(read_all(current)) == 24
    assert list(tmp_path.glob("*/flights-0*")) == [Path(current.directory)]


def test_the_next_start_knows_a_move_that_a_crash_interrupted(tmp_path: Path) -> None:
    logs = started(tmp_path, PosixFileSystem())
    filled(logs, tmp_path / "a")
    begun(logs, tmp_path / "b")
    for log_dir in logs.log_dirs:
        (Path(log_dir.path) / ".lock").unlink()
    again = started(tmp_path, PosixFileSystem())
    assert again.moves.interrupted == {FLIGHTS: str(tmp_path / "b")}
    assert again.logs[FLIGHTS].log_dir == str(tmp_path / "a")
    again.remove_files(again.due_deletions(NOW_MS))
    assert list((tmp_path / "b").glob("flights*")) == []


def test_a_log_whose_topic_id_is_not_on_the_disk_yet_has_it_after_a_move(tmp_path: Path) -> None:
    logs = started(tmp_path, PosixFileSystem())
    log = filled(logs, tmp_path / "a")
    (Path(log.directory) / "partition.metadata").write_bytes(b"")
    assert logs.moves.finish(begun(logs, tmp_path / "b")).topic_id == TOPIC_ID

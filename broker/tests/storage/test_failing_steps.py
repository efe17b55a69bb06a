"""One step of a disk fails, once; the process runs on, and its memory still agrees with the disk."""

import errno
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from log_manager_samples import BROKER, TOPIC_ID, flights
from storage_samples import NOW_MS, append, batch, read_all

from barnabas_broker.storage.disk.files import FileEntry, OpenFiles, Trash, remove_all
from barnabas_broker.storage.errors import DiskFull, LogDirFailed
from barnabas_broker.storage.log_dirs.log_dir_loader import TopicLookup
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_loader import close_logs, write_pending
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_broker.storage.logs.truncation import truncate_fully_and_start_at, truncate_to
from barnabas_core.config.log_config import LONG_MAX, LogConfig
from harness.failing_disk import FailsOnce
from harness.manual_clock import ManualClock
from harness.retention import enforce_retention

FLIGHTS = flights(0)
SIZE = len(batch(1, producer_id=8, epoch=0, sequence=0))
CONFIG = LogConfig(segment_bytes=2 * SIZE, index_interval_bytes=0)
BATCHES = 7
ERRORS = [errno.ENOSPC, errno.EIO]


@dataclass
class World:
    """A log manager over two directories. The log in the first one has a segment for every two batches, all synced."""

    path: Path
    disk: FailsOnce = field(default_factory=FailsOnce)
    trash: Trash = field(default_factory=Trash)
    told_full = 0

    def __post_init__(self) -> None:
        self.logs = self.started(self.path, self.disk, self.trash)
        self.logs.truncated.on_added = lambda _: None  # A broker completes truncations later, too.
        log = self.logs.create(FLIGHTS, TOPIC_ID, CONFIG, str(self.path / "a"))
        for number in range(BATCHES):
            append(log, batch(1, producer_id=8, epoch=0, sequence=number), leader_epoch=number // 3)
        log.flush()
        write_pending(log)
        self.logs.checkpoint(lambda _: 1)

    @staticmethod
    def started(path: Path, disk: FailsOnce, trash: Trash) -> LogManager:
        environment = LogEnvironment(disk, OpenFiles(100), trash, random.Random(0))
        settings = LogManagerSettings([str(path / "a"), str(path / "b")])
        topics = TopicLookup(lambda _, number: flights(number))
        logs = LogManager(environment, ManualClock(), settings, BROKER, lambda _: CONFIG, topics)
        logs.load()
        return logs

    @property
    def log(self) -> Log:
        log = self.logs.get(FLIGHTS)
        assert log is not None
        return log

    def after_a_crash(self) -> LogManager:
        """Return the logs that a start loads from the disk as it is now."""
        copy = self.path.with_name(f"{self.path.name}-copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.path, copy)
        return self.started(copy, FailsOnce(), Trash())

    def attempt(self, operation: Callable[["World"], object]) -> None:
        """Do as the broker does: load a failed directory again, and try again what is not done yet."""
        for work in (operation, World.look_after, World.look_after):
            try:
                work(self)
            except LogDirFailed as error:
                self.logs.fail_dir(error)
            except DiskFull:
                self.told_full += 1

    def look_after(self) -> None:
        self.logs.probe(self.logs.log_dirs)
        for log_dir in self.logs.log_dirs:
            self.logs.truncated.complete(log_dir)
        self.logs.claim(FLIGHTS, TOPIC_ID)

    def directories(self) -> list[Path]:
        return [path for path in self.path.glob("*/flights-*") if path.is_dir()]


class Facts(NamedTuple):
    """The facts about a log that must agree with the disk."""

    start_offset: int
    end_offset: int
    segment_bases: list[int]
    batch_offsets: list[int]
    epochs: list[tuple[int, int]]
    producers: dict[int, int]


def facts(log: Log) -> Facts:
    return Facts(
        log.log_start_offset,
        log.log_end_offset,
        [segment.base_offset for segment in log.segments],
        [header.base_offset for header in read_all(log)],
        [(entry.epoch, entry.start_offset) for entry in log.epochs.entries],
        log.producers.last_offsets(),
    )


def check_fits_the_disk(log: Log) -> None:
    """Check that memory and disk have the same segments; an empty one may lack its file."""
    found = {int(path.stem): path.stat().st_size for path in Path(log.directory).glob("*.log")}
    in_memory = {segment.base_offset: segment.size_bytes for segment in log.segments}
    assert found == {base: size for base, size in in_memory.items() if size or base in found}
    snapshots = {int(path.stem) for path in Path(log.directory).glob("*.snapshot")}
    assert snapshots == set(log.known_producers.snapshots.offsets)
    assert not [*Path(log.directory).glob("*.swap"), *Path(log.directory).glob("*.cleaned")]


class Operation(NamedTuple):
    """An operation of several steps. `is_right` checks what the log has afterwards, whichever step has failed."""

    run: Callable[[World], object]
    is_right: Callable[[Facts], bool]


def cut_to(offset: int) -> Operation:
    def is_right(found: Facts) -> bool:
        return found.end_offset >= offset and found.batch_offsets == list(range(found.end_offset))

    return Operation(lambda world: truncate_to(world.log, offset), is_right)


def has_all(found: Facts) -> bool:
    return found.batch_offsets == list(range(BATCHES))


def ends_whole(found: Facts) -> bool:
    return (
        found.batch_offsets == list(range(found.start_offset, BATCHES)) == list(range(found.segment_bases[0], BATCHES))
    )


def roll(world: World) -> None:
    world.log.roll(NOW_MS)


def append_and_flush(world: World) -> None:
    append(world.log, batch(1))
    world.log.flush()


def keep_little(world: World) -> None:
    world.log.configure(LogConfig(segment_bytes=2 * SIZE, index_interval_bytes=0, retention_bytes=3 * SIZE))
    enforce_retention(world.log, NOW_MS, BATCHES)


def keep_nothing(world: World) -> None:
    world.log.configure(LogConfig(segment_bytes=2 * SIZE, index_interval_bytes=0, retention_bytes=0))
    enforce_retention(world.log, NOW_MS, BATCHES)


def compact(world: World) -> None:
    """Replace the first two segments by one with batches 1 and 3."""
    log = world.log
    files = [Path(segment.path(".log")) for segment in log.segments][:2]
    data = b"".join(file.read_bytes()[SIZE:] for file in files)
    for suffix in (".log", ".index", ".timeindex"):
        Path(log.directory, f"{0:020d}{suffix}.cleaned").write_bytes(data if suffix == ".log" else b"")
    log.replace_segments([segment for segment in log.segments if segment.base_offset < 4], [0], NOW_MS)


def is_whole_or_compacted(found: Facts) -> bool:
    return has_all(found) or found.batch_offsets == [1, *range(3, BATCHES)]


def move_and_call_off(world: World) -> None:
    move = world.logs.moves.start(FLIGHTS, str(world.path / "b"))
    assert move is not None
    move.copy(3 * SIZE)
    world.logs.moves.stop(FLIGHTS)


OPERATIONS = {
    "roll": Operation(roll, has_all),
    "retention": Operation(keep_little, ends_whole),
    "retention of all": Operation(keep_nothing, ends_whole),
    "compaction": Operation(compact, is_whole_or_compacted),
    "truncation within a segment": cut_to(3),
    "truncation to a segment's base": cut_to(4),
    "truncation of all": Operation(
        lambda world: truncate_fully_and_start_at(world.log, 0, NOW_MS),
        lambda found: found.batch_offsets == list(range(found.end_offset)),
    ),
    "beginning anew further on": Operation(
        lambda world: truncate_fully_and_start_at(world.log, 50, NOW_MS),
        lambda found: found.batch_offsets == list(range(found.end_offset)) or found.start_offset == 50,
    ),
    "flush": Operation(append_and_flush, lambda found: found.batch_offsets[:BATCHES] == list(range(BATCHES))),
    "checkpoints": Operation(lambda world: world.logs.checkpoint(lambda _: 5), has_all),
    "a move that is called off": Operation(move_and_call_off, has_all),
    "close": Operation(lambda world: close_logs([world.log]), has_all),
}


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_log_is_whole_whichever_step_of_an_operation_fails(tmp_path: Path, name: str, code: int) -> None:
    operation = OPERATIONS[name]
    for step in count(1):
        world = World(tmp_path / str(step))
        world.disk.code, world.disk.steps_left = code, step
        world.attempt(operation.run)
        if world.disk.steps_left > 0:
            return
        assert world.told_full <= (code == errno.ENOSPC)
        found = facts(world.log)
        assert operation.is_right(found), f"step {step}"
        check_fits_the_disk(world.log)
        again = facts(world.after_a_crash().logs[FLIGHTS])
        assert again.batch_offsets == found.batch_offsets
        assert again[:3] == found[:3] or not found.batch_offsets, f"step {step}"
        world.logs.moves.stop(FLIGHTS)
        remove_all(world.disk, world.trash.take(LONG_MAX))
        check_fits_the_disk(world.log)
        assert world.directories() == [Path(world.log.directory)]
        world.attempt(operation.run)
        end = world.log.log_end_offset
        append(world.log, batch(1, producer_id=9, epoch=0, sequence=0), leader_epoch=9)
        assert world.log.log_end_offset == end + 1
        check_fits_the_disk(world.log)
        assert facts(world.after_a_crash().logs[FLIGHTS]) == facts(world.log), f"step {step}"


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_a_log_is_deleted_or_unchanged_whichever_step_fails(tmp_path: Path, code: int) -> None:
    for step in count(1):
        world = World(tmp_path / str(step))
        world.disk.code, world.disk.steps_left = code, step
        world.attempt(lambda world: world.logs.delete(FLIGHTS))
        if world.disk.steps_left > 0:
            return
        assert has_all(facts(world.log))
        assert not len(world.trash)
        world.attempt(lambda world: world.logs.delete(FLIGHTS))
        remove_all(world.disk, world.trash.take(LONG_MAX))
        assert world.directories() == []


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_a_log_is_created_at_the_second_try_whichever_step_fails(tmp_path: Path, code: int) -> None:
    def make(world: World) -> None:
        if world.logs.get(flights(1)) is None:
            world.logs.create(flights(1), TOPIC_ID, CONFIG)

    for step in count(1):
        world = World(tmp_path / str(step))
        world.disk.code, world.disk.steps_left = code, step
        world.attempt(make)
        if world.disk.steps_left > 0:
            return
        world.attempt(make)
        append(world.logs.logs[flights(1)], batch(2))
        again = world.after_a_crash().logs
        assert again[flights(1)].topic_id == TOPIC_ID
        assert again[flights(1)].log_end_offset == 2


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_a_start_loads_all_logs_whichever_step_fails_and_no_full_disk_goes_offline(tmp_path: Path, code: int) -> None:
    """The start is after a crash. The cleaner's checkpoint has a log that is gone, and one that was longer before."""
    for step in count(1):
        world = World(tmp_path / str(step))
        world.logs.shutdown(lambda _: 1)
        (world.path / "a" / ".kafka_cleanshutdown").unlink()
        (world.path / "a" / "cleaner-offset-checkpoint").write_text("0\n2\ngone 0 5\nflights 0 99\n")
        (Path(world.path / "a" / "flights-0") / f"{0:020d}.log.deleted").write_text("")
        world.disk.code, world.disk.steps_left = code, step
        world.logs = world.started(world.path, world.disk, world.trash)
        is_there = world.logs.get(FLIGHTS) is not None
        if world.disk.steps_left > 0:
            return
        world.attempt(World.look_after)
        assert is_there or code == errno.EIO or world.disk.sync_has_failed, f"step {step}"
        assert has_all(facts(world.log))
        check_fits_the_disk(world.log)
        append(world.log, batch(1))
        assert world.log.compaction.clean_until == BATCHES


def test_a_log_that_a_start_resets_is_not_compacted_beyond_its_start_offset(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.logs.shutdown(lambda _: 1)
    (tmp_path / "a" / ".kafka_cleanshutdown").unlink()
    (tmp_path / "a" / "log-start-offset-checkpoint").write_text("0\n1\nflights 0 99\n")
    (tmp_path / "a" / "cleaner-offset-checkpoint").write_text("0\n1\nflights 0 120\n")
    world.logs = world.started(world.path, world.disk, world.trash)
    append(world.log, batch(1))
    assert (world.log.log_start_offset, world.log.log_end_offset, world.log.compaction.clean_until) == (99, 100, 99)


def test_a_log_dir_that_cannot_be_listed_at_a_start_leaves_the_others_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.logs.shutdown(lambda _: 1)
    scan, refused = world.disk.scan, [str(tmp_path / "b")]

    def refuse(path: str) -> list[FileEntry]:
        if path in refused:
            refused.remove(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scan(path)

    monkeypatch.setattr(world.disk, "scan", refuse)
    world.logs = world.started(world.path, world.disk, world.trash)
    assert [log_dir.is_online for log_dir in world.logs.log_dirs] == [True, False]
    assert has_all(facts(world.log))
    world.attempt(World.look_after)
    assert [log_dir.is_online for log_dir in world.logs.log_dirs] == [True, True]

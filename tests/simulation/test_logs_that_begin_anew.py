"""A log that is truncated completely and starts at another offset is the old or the new one after any power cut."""

from random import Random
from uuid import UUID

import pytest

from barnabas_broker.storage.disk.files import OpenFiles, Trash
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_broker.storage.logs.truncation import truncate_fully_and_start_at, truncate_to
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock
from simulation.disk import SimulatedDisk

FLIGHTS = TopicPartition("flights", 0)
CONFIG = LogConfig()
END, START = 9, 12


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_during_a_full_truncation_leaves_the_old_or_the_new_log(seed: int) -> None:
    """A follower's log ends before its leader's log starts, since records were deleted there."""
    disk, logs = filled()
    truncate_fully_and_start_at(logs.logs[FLIGHTS], START, 0)
    assert after_a_power_cut(disk, seed).log_end_offset in (END, START)


@pytest.mark.parametrize("is_start_known", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_compacted_log_truncated_within_a_segment_has_no_old_records_beside_new_ones(
    seed: int, is_start_known: bool
) -> None:
    """Records of a compacted log were deleted, and an unclean election truncates it."""
    disk, logs = filled()
    log = compacted(logs, start_offset=3)
    if is_start_known:
        logs.checkpoint(lambda _: END)
    logs.truncated.on_added = lambda _: None
    truncate_to(log, 5)
    again = after_a_power_cut(disk, seed)
    offsets = [batch.header.base_offset for batch in again.segments.batches_from(again.log_start_offset)]
    assert offsets == list(range(again.log_start_offset, again.log_end_offset))


@pytest.mark.parametrize("start_offset", [0, 3])
@pytest.mark.parametrize("seed", range(20))
def test_dropped_records_do_not_return_after_new_appends(seed: int, start_offset: int) -> None:
    """The log lacks the values that compaction has removed, and no checkpoint shows that any more."""
    disk, logs = filled()
    log = compacted(logs, start_offset)
    logs.checkpoint(lambda _: END)
    truncate_to(log, 5)
    for _ in range(4):
        append(log, epoch=2)
    again = after_a_power_cut(disk, seed)
    epochs = {batch.header.leader_epoch for batch in again.segments.batches_from(again.log_start_offset)}
    assert epochs <= {2}


@pytest.mark.parametrize("begins_anew", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_truncated_records_do_not_return_after_a_clean_shutdown(seed: int, begins_anew: bool) -> None:
    """The broker stops before the truncation is complete, and then the power fails. The next start checks nothing."""
    disk, logs = filled()
    logs.truncated.on_added = lambda _: None
    log = compacted(logs, start_offset=0) if begins_anew else logs.logs[FLIGHTS]
    truncate_to(log, 5)
    logs.shutdown(lambda _: 3)
    again = after_a_power_cut(disk, seed)
    append(again, epoch=2)
    offsets = [batch.header.base_offset for batch in again.segments.batches_from(again.log_start_offset)]
    assert offsets == list(range(again.log_start_offset, again.log_end_offset))


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_records_truncated_by_a_killed_process_do_not_return_after_a_clean_shutdown(seed: int, is_torn: bool) -> None:
    """They were removed by a truncation, or by a start that found a torn batch."""
    disk, logs = filled()
    log = logs.logs[FLIGHTS]
    logs.truncated.on_added = lambda _: None
    if is_torn:
        log.segments.active.file.append(b"torn", log.segments.size_bytes)
        log.segments.active.file.sync()
        disk.process_ends()
        started(disk)
    else:
        append(log, epoch=1)
        log.segments.active.file.sync()  # The kernel may do this by itself.
        truncate_to(log, END)
    disk.process_ends()
    started(disk).shutdown(lambda _: 3)
    again = after_a_power_cut(disk, seed)
    again.segments.active.make_missing_indexes()
    assert [batch.header.last_offset for batch in again.segments.batches_from(0)] == list(range(END))


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_records_truncated_at_the_recovery_point_do_not_return_before_a_new_segment(
    seed: int, crashes: bool, closes: bool
) -> None:
    """The truncated segment ends at the recovery point, so it seems to have nothing that is not synced."""
    disk, logs = filled()
    logs.shutdown(lambda _: 3)
    logs = started(disk)
    log = logs.logs[FLIGHTS]
    append(log, epoch=1)
    log.segments.active.file.sync()  # As the kernel may do by itself.
    truncate_to(log, END)
    if crashes:
        disk.process_ends()
        logs = started(disk)
        log = logs.logs[FLIGHTS]
    log.roll(0)
    append(log, epoch=2)
    if closes:
        logs.shutdown(lambda _: 3)
    else:
        log.flush()
        logs.checkpoint(lambda _: 3)
    again = after_a_power_cut(disk, seed)
    assert [batch.header.base_offset for batch in again.segments.batches_from(0)] == list(range(END + 1))


class Killed(BaseException):
    """The process is killed at this point."""


@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_has_lost_its_files_when_the_process_was_killed_does_not_get_them_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full truncation was interrupted before the log had a new file."""
    disk, logs = filled()

    def kill(*_: object, **__: object) -> None:
        raise Killed

    log = compacted(logs, start_offset=0)
    with monkeypatch.context() as killing:
        killing.setattr(Segment, "make", kill)
        with pytest.raises(Killed):
            truncate_to(log, 5)
    disk.process_ends()
    started(disk).shutdown(lambda _: 0)
    again = after_a_power_cut(disk, seed)
    append(again, epoch=2)
    assert [batch.header.base_offset for batch in again.segments.batches_from(0)] == [0]


def filled() -> tuple[SimulatedDisk, LogManager]:
    """Make a log with synced records of epoch 1."""
    disk = SimulatedDisk(lambda: 0)
    disk.make_dir("/logs")
    logs = started(disk)
    log = logs.create(FLIGHTS, UUID(int=7), CONFIG)
    for _ in range(END):
        append(log, epoch=1)
    log.flush()
    logs.checkpoint(lambda _: None)
    disk.sync_dir("/")
    disk.sync_dir("/logs")
    return disk, logs


def compacted(logs: LogManager, start_offset: int) -> Log:
    log = logs.logs[FLIGHTS]
    log.compaction.superseded_below(END)
    log.increment_log_start_offset(start_offset)
    return log


def after_a_power_cut(disk: SimulatedDisk, seed: int) -> Log:
    disk.lose_power(Random(seed))
    disk.process_ends()
    return started(disk).logs[FLIGHTS]


def started(disk: SimulatedDisk) -> LogManager:
    environment = LogEnvironment(disk, OpenFiles(100), Trash(), Random(0))
    settings = LogManagerSettings(["/logs"])
    logs = LogManager(environment, ManualClock(), settings, BrokerIdentity("cluster", 1), lambda _: CONFIG)
    logs.load()
    return logs


def append(log: Log, epoch: int) -> None:
    data = memoryview(encode_batch([Record(0, 0, None, b"value")]))
    log.append(data, parse_header(data, 0), epoch, 0)

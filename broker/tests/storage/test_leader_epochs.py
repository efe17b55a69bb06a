"""The table of leader epochs."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from unittest.mock import Mock

import pytest
from log_manager_samples import HeldWrites
from storage_samples import OneLog, append, batch

from barnabas_broker.storage.disk.checkpoints import EpochStart, decode_epochs
from barnabas_broker.storage.disk.files import FileSystem, PosixFileSystem
from barnabas_broker.storage.logs.log_history import LeaderEpochs
from barnabas_broker.storage.logs.truncation import truncate_fully_and_start_at, truncate_to
from barnabas_core.config.log_config import LONG_MAX
from barnabas_core.errors import ApiError, ErrorCode
from harness.deadline import PATIENCE_S


def loaded(files: FileSystem, folder: Path) -> LeaderEpochs:
    """Return the epochs of a log without segments, as they are stored."""
    epochs = LeaderEpochs(files, str(folder))
    epochs.load(0, LONG_MAX, Mock(batches_from=lambda _: iter(())))
    return epochs


def table(path: Path, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = loaded(PosixFileSystem(), path)
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(5, (5, 40)), (6, (-1, -1)), (4, (3, 30)), (3, (3, 30)), (2, (2, 20)), (1, (1, 10)), (0, (0, 10)), (-1, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_one_starts(tmp_path: Path, epoch: int, answer: tuple[int, int]) -> None:
    assert table(tmp_path, (2, 10), (3, 20), (5, 30)).end_offset_for(epoch, 40) == answer


def test_an_empty_table_knows_no_epoch(tmp_path: Path) -> None:
    epochs = table(tmp_path)
    assert epochs.end_offset_for(0, 7) == (-1, -1)
    assert epochs.latest_epoch == -1
    assert epochs.epoch_for_offset(3) == -1


@pytest.mark.parametrize(
    ("assigned", "left"),
    [
        ((5, 50), [(2, 10), (3, 20), (5, 30)]),
        ((6, 40), [(2, 10), (3, 20), (5, 30), (6, 40)]),
        ((6, 30), [(2, 10), (3, 20), (6, 30)]),
        ((4, 40), [(2, 10), (3, 20), (4, 40)]),
        ((7, 15), [(2, 10), (7, 15)]),
    ],
)
def test_epochs_that_contradict_a_new_one_are_forgotten(
    tmp_path: Path, assigned: tuple[int, int], left: list[tuple[int, int]]
) -> None:
    assert table(tmp_path, (2, 10), (3, 20), (5, 30), assigned).entries == left


@pytest.mark.parametrize(
    ("end", "left"), [(31, [(2, 10), (3, 20), (5, 30)]), (30, [(2, 10), (3, 20)]), (11, [(2, 10)]), (10, [])]
)
def test_truncation_from_the_end(tmp_path: Path, end: int, left: list[tuple[int, int]]) -> None:
    epochs = table(tmp_path, (2, 10), (3, 20), (5, 30))
    epochs.truncate_from_end(end)
    assert epochs.entries == left


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (5, [(2, 10), (3, 20), (5, 30)]),
        (10, [(2, 10), (3, 20), (5, 30)]),
        (15, [(2, 15), (3, 20), (5, 30)]),
        (20, [(3, 20), (5, 30)]),
        (99, [(5, 99)]),
    ],
)
def test_truncation_from_the_start(tmp_path: Path, start: int, left: list[tuple[int, int]]) -> None:
    epochs = table(tmp_path, (2, 10), (3, 20), (5, 30))
    epochs.truncate_from_start(start)
    assert epochs.entries == left


def test_the_checkpoint_has_the_format_of_kafka_and_is_loaded_again(tmp_path: Path) -> None:
    epochs = table(tmp_path, (2, 10), (3, 20))
    path = tmp_path / "leader-epoch-checkpoint"
    save = epochs.save_call()
    assert save is not None
    save()
    assert epochs.save_call() is None
    assert path.read_bytes() == b"0\n2\n2 10\n3 20\n"
    assert table(tmp_path).entries == epochs.entries == [EpochStart(2, 10), EpochStart(3, 20)]


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 2), (19, 2), (20, 3), (1000, 5)])
def test_the_epoch_of_an_offset(tmp_path: Path, offset: int, epoch: int) -> None:
    assert table(tmp_path, (2, 10), (3, 20), (5, 30)).epoch_for_offset(offset) == epoch


def test_a_log_keeps_its_epochs_through_truncation(tmp_path: Path) -> None:
    log = OneLog(tmp_path).open()
    for epoch in (1, 1, 4, 6):
        append(log, batch(2), leader_epoch=epoch)
    assert [log.epochs.end_offset_for(epoch, log.log_end_offset) for epoch in (1, 2, 4, 6, 7)] == [
        (1, 4),
        (1, 4),
        (4, 6),
        (6, 8),
        (-1, -1),
    ]
    truncate_to(log, 4)
    assert log.epochs.end_offset_for(1, log.log_end_offset) == (1, 4)
    assert log.epochs.end_offset_for(4, log.log_end_offset) == (-1, -1)
    append(log, batch(1), leader_epoch=5)
    assert log.epochs.end_offset_for(1, log.log_end_offset) == (1, 4)
    assert log.epochs.epoch_for_offset(4) == 5
    truncate_fully_and_start_at(log, 100, 0)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (100, 100, [])
    assert append(log, batch(1), leader_epoch=5).base_offset == 100


def test_no_leader_begins_an_epoch_below_the_latest(tmp_path: Path) -> None:
    epochs = table(tmp_path)
    epochs.assign(5, 0)
    with pytest.raises(ApiError, match="leader epoch 5") as refused:
        epochs.check_may_begin(4)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert epochs.entries == [EpochStart(5, 0)]


def save_of(epochs: LeaderEpochs) -> Callable[[], None]:
    save = epochs.save_call()
    assert save is not None
    return save


def test_a_late_save_does_not_overwrite_a_later_one(tmp_path: Path) -> None:
    epochs = table(tmp_path, (2, 10))
    earlier = save_of(epochs)
    epochs.assign(3, 20)
    save_of(epochs)()
    earlier()
    assert table(tmp_path).entries == [(2, 10), (3, 20)]
    assert epochs.save_call() is None


def test_a_late_save_of_a_failed_log_dir_does_not_overwrite_one_after_its_return(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    log = one.open()
    append(log, batch(1), leader_epoch=0)
    append(log, batch(1), leader_epoch=1)
    job = log.syncs.flush_job(log.log_end_offset)
    assert job is not None
    log.epochs.abandon()
    again = one.open(recovery_point=0)
    append(again, batch(1), leader_epoch=4)
    again.flush()
    job.run()
    assert one.open(recovery_point=3).epochs.entries == [(0, 0), (1, 1), (4, 2)]


def test_a_late_save_brings_no_epochs_back_after_the_log_was_reset(tmp_path: Path) -> None:
    epochs = table(tmp_path, (2, 10))
    earlier = save_of(epochs)
    epochs.clear()
    earlier()
    assert table(tmp_path).entries == []


class Meddling(PosixFileSystem):
    """A file system in whose first write another thread tries to write, too."""

    def __init__(self) -> None:
        self.meddle: Callable[[], None] | None = None
        self.thread: Thread | None = None
        self.under_way = self.together = 0

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        self.under_way += 1
        self.together = max(self.together, self.under_way)
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            self.thread = Thread(target=meddle)
            self.thread.start()
            self.thread.join(timeout=0.2)
        super().write_atomically(path, data, sync=sync)
        self.under_way -= 1


def test_two_threads_that_save_do_not_write_the_same_file_at_once(tmp_path: Path) -> None:
    files = Meddling()
    epochs = loaded(files, tmp_path)
    epochs.assign(2, 10)
    earlier = save_of(epochs)
    epochs.assign(3, 20)
    files.meddle = save_of(epochs)
    earlier()
    assert files.thread is not None
    files.thread.join()
    assert files.together == 1
    assert table(tmp_path).entries == [(2, 10), (3, 20)]


class HeldSave:
    """Two epochs, each with a save that is under way: the first is being written, the second waits."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "leader-epoch-checkpoint"
        self._files = HeldWrites()
        self.epochs = LeaderEpochs(self._files, str(folder))
        saves = [self._next_save(epoch) for epoch in (1, 2)]
        self._files.held_name = self.path.name
        self._threads = [Thread(target=save, daemon=True) for save in saves]
        self._threads[0].start()
        assert self._files.entered.acquire(timeout=PATIENCE_S)
        self._threads[1].start()

    def _next_save(self, epoch: int) -> Callable[[], None]:
        self.epochs.assign(epoch, epoch * 10)
        save = self.epochs.save_call()
        assert save is not None
        return save

    def go_on(self) -> None:
        self._files.let_go.release(1000)
        for thread in self._threads:
            thread.join()


def test_a_waiting_save_is_dropped_once_its_epochs_are_abandoned(tmp_path: Path) -> None:
    held = HeldSave(tmp_path)
    held.epochs.abandon()
    held.go_on()
    assert decode_epochs(held.path.read_bytes()) == [EpochStart(1, 10)]


def test_a_log_that_is_reset_while_its_epochs_are_being_written_has_none_left(tmp_path: Path) -> None:
    held = HeldSave(tmp_path)
    held.epochs.clear()
    held.go_on()
    assert not held.path.exists()
    held.epochs.assign(3, 40)
    save = held.epochs.save_call()
    assert save is not None
    save()
    assert decode_epochs(held.path.read_bytes()) == [EpochStart(3, 40)]

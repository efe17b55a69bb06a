"""A recreated log takes no offsets from the checkpoints of the earlier log of its name."""

from pathlib import Path
from threading import Thread
from uuid import UUID

from log_manager_samples import CONFIG, TOPIC_ID, HeldWrites, flights, manager, started
from storage_samples import append, batch

from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log import Log
from harness.deadline import PATIENCE_S

LATER_ID = UUID(int=99)


def earlier(logs: LogManager) -> Log:
    """Make a log with three synced records, of which the first two were deleted."""
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    for _ in range(3):
        append(log, batch(1))
    log.flush()
    log.increment_log_start_offset(2)
    return log


def made_again_before_a_crash(folder: Path) -> None:
    """Delete a log and create one of its name; the process dies before the checkpoints are written."""
    logs = started(folder)
    earlier(logs)
    logs.checkpoint(lambda _: 3)
    logs.delete(flights(0))
    logs.truncated.on_added = lambda _: None
    logs.create(flights(0), LATER_ID, CONFIG)
    logs.log_dirs[0].fail(LogDirFailed(str(folder), "the process dies"))


def test_a_recreated_log_starts_empty_at_0_after_a_crash_before_the_checkpoints(tmp_path: Path) -> None:
    """With the start offset of the earlier log a follower would seem to have all earlier records, and would lead."""
    made_again_before_a_crash(tmp_path)
    again = started(tmp_path).logs[flights(0)]
    assert again.topic_id == LATER_ID
    assert (again.log_start_offset, again.log_end_offset, again.syncs.recovery_point) == (0, 0, 0)


def test_a_recreated_log_keeps_its_records_after_a_second_crash(tmp_path: Path) -> None:
    """With the start offset and recovery point of the earlier log its records would be hidden, or count as damaged."""
    made_again_before_a_crash(tmp_path)
    logs = started(tmp_path)
    for _ in range(3):
        append(logs.logs[flights(0)], batch(1))
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "it dies again"))
    again = started(tmp_path).logs[flights(0)]
    assert (again.log_start_offset, again.log_end_offset, again.syncs.recovery_point) == (0, 3, 3)


class OneBeingWritten:
    """A log, and the first checkpoint of its log dir that has it, while this is being written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = HeldWrites()
        self.logs = manager(path, files=self._files)
        self.logs.load()
        earlier(self.logs)
        self.logs.truncated.on_added = lambda _: None
        self._files.held_name = "recovery-point-offset-checkpoint"
        self._writer = Thread(target=self.logs.checkpoint, args=(lambda _: 3,), daemon=True)
        self._writer.start()
        assert self._files.entered.acquire(timeout=PATIENCE_S)

    def is_written(self) -> None:
        self._files.let_go.release(1000)
        self._writer.join()


def test_a_recreated_log_waits_if_a_checkpoint_with_the_earlier_one_is_being_written(tmp_path: Path) -> None:
    """With the earlier recovery point a torn batch of the later log would count as damage, which is never truncated."""
    one = OneBeingWritten(tmp_path)
    one.logs.delete(flights(0))
    log = one.logs.create(flights(0), LATER_ID, CONFIG)
    assert log.known_producers.are_held_back
    one.is_written()
    one.logs.truncated.complete(one.logs.log_dirs[0])
    append(log, batch(1))
    one.logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the power is lost"))
    path = tmp_path / "flights-0" / f"{0:020d}.log"
    path.write_bytes(bytes(path.stat().st_size))
    assert started(tmp_path).logs[flights(0)].log_end_offset == 0


def test_a_log_with_a_new_name_does_not_wait_for_a_checkpoint_in_progress(tmp_path: Path) -> None:
    one = OneBeingWritten(tmp_path)
    assert not one.logs.create(flights(1), TOPIC_ID, CONFIG).known_producers.are_held_back
    one.is_written()


def test_a_recreated_log_does_not_wait_once_a_checkpoint_without_the_earlier_one_is_written(tmp_path: Path) -> None:
    one = OneBeingWritten(tmp_path)
    one.logs.delete(flights(0))
    one.is_written()
    one.logs.checkpoint(lambda _: 3)
    assert not one.logs.create(flights(0), LATER_ID, CONFIG).known_producers.are_held_back


def test_a_high_watermark_is_taken_from_the_log_dir_that_has_the_log(tmp_path: Path) -> None:
    """The log dir of an earlier topic of its name failed; the topic was deleted and made again meanwhile."""
    here, failed = tmp_path / "a", tmp_path / "b"
    logs = manager(here, failed)
    logs.load()
    log = logs.create(flights(0), TOPIC_ID, CONFIG, str(failed))
    append(log, batch(9))
    logs.checkpoint(lambda _: 9)
    logs.fail_dir(LogDirFailed(str(failed), "the disk failed"))
    append(logs.create(flights(0), LATER_ID, CONFIG), batch(10))
    logs.checkpoint(lambda _: 1)
    logs.log_dirs[0].fail(LogDirFailed(str(here), "the process dies"))
    logs = started(here, failed)
    assert logs.checkpointed_high_watermark(flights(0)) == 1

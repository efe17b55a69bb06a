"""A log dir that fails keeps its checkpoints: a checkpoint that is under way knows no logs any more."""

from collections.abc import Callable
from pathlib import Path

import pytest
from log_manager_samples import CONFIG, TOPIC_ID, flights, manager, started
from storage_samples import append, batch

from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.errors import LogDirFailed, StorageError
from barnabas_broker.storage.log_dirs.log_dir_loader import make_durable
from barnabas_broker.storage.log_dirs.log_manager import LogManager

HIGH_WATERMARKS = "replication-offset-checkpoint"
ALL = (
    "recovery-point-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    HIGH_WATERMARKS,
)


def checkpointed(logs: LogManager) -> None:
    """Make and checkpoint one log, which is synced and compacted, and whose first two records were deleted."""
    log = logs.create(flights(0), TOPIC_ID, CONFIG)
    for _ in range(3):
        append(log, batch(1))
    log.flush()
    log.increment_log_start_offset(2)
    log.compaction.ended(1)
    logs.checkpoint(lambda _: 3)


def contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in ALL}


def test_checkpoints_that_continue_after_the_failure_of_their_log_dir_write_nothing(tmp_path: Path) -> None:
    """Without recovery points the next start would take damage for a torn batch, and truncate the log there."""
    logs = started(tmp_path)
    checkpointed(logs)
    before = contents(tmp_path)
    calls = logs.checkpoint_calls(lambda _: 3)
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "a sync failed"))
    for call in calls:
        with pytest.raises(LogDirFailed):
            call()
    with pytest.raises(LogDirFailed):
        logs.log_dirs[0].rewrite_checkpoints()
    assert contents(tmp_path) == before


class Interrupted(PosixFileSystem):
    """A file system that calls `meanwhile` before the high watermarks of a log dir are read."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None

    def read(self, path: str) -> bytes:
        if path.endswith(HIGH_WATERMARKS):
            self.meanwhile()
        return super().read(path)


def test_earlier_checkpoints_write_nothing_while_their_log_dir_is_loaded_again(tmp_path: Path) -> None:
    """The log dir has none of its logs yet, or half of them."""
    files = Interrupted()
    logs = manager(tmp_path, files=files)
    logs.load()
    checkpointed(logs)
    before, log_dir = contents(tmp_path), logs.log_dirs[0]
    calls = logs.checkpoint_calls(lambda _: 3)
    log_dir.fail(LogDirFailed(str(tmp_path), "a sync failed"))
    errors: list[StorageError] = []

    def go_on() -> None:
        for call in calls:
            try:
                call()
            except StorageError as error:
                errors.append(error)

    files.meanwhile = go_on
    assert logs.probe([log_dir])
    assert len(errors) == len(calls)
    assert contents(tmp_path) == before
    assert logs.logs[flights(0)].log_start_offset == 2


def test_an_earlier_sync_of_truncations_writes_nothing_while_its_log_dir_is_loaded_again(tmp_path: Path) -> None:
    """A sync of truncations may take long on a failing disk; then all checkpoints are to be written."""
    files = Interrupted()
    logs = manager(tmp_path, files=files)
    logs.load()
    checkpointed(logs)
    before, log_dir = contents(tmp_path), logs.log_dirs[0]
    log_dir.fail(LogDirFailed(str(tmp_path), "a sync failed"))
    errors: list[StorageError] = []

    def go_on() -> None:
        try:
            make_durable((), log_dir)
        except StorageError as error:
            errors.append(error)

    files.meanwhile = go_on
    assert logs.probe([log_dir])
    assert len(errors) == 1
    assert contents(tmp_path) == before

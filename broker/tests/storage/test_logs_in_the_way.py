"""A log of an earlier topic is never used for a later topic of the same name."""

import errno
import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from log_manager_samples import BROKER, CONFIG, TOPIC_ID, flights
from storage_samples import append, batch

from barnabas_broker.storage.disk.files import OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock

LATER_ID, LATEST_ID = UUID(int=2), UUID(int=3)
"""The ids of topics that were created under the same name after that one was deleted."""


class ToldDisk(PosixFileSystem):
    """A file system that calls the test before each read of a file, and before each rename."""

    def __init__(self) -> None:
        self.on_read: Callable[[str], None] = lambda path: None
        self.on_rename: Callable[[str], None] = lambda path: None

    def read(self, path: str) -> bytes:
        self.on_read(path)
        return super().read(path)

    def rename(self, old: str, new: str) -> None:
        self.on_rename(old)
        super().rename(old, new)


def started(files: ToldDisk, *paths: Path) -> LogManager:
    environment = LogEnvironment(files, OpenFiles(100), Trash(), random.Random(0))
    settings = LogManagerSettings([str(path) for path in paths])
    logs = LogManager(environment, ManualClock(), settings, BROKER, lambda _: CONFIG)
    logs.load()
    return logs


def test_deleting_a_topic_during_a_load_does_not_hide_the_log_of_an_earlier_topic(
    tmp_path: Path,
) -> None:
    mounted, elsewhere, other = tmp_path / "mounted", tmp_path / "elsewhere", tmp_path / "other"
    disk = ToldDisk()
    logs = started(disk, mounted, other)
    append(logs.create(flights(0), TOPIC_ID, CONFIG, str(mounted)), batch(3))
    mounted.rename(elsewhere)
    logs.fail_dir(logs.log_dirs[0].problems()[0])
    logs.create(flights(0), LATER_ID, CONFIG)
    elsewhere.rename(mounted)

    def goes(path: str) -> None:
        if path == f"{mounted}/cleaner-offset-checkpoint" and logs.get(flights(0)):  # Read when all logs are loaded.
            logs.delete(flights(0))

    disk.on_read = goes
    logs.probe(logs.log_dirs)
    found = logs.get(flights(0))
    assert found is not None
    assert found.topic_id == TOPIC_ID
    assert logs.claim(flights(0), LATEST_ID) is None
    assert logs.create(flights(0), LATEST_ID, CONFIG, str(mounted)).log_end_offset == 0


@pytest.mark.parametrize("way", [LogManager.delete, lambda logs, key: logs.claim(key, LATER_ID)])
def test_a_log_that_could_not_be_renamed_is_not_used_for_a_later_topic(
    way: Callable[[LogManager, TopicPartition], object], tmp_path: Path
) -> None:
    disk = ToldDisk()
    logs = started(disk, tmp_path)
    append(logs.create(flights(0), TOPIC_ID, CONFIG), batch(3))

    def refuse(path: str) -> None:
        if path.endswith("flights-0"):
            raise OSError(errno.EIO, "input/output error")

    disk.on_rename = refuse
    with pytest.raises(StorageError):
        way(logs, flights(0))
    with pytest.raises(StorageError):
        logs.create(flights(0), LATER_ID, CONFIG)
    disk.on_rename = lambda path: None
    assert logs.create(flights(0), LATER_ID, CONFIG).log_end_offset == 0
    [set_aside] = logs.strays
    assert set_aside.topic_id == TOPIC_ID

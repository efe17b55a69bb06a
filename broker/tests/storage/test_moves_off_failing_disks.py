"""A log moves off a failing disk: its copy is not thrown away if it is needed, and not used if it is incomplete."""

import errno
import os
import random
import shutil
from pathlib import Path
from uuid import UUID

import pytest
from storage_samples import append, batch, read_all

from barnabas_broker.storage.disk.files import OpenFiles, PosixFileSystem, Trash, remove_all
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_dir_loader import TopicLookup
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.log_dirs.replica_moves import ReplicaMove
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_core.config.log_config import LONG_MAX, LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock

SIZE = len(batch(1))
CONFIG = LogConfig(segment_bytes=5 * SIZE)
FLIGHTS = TopicPartition("flights", 0)
TOPIC_ID = UUID(int=7)
RECORDS = 23


class FailsFrom(PosixFileSystem):
    """A file system on which the disk at `path` fails from the first sync of its names on."""

    def __init__(self) -> None:
        self.path = ""
        self._has_failed = False

    def sync_dir(self, path: str) -> None:
        self._has_failed |= path == self.path
        self._step(path)
        super().sync_dir(path)

    def rename(self, old: str, new: str) -> None:
        self._step(old)
        super().rename(old, new)

    def _step(self, path: str) -> None:
        if self._has_failed and path.startswith(self.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def mend(self) -> None:
        self.path, self._has_failed = "", False


class Broker:
    """A broker with two log dirs, whose metadata has the topic, and no earlier topic of its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = FailsFrom()
        self._chance = random.Random(0)
        self.start()

    def start(self) -> None:
        self.trash = Trash()
        environment = LogEnvironment(self.files, OpenFiles(100), self.trash, self._chance)
        settings = LogManagerSettings([str(self.path / "old"), str(self.path / "new")])
        topics = TopicLookup(lambda topic_id, _: FLIGHTS if topic_id == TOPIC_ID else None, lambda _: TOPIC_ID)
        self.logs = LogManager(environment, ManualClock(), settings, BrokerIdentity("c", 1), lambda _: CONFIG, topics)
        self.logs.load()

    def move(self, records: int) -> ReplicaMove:
        """Begin the move of a log, and copy so many of its records."""
        log = self.logs.create(FLIGHTS, TOPIC_ID, CONFIG, str(self.path / "old"))
        for _ in range(RECORDS):
            append(log, batch(1))
        move = self.logs.moves.start(FLIGHTS, str(self.path / "new"))
        assert move is not None
        move.copy(records * SIZE)
        self.logs.moves.sync(move)
        return move

    def empty_trash(self) -> None:
        remove_all(self.files, self.trash.take(LONG_MAX))


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_an_unfinished_copy_is_not_used_as_the_log_after_the_disk_was_replaced(broker: Broker) -> None:
    """The broker would otherwise report a whole log, lead, and serve the part that had been copied."""
    broker.move(records=3)
    broker.logs.shutdown(lambda _: RECORDS)
    shutil.rmtree(broker.path / "old")
    broker.start()
    assert broker.logs.get(FLIGHTS) is None
    assert broker.logs.has_lost(FLIGHTS)
    assert [(each.topic_partition, each.topic_id) for each in broker.logs.strays] == [(FLIGHTS, None)]
    broker.empty_trash()
    assert [path.suffix for path in broker.path.glob("new/flights-0*/*.log")]


def kept(broker: Broker) -> None:
    """Let the move fail where the log has lost its name, so that the copy is kept."""
    move = broker.move(records=RECORDS)
    broker.files.path = str(broker.path / "old")
    with pytest.raises(LogDirFailed) as failed:
        broker.logs.moves.finish(move)
    assert failed.value.log_dir == str(broker.path / "old")
    broker.logs.fail_dir(failed.value)
    broker.empty_trash()
    broker.files.mend()


def test_the_next_start_uses_a_finished_copy_if_the_log_cannot_get_its_name_back(broker: Broker) -> None:
    """The disk has the log under the name of a deleted one, also when it is back."""
    kept(broker)
    assert broker.logs.probe(broker.logs.log_dirs)
    broker.empty_trash()
    broker.logs.shutdown(lambda _: None)
    broker.start()
    found = broker.logs.logs[FLIGHTS]
    assert (found.log_dir, found.topic_id, len(read_all(found))) == (str(broker.path / "new"), TOPIC_ID, RECORDS)


def test_a_finished_copy_is_removed_if_the_log_continues_in_its_old_log_dir(broker: Broker) -> None:
    """It would be taken for the log, which has more records by then, if the other disk were replaced later."""
    move = broker.move(records=RECORDS)
    broker.files.path = str(broker.path / "new")
    with pytest.raises(LogDirFailed) as failed:
        broker.logs.moves.finish(move)
    broker.logs.fail_dir(failed.value)
    broker.trash.take(LONG_MAX)  # The disk removes nothing.
    broker.files.mend()
    assert broker.logs.probe(broker.logs.log_dirs)
    broker.empty_trash()
    assert list(broker.path.glob("new/flights-0*")) == []
    assert len(read_all(broker.logs.logs[FLIGHTS])) == RECORDS


def test_a_full_disk_that_cannot_give_the_log_its_name_back_counts_as_failed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the name of a deleted log it would take records, which the next start would remove."""
    move, home, rename = broker.move(records=RECORDS), str(broker.path / "old" / "flights-0"), broker.files.rename

    def full(old: str, new: str) -> None:
        if new in (home, str(broker.path / "new" / "flights-0")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(old, new)

    monkeypatch.setattr(broker.files, "rename", full)
    with pytest.raises(LogDirFailed) as failed:
        broker.logs.moves.finish(move)
    assert failed.value.log_dir == str(broker.path / "old")


def test_a_copy_that_cannot_be_renamed_takes_only_its_log_dir_offline_at_a_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.move(records=3)
    broker.logs.shutdown(lambda _: RECORDS)
    shutil.rmtree(broker.path / "old")

    def refuse(_: str, __: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(broker.files, "rename", refuse)
        broker.start()
    assert [log_dir.is_online for log_dir in broker.logs.log_dirs] == [True, False]
    assert not broker.logs.has_lost(FLIGHTS)
    assert broker.logs.probe(broker.logs.log_dirs)
    assert broker.logs.has_lost(FLIGHTS)

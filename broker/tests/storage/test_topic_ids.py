"""A topic id that a power cut has lost is written again, or its log is set aside."""

import errno
import os
import random
from pathlib import Path
from uuid import UUID

import pytest
from storage_samples import append, batch

from barnabas_broker.storage.disk.files import OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.errors import DiskFull, LogDirFailed
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_dir_loader import NO_TOPICS, TopicLookup
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock

WRITTEN, EMPTY = TopicPartition("flights", 0), TopicPartition("flights", 1)
TOPIC_ID, LATER_ID = UUID(int=7), UUID(int=8)


def started(path: Path, topics: TopicLookup = NO_TOPICS) -> LogManager:
    environment = LogEnvironment(PosixFileSystem(), OpenFiles(100), Trash(), random.Random(0))
    identity, settings = BrokerIdentity("cluster", 1), LogManagerSettings([str(path)])
    logs = LogManager(environment, ManualClock(), settings, identity, lambda _: LogConfig(), topics)
    logs.load()
    return logs


def end(logs: LogManager) -> None:
    logs.log_dirs[0].fail(LogDirFailed(logs.log_dirs[0].path, "the process dies"))


def lose_ids(path: Path, left: bytes) -> None:
    """Make two logs, one of which has records, and leave their topic ids as a power cut may."""
    logs = started(path)
    append(logs.create(WRITTEN, TOPIC_ID, LogConfig()), batch(3))
    logs.create(EMPTY, TOPIC_ID, LogConfig())
    end(logs)
    for each in (WRITTEN, EMPTY):
        (path / str(each) / "partition.metadata").write_bytes(left)


@pytest.mark.parametrize("left", [b"", b"version: 0\ntopic_id: ", b"\0\0\0\0"])
def test_a_topic_id_that_a_power_cut_has_lost_is_written_again(tmp_path: Path, left: bytes) -> None:
    lose_ids(tmp_path, left)
    again = started(tmp_path, TopicLookup(only_topic={"flights": TOPIC_ID}.get))
    assert [again.claim(each, TOPIC_ID) for each in (WRITTEN, EMPTY)] == [again.logs[WRITTEN], again.logs[EMPTY]]
    end(again)
    assert {log.topic_id for log in started(tmp_path).logs.values()} == {TOPIC_ID}


def test_a_log_with_records_whose_topic_cannot_be_determined_is_set_aside(tmp_path: Path) -> None:
    lose_ids(tmp_path, b"")
    again = started(tmp_path)
    assert again.logs.keys() == {EMPTY}, "a log without records may be used by any topic"
    assert [stray.topic_partition for stray in again.strays] == [WRITTEN]
    assert again.strays.totals()[str(tmp_path)].size_bytes >= len(batch(3))
    assert again.has_lost(WRITTEN), "a new one may be made"
    assert again.create(WRITTEN, LATER_ID, LogConfig()).log_end_offset == 0


def refuse(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_log_without_a_topic_id_is_used_by_its_topic_even_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_ids(tmp_path, b"")
    (tmp_path / ".sync-failed").unlink()  # No sync has failed: only the process has died.
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", refuse)
        again = started(tmp_path, TopicLookup(only_topic={"flights": TOPIC_ID}.get))
        assert not again.failed
        assert [again.claim(each, TOPIC_ID) for each in (WRITTEN, EMPTY)] == [again.logs[WRITTEN], again.logs[EMPTY]]
    end(again)
    again = started(tmp_path, TopicLookup(only_topic={"flights": TOPIC_ID}.get))
    assert again.logs[WRITTEN].topic_id == TOPIC_ID
    assert not again.strays.totals()


def test_a_log_cannot_be_created_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = started(tmp_path)
    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(DiskFull):
        logs.create(WRITTEN, TOPIC_ID, LogConfig())

"""A power cut brings the directory of a deleted topic back, beside the log of a later one in another log dir."""

import random
from pathlib import Path
from uuid import UUID

import pytest
from storage_samples import append, batch

from barnabas_broker.storage.disk.files import OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_dir_loader import NO_TOPICS, TopicLookup
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock

FLIGHTS = TopicPartition("flights", 0)
EARLIER_ID, LATER_ID = UUID(int=7), UUID(int=8)
LATER_IS_KNOWN = TopicLookup(assigned=lambda *of: FLIGHTS if of == (LATER_ID, 0) else None)


def started(path: Path, topics: TopicLookup = NO_TOPICS) -> LogManager:
    environment = LogEnvironment(PosixFileSystem(), OpenFiles(100), Trash(), random.Random(0))
    settings = LogManagerSettings([str(path / "a"), str(path / "b")])
    logs = LogManager(environment, ManualClock(), settings, BrokerIdentity("cluster", 1), lambda _: LogConfig(), topics)
    logs.load()
    return logs


def leave_two(path: Path, earlier_dir: str, later_dir: str) -> None:
    """Leave logs of two topics of one name, of which the earlier one has more records."""
    logs = started(path)
    earlier = logs.create(FLIGHTS, EARLIER_ID, LogConfig(), str(path / earlier_dir))
    append(earlier, batch(3))
    logs.delete(FLIGHTS)
    append(logs.create(FLIGHTS, LATER_ID, LogConfig(), str(path / later_dir)), batch(1))
    for log_dir in logs.log_dirs:
        log_dir.fail(LogDirFailed(log_dir.path, "the machine loses power"))
    Path(earlier.directory).rename(path / earlier_dir / str(FLIGHTS))


@pytest.mark.parametrize(("earlier_dir", "later_dir"), [("a", "b"), ("b", "a")])
def test_the_log_of_the_current_topic_is_used_and_the_other_one_is_set_aside(
    tmp_path: Path, earlier_dir: str, later_dir: str
) -> None:
    leave_two(tmp_path, earlier_dir, later_dir)
    logs = started(tmp_path, LATER_IS_KNOWN)
    assert [(log.topic_id, log.log_dir) for log in logs.online_logs()] == [(LATER_ID, str(tmp_path / later_dir))]
    assert [(each.topic_id, each.log_dir) for each in logs.strays] == [(EARLIER_ID, str(tmp_path / earlier_dir))]
    claimed = logs.claim(FLIGHTS, LATER_ID)
    assert claimed is not None
    assert claimed.log_end_offset == 1


@pytest.mark.parametrize(("earlier_dir", "later_dir"), [("a", "b"), ("b", "a")])
def test_both_logs_of_unknown_topics_are_kept(tmp_path: Path, earlier_dir: str, later_dir: str) -> None:
    leave_two(tmp_path, earlier_dir, later_dir)
    logs = started(tmp_path)
    assert [log.topic_id for log in logs.online_logs()] == [EARLIER_ID], "the larger one"
    assert [each.topic_id for each in logs.strays] == [LATER_ID]
    assert logs.claim(FLIGHTS, LATER_ID) is None, "the log was set aside, and is not found by its topic id"
    assert {each.topic_id for each in logs.strays} == {EARLIER_ID, LATER_ID}

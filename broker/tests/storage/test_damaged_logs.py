"""A log that is damaged below its recovery point is never truncated: it stays as it is at each start."""

import random
from pathlib import Path
from uuid import UUID

import pytest
from storage_samples import NOW_MS, append, batch, read_all

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.files import OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.errors import CorruptLog, LogDirFailed
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock

TOPIC_ID, LATER_ID = UUID(int=7), UUID(int=8)
CONFIG = LogConfig()
DAMAGED, HIGH_WATERMARKS = TopicPartition("flights", 1), {TopicPartition("flights", 1): 3}


def flights(partition: int) -> TopicPartition:
    return TopicPartition("flights", partition)


def started(path: Path) -> LogManager:
    environment = LogEnvironment(PosixFileSystem(), OpenFiles(100), Trash(), random.Random(0))
    identity, settings = BrokerIdentity("cluster", 1), LogManagerSettings([str(path)])
    logs = LogManager(environment, ManualClock(), settings, identity, lambda _: CONFIG)
    logs.load()
    return logs


def end(logs: LogManager, *, cleanly: bool) -> None:
    if cleanly:
        logs.shutdown(lambda _: None)
    else:
        logs.checkpoint(lambda _: None)
        logs.log_dirs[0].fail(LogDirFailed(logs.log_dirs[0].path, "the process dies"))


def segment_of(path: Path) -> Path:
    return path / str(DAMAGED) / f"{0:020d}.log"


def flip(path: Path) -> None:
    """Damage the second batch; a second call repairs it."""
    content = bytearray(segment_of(path).read_bytes())
    content[len(batch(1)) + 16] ^= 0xFF
    segment_of(path).write_bytes(content)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A log dir with three partitions of three synced batches each; the disk has changed a batch of one of them."""
    logs = started(tmp_path)
    for number in range(3):
        log = logs.create(flights(number), TOPIC_ID, CONFIG)
        for _ in range(3):
            append(log, batch(1))
        log.flush()
    logs.checkpoint(lambda log: HIGH_WATERMARKS.get(log.topic_partition))
    logs.log_dirs[0].fail(LogDirFailed(str(tmp_path), "the process dies"))
    flip(tmp_path)
    return tmp_path


def test_a_damaged_log_is_not_loaded_and_the_others_are(damaged: Path) -> None:
    logs = started(damaged)
    assert set(logs.logs) == {flights(0), flights(2)}
    assert f"flights-1 is damaged at byte {len(batch(1))}: the magic of the batch is -3, not 2" in str(
        logs.failed[DAMAGED]
    )
    with pytest.raises(CorruptLog):
        logs.create(DAMAGED, TOPIC_ID, CONFIG)
    assert logs.claim(DAMAGED, TOPIC_ID) is None


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_damaged_log_is_not_truncated_by_any_later_start(damaged: Path, cleanly: bool) -> None:
    """A second restart would otherwise drop synced records, and report that all is well.

    A log that could not be loaded has no snapshot of its producers at its end, so each start reads it again.
    """
    size_bytes = segment_of(damaged).stat().st_size
    for number in range(3):
        logs = started(damaged)
        assert DAMAGED in logs.failed
        assert segment_of(damaged).stat().st_size == size_bytes
        logs.create(flights(10 + number), TOPIC_ID, CONFIG)
        end(logs, cleanly=cleanly)
    flip(damaged)
    mended = started(damaged)
    assert not mended.failed
    assert len(read_all(mended.logs[DAMAGED])) == 3


def test_the_high_watermark_of_a_damaged_log_survives_starts_that_cannot_load_it(damaged: Path) -> None:
    for _ in range(2):
        end(started(damaged), cleanly=False)
    flip(damaged)
    assert started(damaged).log_dirs[0].checkpointed(checkpoints.HIGH_WATERMARKS, DAMAGED) == 3


def test_a_damaged_log_that_was_deleted_leaves_nothing_for_a_later_log_of_its_name(damaged: Path) -> None:
    logs = started(damaged)
    logs.delete(DAMAGED)
    assert logs.create(DAMAGED, LATER_ID, CONFIG).log_end_offset == 0
    [deleted] = damaged.glob("flights-1.*-delete")
    logs.remove_files(logs.due_deletions(NOW_MS))
    assert not deleted.exists()

"""The facts that a start reports of its logs are read when the logs are loaded, and not on the loop."""

import random
from pathlib import Path
from uuid import UUID

import pytest

from barnabas_broker.app.log_tasks import held_logs
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.storage.disk.files import OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock


class CountedReads(PosixFileSystem):
    """A file system that records which whole files were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_paths: list[str] = []

    def read(self, path: str) -> bytes:
        self.read_paths.append(path)
        return super().read(path)


@pytest.mark.parametrize("is_clean", [True, False], ids=["after a clean shutdown", "after a crash"])
def test_reporting_log_end_offsets_reads_no_file(tmp_path: Path, is_clean: bool) -> None:
    def logs() -> LogManager:
        environment = LogEnvironment(files, OpenFiles(100), Trash(), random.Random(0))
        settings, identity = LogManagerSettings([str(tmp_path)]), BrokerIdentity("c", 1)
        return LogManager(environment, ManualClock(), settings, identity, lambda _: LogConfig())

    files = CountedReads()
    before = logs()
    before.load()
    for number in range(3):
        before.create(TopicPartition("t", number), UUID(int=9), LogConfig())
    if is_clean:
        before.shutdown(lambda _: None)
    del before
    after = logs()
    after.load()
    files.read_paths.clear()
    assert len(list(held_logs(after, MetadataImage()))) == 3
    assert files.read_paths == []

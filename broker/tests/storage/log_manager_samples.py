"""Log managers over directories of a test."""

import os
import random
from collections.abc import Mapping
from pathlib import Path
from threading import Semaphore
from uuid import UUID

import pytest
from storage_samples import acknowledged_later, append, batch

from barnabas_broker.storage.disk.files import FileSystem, OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock

TOPIC_ID = UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
BROKER = BrokerIdentity("MkU3OEVBNTcwNTJENDM2Qk", 1)
CONFIG = LogConfig()


def manager(
    *paths: Path,
    identity: BrokerIdentity = BROKER,
    placement: str = "fewest-partitions",
    files: FileSystem | None = None,
) -> LogManager:
    environment = LogEnvironment(files or PosixFileSystem(), OpenFiles(100), Trash(), random.Random(0))
    settings = LogManagerSettings([str(path) for path in paths], placement)
    logs = LogManager(environment, ManualClock(), settings, identity, lambda _: CONFIG)
    logs.on_sync_due = acknowledged_later
    return logs


def started(*paths: Path) -> LogManager:
    logs = manager(*paths)
    logs.load()
    return logs


def flights(partition: int) -> TopicPartition:
    return TopicPartition("flights", partition)


def fill(logs: LogManager, partitions: int) -> Mapping[TopicPartition, int]:
    for number in range(partitions):
        log = logs.create(flights(number), TOPIC_ID, CONFIG)
        for _ in range(number + 1):
            append(log, batch(1))
    return {key: log.log_end_offset for key, log in logs.logs.items()}


class FullAfter(PosixFileSystem):
    """A disk that is full after `bytes_left`, as os.pwrite shows it: first a short write, then ENOSPC."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bytes_left: int) -> None:
        self.bytes_left = bytes_left
        self._pwrite = os.pwrite
        monkeypatch.setattr(os, "pwrite", self._write)

    def _write(self, descriptor: int, data: memoryview, position: int) -> int:
        taken = min(len(data), self.bytes_left)
        self.bytes_left -= taken
        if not taken:
            raise OSError(28, "No space left on device")
        return self._pwrite(descriptor, data[:taken], position)


class HeldWrites(PosixFileSystem):
    """A file system in which writes of the file `held_name` wait until the test releases them."""

    def __init__(self) -> None:
        self.held_name = ""
        self.entered, self.let_go = Semaphore(0), Semaphore(0)

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        if path.endswith(f"/{self.held_name}"):
            self.entered.release()
            self.let_go.acquire()
        super().write_atomically(path, data, sync=sync)

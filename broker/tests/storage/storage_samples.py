"""Batches and logs for the tests of the storage floor."""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec.structs import replace

from barnabas_broker.storage.disk.files import FileSystem, OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.logs.log import Log, LogAppend
from barnabas_broker.storage.logs.log_loader import open_log
from barnabas_broker.storage.logs.log_syncs import LogEnvironment, LogPlace, WaitingLog
from barnabas_broker.storage.segments.indexes import IndexPages
from barnabas_broker.wire.framing import FileSlice
from barnabas_broker.wire.record_batch import BatchHeader, parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import START_MS
from harness.verified import verified

NOW_MS = START_MS
FLIGHTS = TopicPartition("flights", 0)


def batch(
    records: int = 1,
    *,
    value: bytes = b"value",
    timestamps: list[int] | None = None,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> memoryview:
    """A batch as a producer sends it: base offset 0. `timestamps` has one entry a record."""
    times = timestamps or [NOW_MS] * records
    data = encode_batch(
        [Record(number, time, None, value) for number, time in enumerate(times)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return memoryview(data)


def acknowledged_later(_: WaitingLog) -> None:
    """Do nothing, as `sync_due`: these tests do not wait for the sync of a log's first records."""


def append(log: Log, data: memoryview, *, leader_epoch: int | None = None, now_ms: int = NOW_MS) -> LogAppend:
    """Append a batch as the partition's leader does, by default in the epoch that the log is in.

    The coordinator has confirmed the transaction of a transactional batch.
    """
    epoch, header = max(log.epochs.latest_epoch, 0) if leader_epoch is None else leader_epoch, parse_header(data, 0)
    return log.append(data, header, epoch, now_ms, verified(log, header))


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Count the lines of Python that run, which do not depend on the machine."""
    count, before = [0], sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        count[0] += 1
        return trace

    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


def bytes_of(found: FileSlice | None) -> bytes:
    """Return the bytes of a slice."""
    return found.file.read_at(found.position, found.length) if found else b""


def headers_in(data: bytes) -> list[BatchHeader]:
    """Return the headers of the whole batches in `data`."""
    headers, position = [], 0
    while position + 61 <= len(data):
        header = parse_header(data, position)
        position += header.size_bytes
        if position <= len(data):
            headers.append(header)
    return headers


def read_all(log: Log) -> list[BatchHeader]:
    """Return the headers of all batches, as a consumer reads them."""
    headers: list[BatchHeader] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = headers_in(bytes_of(log.read(offset, 1 << 20, log.log_end_offset, at_least_one_batch=True)))
        headers += found
        offset = found[-1].last_offset + 1
    return headers


class DiesAtARename(PosixFileSystem):
    """The process dies at the rename that comes after `renames_left` others."""

    renames_left = 1000

    def rename(self, old: str, new: str) -> None:
        if self.renames_left == 0:
            raise KeyboardInterrupt
        self.renames_left -= 1
        super().rename(old, new)


@dataclass
class OneLog:
    """A log dir with one log, which a test opens, crashes and opens again."""

    path: Path
    config: LogConfig = field(default_factory=LogConfig)
    files: FileSystem = field(default_factory=PosixFileSystem)
    open_files_max: int = 100
    log_start_offset: int = 0
    index_pages: IndexPages = field(default_factory=IndexPages)

    def __post_init__(self) -> None:
        self.directory = self.path / str(FLIGHTS)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.environment = LogEnvironment(
            self.files, OpenFiles(self.open_files_max), Trash(), random.Random(0), index_pages=self.index_pages
        )

    def place(self, recovery_point: int | None, clean_shutdown_ns: int | None) -> LogPlace:
        return LogPlace(
            log_dir=str(self.path),
            directory=str(self.directory),
            topic_partition=FLIGHTS,
            config=self.config,
            log_start_offset=self.log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown_ns=clean_shutdown_ns,
        )

    def open(
        self,
        *,
        recovery_point: int | None = 0,
        clean: bool = False,
        on_recovered: Callable[[int], None] = lambda _: None,
    ) -> Log:
        """Open the log as after a crash, or after a clean shutdown if `clean`."""
        place = self.place(recovery_point, 2**62 if clean else None)
        return open_log(self.environment, place, NOW_MS, on_recovered)

    def with_config(self, **settings: int) -> "OneLog":
        self.config = replace(self.config, **settings)
        return self

    def file(self, offset: int, suffix: str) -> Path:
        return self.directory / f"{offset:020d}{suffix}"

"""A log manager with one compacted log, its cleaner with the helper's work done in this process, and a clock to set."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_broker.storage.disk.files import FileSystem, OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.helper import Request, Response
from barnabas_broker.storage.helper_worker import Worker
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_broker.wire.record_batch import BatchHeader, parse_header
from barnabas_broker.wire.records import Record, decode_batch, encode_batch
from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config
from barnabas_core.config.log_config import CleanupPolicy, LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.flushes import flush_below
from harness.manual_clock import START_MS, ManualClock
from harness.manual_timers import ManualTimers
from harness.verified import verified

NOW_MS = START_MS
PLANES = TopicPartition("planes", 0)
TOPIC_ID = UUID(int=7)
COMPACT = frozenset({CleanupPolicy.COMPACT})

Pair = tuple[bytes | None, bytes | None]


class HelperHere:
    """A helper in this process. `before` and `after` may look at a request, change the world, or raise."""

    def __init__(self, files: FileSystem) -> None:
        self.worker = Worker(files, lambda seconds: None)
        self.before: Callable[[Request], None] = lambda _: None
        self.after: Callable[[Request], None] = lambda _: None
        self.asked: list[tuple[Request, Response]] = []
        self.stopped = False

    async def request(self, request: Request) -> Response:
        self.before(request)
        answer = self.worker.answer(request)
        self.after(request)
        self.asked.append((request, answer))
        return answer

    async def stop(self) -> None:
        self.stopped = True


@dataclass
class OneCompactedLog:
    """A compacted log, which a test fills, compacts, crashes and opens again."""

    path: Path
    config: LogConfig = field(default_factory=lambda: LogConfig(cleanup_policies=COMPACT, min_cleanable_dirty_ratio=0))
    files: FileSystem = field(default_factory=PosixFileSystem)
    settings: BrokerConfig = field(default_factory=lambda: parse_broker_config({"node.id": "1"}))

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.storage_errors: list[StorageError] = []
        self.stable_offset: int | None = None
        self.open()

    def open(self) -> None:
        """Open the log as after a crash: everything that was only in memory is lost."""
        environment = LogEnvironment(self.files, OpenFiles(100), Trash(), random.Random(0))
        self.logs = LogManager(
            environment,
            self.clock,
            LogManagerSettings([str(self.path)]),
            BrokerIdentity("cluster", 1),
            lambda topic: self.config,
        )
        self.logs.load()
        if PLANES not in self.logs.logs:
            self.logs.create(PLANES, TOPIC_ID, self.config)
        self.helper = HelperHere(self.files)
        self.timers = ManualTimers(self.clock)
        helper: Any = self.helper
        self.cleaner = LogCleaner(
            self.logs,
            helper,
            self.timers,
            self.clock,
            lambda: self.settings,
            lambda tp: self.log.log_end_offset if self.stable_offset is None else self.stable_offset,
            lambda tp, error: self.storage_errors.append(error),
        )

    def crash(self) -> None:
        """End all writes, release the directory, and open the log again."""
        for log_dir in self.logs.log_dirs:
            log_dir.fail(StorageError(str(self.path), "crashed"))
        self.open()

    @property
    def log(self) -> Log:
        return self.logs.logs[PLANES]

    @property
    def directory(self) -> Path:
        return self.path / str(PLANES)

    def file(self, offset: int, suffix: str) -> Path:
        return self.directory / f"{offset:020d}{suffix}"

    def with_config(self, **settings: Any) -> "OneCompactedLog":
        self.config = replace(self.config, **settings)
        self.log.configure(self.config)
        return self

    def append(
        self,
        pairs: Sequence[Pair],
        *,
        codec: int = 0,
        timestamps: Sequence[int] | None = None,
        producer_id: int = -1,
        sequence: int = -1,
        attributes: int = 0,
        leader_epoch: int = 0,
    ) -> int:
        """Append one batch, and return its base offset."""
        times = timestamps or [self.clock.now_ms()] * len(pairs)
        records = [
            Record(number, time, key, value)
            for number, ((key, value), time) in enumerate(zip(pairs, times, strict=True))
        ]
        data = memoryview(
            encode_batch(
                records,
                attributes=codec | attributes,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence,
            )
        )
        header = parse_header(data, 0)
        verification = verified(self.log, header)
        return self.log.append(data, header, leader_epoch, self.clock.now_ms(), verification).base_offset

    def roll(self) -> None:
        """Roll the log, and sync the rolled segments, as a broker does each second."""
        self.log.roll(self.clock.now_ms())
        flush_below(self.log, self.log.segments.active.base_offset)

    def clean(self) -> bool:
        """Do one round if a log is due, after a sync of rolled segments, which a broker does each second."""
        for log in self.logs.logs.values():
            flush_below(log, log.segments.active.base_offset)
        return asyncio.run(self.cleaner.clean_dirtiest())

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        """Return all batches of the log with their records, as a consumer reads them."""
        found: list[tuple[BatchHeader, list[Record]]] = []
        log, offset = self.log, self.log.log_start_offset
        while offset < log.log_end_offset:
            part = log.read(offset, 1 << 20, log.log_end_offset, at_least_one_batch=True)
            if part is None:
                break
            data = part.file.read_at(part.position, part.length)
            position = 0
            while position + 61 <= len(data):
                header = parse_header(data, position)
                if position + header.size_bytes > len(data):
                    break
                found.append((header, decode_batch(data, position, header, 1 << 24)))
                position += header.size_bytes
                offset = header.last_offset + 1
        return found

    def records(self) -> dict[int, Pair]:
        """Return key and value by offset."""
        return {
            header.base_offset + record.offset_delta: (record.key, record.value)
            for header, records in self.batches()
            for record in records
        }

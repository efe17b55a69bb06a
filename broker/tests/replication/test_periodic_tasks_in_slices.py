"""Periodic work over all logs handles a few of them in each turn of the loop."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from one_replica import Broker, led

from barnabas_broker.app.log_tasks import LogTasks
from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_broker.storage.disk.checkpoints import encode_offsets
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.helper import Helper
from barnabas_broker.storage.log_dirs import log_dir
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.truncation import truncate_to
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import CleanupPolicy, LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock

LOGS = 40


def broker_with_logs(folder: Path) -> Broker:
    broker = Broker(folder, led(1, 1, 1))
    for number in range(LOGS):
        broker.logs.create(TopicPartition("many", number), UUID(int=9), LogConfig())
    return broker


def longest_turn(looked: Sequence[object], work: Callable[[], Awaitable[None]]) -> int:
    """Return the largest number of logs that were looked at in one turn."""
    seen = [0]

    async def beside() -> None:
        while True:
            seen.append(len(looked))
            await asyncio.sleep(0)

    async def run() -> None:
        others = asyncio.create_task(beside())
        await work()
        others.cancel()

    asyncio.run(run())
    return max(after - before for before, after in zip(seen, [*seen[1:], len(looked)], strict=True))


@pytest.mark.parametrize(
    ("periodic_task", "of_one_log"),
    [
        ("enforce_retention", "barnabas_broker.app.log_tasks.enforce_retention"),
        ("expire_producers", "barnabas_broker.storage.logs.log_history.LogProducers.expire"),
    ],
)
def test_a_periodic_task_over_all_logs_handles_a_few_of_them_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, periodic_task: str, of_one_log: str
) -> None:
    broker, clock, looked = broker_with_logs(tmp_path), ManualClock(), list[object]()

    def look(log: object, *_: object) -> None:
        looked.append(log)
        clock.pass_time(0.001)  # One log takes this long.

    monkeypatch.setattr(of_one_log, look)
    periodic_tasks = LogTasks(broker.logs, broker.replicas, clock, lambda _: None)
    assert longest_turn(looked, getattr(periodic_tasks, periodic_task)) <= 5
    assert len(looked) == LOGS + 1


def test_the_search_for_a_log_to_compact_handles_a_few_logs_in_each_turn(tmp_path: Path) -> None:
    broker, looked = broker_with_logs(tmp_path), list[TopicPartition]()
    for log in broker.logs.online_logs():
        log.configure(LogConfig(cleanup_policies=frozenset({CleanupPolicy.COMPACT})))

    def stable_offset(topic_partition: TopicPartition) -> int:
        looked.append(topic_partition)
        broker.clock.pass_time(0.001)
        return 0

    helper = Helper(broker.timers, lambda: 0)
    cleaner = LogCleaner(
        broker.logs, helper, broker.timers, broker.clock, lambda: broker.config, stable_offset, lambda *_: None
    )

    async def search() -> None:
        assert not await cleaner.clean_dirtiest()

    assert longest_turn(looked, search) <= 5
    assert len(looked) == LOGS + 1


def test_a_check_of_in_sync_replicas_handles_a_few_partitions_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, looked = Broker(tmp_path, led(1, 1, 1)), list[Partition]()
    broker.show(*[led(1, 1, 1)] * LOGS)
    while broker.timers.turn():
        pass

    def look(partition: Partition, _: int) -> None:
        looked.append(partition)
        broker.clock.pass_time(0.001)

    monkeypatch.setattr(Partition, "check_isr", look)
    broker.replicas.check_isr()
    turns = [0, len(looked)]
    while broker.timers.turn():
        turns.append(len(looked))
    assert max(after - before for before, after in pairwise(turns)) <= 5
    assert len(set(looked)) == len(looked) == LOGS


async def test_a_thread_encodes_the_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, threads = broker_with_logs(tmp_path), list[int]()

    def observed(offsets: Mapping[TopicPartition, int]) -> bytes:
        threads.append(threading.get_ident())
        return encode_offsets(offsets)

    monkeypatch.setattr(log_dir, "encode_offsets", observed)
    periodic_tasks = LogTasks(broker.logs, broker.replicas, ManualClock(), lambda _: None)
    await periodic_tasks.checkpoint(broker.logs.log_dirs[0])
    assert threads
    assert threading.get_ident() not in threads


async def test_only_logs_with_unsynced_data_or_flush_ms_are_looked_at_each_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, clock = broker_with_logs(tmp_path), ManualClock()
    broker.append(3)
    rolled = broker.partition.log
    rolled.roll(0)
    timed = broker.logs.logs[TopicPartition("many", 7)]
    timed.configure(LogConfig(flush_ms=1000))
    looked: list[Log] = []
    due_flush = Log.due_flush

    def look(log: Log, now_ms: int) -> object:
        looked.append(log)
        return due_flush(log, now_ms)

    monkeypatch.setattr(Log, "due_flush", look)
    periodic_tasks = LogTasks(broker.logs, broker.replicas, clock, lambda _: None)
    for _ in range(3):
        await periodic_tasks.flush(broker.logs.log_dirs[0])
    assert rolled.syncs.recovery_point == 3
    assert looked.count(rolled) == 2
    assert looked.count(timed) == 3
    assert len(looked) == 5


async def test_a_log_is_not_flushed_after_its_log_dir_failed_and_returned_during_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write its index entries and epochs into the files of the log that was loaded again."""
    broker = broker_with_logs(tmp_path)
    for number in (0, 1):
        broker.logs.logs[TopicPartition("many", number)].configure(LogConfig(flush_ms=1000))
    begun = set(broker.logs.unflushed_logs())
    flushed: list[Log] = []

    def flush(log: Log, _: int) -> None:
        flushed.append(log)
        for each in broker.logs.log_dirs:
            broker.logs.fail_dir(LogDirFailed(each.path, "its disk is away for a moment"))
        assert broker.logs.probe(broker.logs.log_dirs)

    monkeypatch.setattr(Log, "due_flush", flush)
    periodic_tasks = LogTasks(broker.logs, broker.replicas, ManualClock(), lambda _: None)
    await periodic_tasks.flush(broker.logs.log_dirs[0])
    assert len(begun) > 1
    assert len(flushed) == 1


async def test_the_topic_ids_of_new_logs_are_synced_once_each_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, synced, threads = broker_with_logs(tmp_path), list[str](), set[int]()

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        threads.add(threading.get_ident())

    monkeypatch.setattr(os, "fdatasync", note)
    monkeypatch.setattr(os, "fsync", note)
    periodic_tasks = LogTasks(broker.logs, broker.replicas, ManualClock(), lambda _: None)
    for each in broker.logs.log_dirs * 2:
        await periodic_tasks.sync_topic_ids(each)
    directories = [log.directory for log in broker.logs.online_logs()]
    assert sorted(synced) == sorted([*directories, *(f"{each}/partition.metadata" for each in directories)])
    assert threading.get_ident() not in threads


async def test_logs_truncated_in_one_turn_share_one_checkpoint_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, threads = broker_with_logs(tmp_path), list[int]()
    logs = [log for key, log in broker.logs.logs.items() if key.topic == "many"]
    for log in logs:
        for _ in range(3):
            batch = encode_batch([Record(0, 0, None, b"value")])
            log.append(memoryview(batch), parse_header(batch, 0), 0, 0)
        log.flush()
    checkpoint = LogDir.rewrite_checkpoints

    def observed(each: LogDir) -> None:
        threads.append(threading.get_ident())
        checkpoint(each)

    monkeypatch.setattr(LogDir, "rewrite_checkpoints", observed)
    tasks: list[asyncio.Task[object]] = []
    LogTasks(broker.logs, broker.replicas, ManualClock(), lambda work: tasks.append(asyncio.ensure_future(work)))
    for log in logs:
        truncate_to(log, 1)
    assert all(log.known_producers.are_held_back for log in logs)
    await asyncio.gather(*tasks)
    assert not any(log.known_producers.are_held_back for log in logs)
    dirs = {log.log_dir for log in logs}
    assert len(threads) == len(dirs)
    assert threading.get_ident() not in threads

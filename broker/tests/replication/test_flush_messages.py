"""`flush.messages` syncs in a thread: the loop is not blocked, and only acknowledgements wait for the disk."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from threading import Semaphore, current_thread, main_thread

import pytest
from fetch_world import LATENCY_S, World, WorldBroker
from msgspec.structs import replace
from one_replica import FLIGHTS, HERE, Broker, led

from barnabas_broker.app.log_tasks import LogTasks
from barnabas_broker.replication.partition import LOST_LEADERSHIP, Partition
from barnabas_broker.replication.replica_states import ReplicaState
from barnabas_broker.storage.disk.files import PosixFile
from barnabas_broker.storage.errors import SyncFailed
from barnabas_broker.storage.logs.log_syncs import WaitingLog
from barnabas_broker.storage.logs.truncation import truncate_to
from barnabas_core.errors import ApiError, ErrorCode
from harness.manual_clock import ManualClock

PATIENCE_S = 20.0
ROUND_S = 3 * LATENCY_S


class Disk:
    """A disk whose syncs wait until the test releases them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let_go = Semaphore(0)
        self.begun = 0
        self.error: OSError | None = None
        monkeypatch.setattr(PosixFile, "sync", lambda _: self._sync())

    def _sync(self) -> None:
        assert current_thread() is not main_thread(), "the loop is blocked by a sync"
        self.begun += 1
        assert self.let_go.acquire(timeout=PATIENCE_S)
        if self.error:
            raise self.error

    def work_on(self) -> None:
        self.let_go.release(1000)

    def stand_still(self) -> None:
        self.let_go, self.begun = Semaphore(0), 0


class Syncing:
    """A broker that leads one partition alone, with `flush.messages`, on a loop."""

    def __init__(self, path: Path, flush_messages: int) -> None:
        self.broker = Broker(path, led(HERE, 1, HERE, replicas=1))
        self.tasks: list[asyncio.Task[object]] = []
        self.periodic_tasks = LogTasks(self.broker.logs, self.broker.replicas, ManualClock(), self._spawn)
        self.partition.configure(replace(self.partition.log.config, flush_messages=flush_messages))
        self.answers: list[ApiError | None] = []

    def _spawn(self, work: Coroutine[object, object, object]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    @property
    def partition(self) -> Partition:
        return self.broker.partition

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.broker.timers.pass_time(0)
                await asyncio.sleep(0.001)


async def test_a_sync_does_not_block_the_loop_and_appends_are_acknowledged_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, disk = Syncing(tmp_path, flush_messages=2), Disk(monkeypatch)
    partition = one.partition
    one.broker.append(1)
    disk.work_on()
    await one.until(lambda: partition.log.high_watermark == partition.log.syncs.recovery_point == 1)
    disk.stand_still()
    one.broker.append(1)
    assert partition.log.high_watermark == partition.log.syncs.ack_end_offset(partition.log.log_end_offset) == 2
    one.broker.append(1)
    partition.waits.wait(3, one.answers.append, partition.log.high_watermark)
    partition.waits.wait(3, one.answers.append, partition.log.high_watermark, all_replicas=False)
    await one.until(lambda: disk.begun == 1)
    one.broker.append(3)
    assert partition.log.high_watermark == partition.log.syncs.ack_end_offset(partition.log.log_end_offset) == 2
    assert partition.read(2, 1000, partition.log.high_watermark, at_least_one_batch=True) is None
    assert one.answers == []
    disk.work_on()
    await one.until(lambda: len(one.answers) == 2 and partition.log.high_watermark == 6)
    assert one.answers == [None, None]
    assert partition.log.syncs.recovery_point >= 5
    await asyncio.gather(*one.tasks)


async def test_records_appended_during_a_sync_share_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, disk = Syncing(tmp_path, flush_messages=1), Disk(monkeypatch)
    one.broker.append(1)
    await one.until(lambda: disk.begun == 1)
    one.broker.append(100)
    assert len(one.tasks) == 1
    disk.work_on()
    await one.until(lambda: one.partition.log.high_watermark == 101)
    assert disk.begun < 20
    await asyncio.gather(*one.tasks)


async def test_a_failed_sync_takes_the_partition_offline_and_fails_waiting_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, disk = Syncing(tmp_path, flush_messages=1), Disk(monkeypatch)
    disk.error = SyncFailed(OSError(5, "Input/output error"))
    one.broker.append(1)
    one.partition.waits.wait(1, one.answers.append, one.partition.log.high_watermark, all_replicas=False)
    disk.work_on()
    await one.until(lambda: len(one.answers) == 1)
    assert one.answers[0] is not None
    assert one.answers[0].code is ErrorCode.KAFKA_STORAGE_ERROR
    assert one.broker.replicas.states.hosted(FLIGHTS).state is ReplicaState.OFFLINE
    assert one.partition.log.high_watermark == 0
    await asyncio.gather(*one.tasks)


async def test_records_that_a_full_disk_could_not_sync_are_synced_once_it_has_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that waits for its sync fetches nothing, so no later append would begin another one."""
    one, disk = Syncing(tmp_path, flush_messages=1), Disk(monkeypatch)
    disk.error = OSError(28, "No space left on device")
    one.broker.append(1)
    one.partition.waits.wait(1, one.answers.append, one.partition.log.high_watermark, all_replicas=False)
    disk.work_on()
    await asyncio.gather(*one.tasks)
    await one.periodic_tasks.flush(one.broker.logs.log_dirs[0])
    await asyncio.gather(*one.tasks)
    assert one.answers == []
    disk.error = None
    await one.periodic_tasks.flush(one.broker.logs.log_dirs[0])
    await one.until(lambda: one.answers == [None])
    assert one.partition.log.high_watermark == 1
    await asyncio.gather(*one.tasks)
    tasks = len(one.tasks)
    await one.periodic_tasks.flush(one.broker.logs.log_dirs[0])
    assert len(one.tasks) == tasks


async def test_an_append_that_waits_for_a_sync_fails_when_the_leader_resigns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, disk = Syncing(tmp_path, flush_messages=1), Disk(monkeypatch)
    one.broker.append(1)
    one.partition.waits.wait(1, one.answers.append, one.partition.log.high_watermark, all_replicas=False)
    one.partition.resign()
    await one.until(lambda: one.answers == [LOST_LEADERSHIP])
    disk.work_on()
    await asyncio.gather(*one.tasks)
    assert one.answers == [LOST_LEADERSHIP]


async def test_a_truncation_during_a_sync_leaves_nothing_that_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, disk = Syncing(tmp_path, flush_messages=1), Disk(monkeypatch)
    one.broker.append(3)
    await one.until(lambda: disk.begun == 1)
    log = one.partition.log
    truncate_to(log, 1)
    assert log.syncs.ack_end_offset(log.log_end_offset) <= 1
    disk.work_on()
    await one.until(lambda: log.syncs.unsynced_from is None and not log.known_producers.are_held_back)
    assert (log.log_end_offset, log.syncs.recovery_point) == (1, 1)
    await asyncio.gather(*one.tasks)


def awaiting(broker: WorldBroker) -> list[WaitingLog]:
    """Return a list to which this broker adds the logs that the test has to sync."""
    due: list[WaitingLog] = []
    broker.environment = replace(broker.environment, sync_due=due.append)
    return due


def test_a_follower_does_not_fetch_again_before_its_log_is_synced(tmp_path: Path) -> None:
    """A fetch confirms to the leader that all earlier records are on the follower's disk."""
    world = World(tmp_path)
    due = awaiting(world.brokers[2])
    world.log_config = replace(world.log_config, flush_messages=1)
    world.lead(0, 1)
    world.timers.pass_time(1)
    world.append(0)
    world.timers.pass_time(20)
    assert world.ends(2) == {0: 1}
    assert world.brokers[1].partitions[0].log.high_watermark == 0
    for link in list(world.links):
        link.break_("made anew, which names all that is fetched")
    world.timers.pass_time(5)
    assert world.brokers[1].partitions[0].log.high_watermark == 0
    assert len(due) == 1
    due[0].flush()
    world.brokers[2].fetchers.go_on(world.brokers[2].partitions[0])
    world.timers.pass_time(ROUND_S)
    assert world.brokers[1].partitions[0].log.high_watermark == 1
    world.brokers[2].fetchers.close()
    world.brokers[2].fetchers.go_on(world.brokers[2].partitions[0])
    assert not world.links

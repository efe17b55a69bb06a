"""A log dir whose disk hangs delays its own partitions, and no others."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from msgspec.structs import replace
from one_replica import FLIGHTS, HERE, NOW_MS, Broker, led

from barnabas_broker.app.log_tasks import LogTasks
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.record_log import RecordLog
from barnabas_broker.storage.disk.files import PosixFile
from barnabas_broker.storage.logs.offset_lookup import offset_for_timestamp
from barnabas_broker.wire.record_batch import Codec, parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.loop_turns import FairTurn

PATIENCE_S = 30.0
SHARED_THREADS = 2
PARTITIONS = 8


class HangingDisk:
    """A disk whose syncs below `path` do not return before `answers` is set."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = Event()
        self.hanging = 0
        sync = PosixFile.sync

        def synced(file: PosixFile) -> None:
            if os.readlink(f"/proc/self/fd/{file.fileno()}").startswith(f"{path}/"):
                self.hanging += 1
                assert self.answers.wait(PATIENCE_S)
            sync(file)

        monkeypatch.setattr(PosixFile, "sync", synced)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    state = led(HERE, 1, HERE, replicas=1)
    made = Broker(tmp_path, state)
    made.show(state, *[state] * (PARTITIONS - 1))
    return made


def partitions_in(broker: Broker, log_dir: Path) -> list[Partition]:
    found = [broker.replicas.lookup.find(FLIGHTS.topic, None, number) for number in range(PARTITIONS)]
    return [each for each in found if each.log.log_dir == str(log_dir)]


async def until(broker: Broker, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            broker.timers.pass_time(0)
            await asyncio.sleep(0.001)


async def read_all(log: RecordLog, partition: int) -> int:
    """Read the log as a coordinator loads its groups, and return the number of keys."""
    ready, keys = asyncio.Event(), 0
    for some in log.read(partition, ready.set):
        if some is None:
            async with asyncio.timeout(PATIENCE_S):
                await ready.wait()
            ready.clear()
        else:
            keys += len(some)
    return keys


async def test_hanging_syncs_do_not_delay_other_log_dirs(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, healthy = partitions_in(broker, tmp_path / "logs"), partitions_in(broker, tmp_path / "more")
    assert min(len(hanging), len(healthy)) > SHARED_THREADS
    disk, tasks = HangingDisk(tmp_path / "logs", monkeypatch), list[asyncio.Task[object]]()

    def spawn(work: Coroutine[object, object, object]) -> None:
        tasks.append(asyncio.ensure_future(work))

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(SHARED_THREADS))
    periodic_tasks = LogTasks(broker.logs, broker.replicas, broker.clock, spawn)
    for each in (*hanging, *healthy):
        each.configure(replace(each.log.config, flush_messages=1))
    for each in hanging:
        broker.append(1, each)
    await until(broker, lambda: disk.hanging > SHARED_THREADS)
    one = healthy[0]
    data = encode_batch([Record(0, NOW_MS, b"key", b"value")], attributes=Codec.GZIP)
    one.append_as_leader(memoryview(data), parse_header(data, 0), NOW_MS)
    await until(broker, lambda: one.log.high_watermark == 1)
    found = await offset_for_timestamp(one.log, NOW_MS, 1, FairTurn(broker.clock))
    assert found is not None
    records = RecordLog(FLIGHTS.topic, broker.replicas, broker.clock, Codec.NONE, 1 << 20)
    assert await read_all(records, one.topic_partition.partition) == 1
    async with asyncio.timeout(PATIENCE_S):
        await periodic_tasks.checkpoint(broker.logs.log_dirs[1])
    assert [each.log.high_watermark for each in hanging] == [0] * len(hanging)
    disk.answers.set()
    await until(broker, lambda: all(each.log.high_watermark == 1 for each in hanging))
    await asyncio.gather(*tasks)

"""A disk refuses one step of a broker's background work once: the step is done later, and nothing waits for ever."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from one_replica import FLIGHTS, HERE, NOW_MS, OTHER, Broker, led

from barnabas_broker.app.log_tasks import LogTasks
from barnabas_broker.metadata.documents import tombstone_key
from barnabas_broker.metadata.model import TombstoneDocument
from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.errors import DiskFull
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_history import ProducerReplay
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch

ERRORS = [errno.ENOSPC, errno.EIO]


def refuse_a_rename(monkeypatch: pytest.MonkeyPatch, code: int, to: str, *, passing: int = 0) -> list[str]:
    """Let a rename to a path that ends in `to` fail, after `passing` others; its path is then in the returned list."""
    rename, refused, passed = PosixFileSystem.rename, list[str](), list[str]()

    def checked(self: PosixFileSystem, old: str, new: str) -> None:
        if new.endswith(to) and not refused:
            (refused if len(passed) == passing else passed).append(new)
            if refused:
                raise OSError(code, os.strerror(code))
        rename(self, old, new)

    monkeypatch.setattr(PosixFileSystem, "rename", checked)
    return refused


async def check_disks(broker: Broker) -> None:
    await LogTasks(broker.logs, broker.replicas, broker.clock, lambda _: None).check_disks()


@pytest.mark.parametrize("is_stray", [False, True])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
async def test_a_deleted_topic_is_removed_later_if_its_directory_cannot_be_renamed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_stray: bool
) -> None:
    broker = Broker(tmp_path, led(HERE, 5, HERE))
    broker.append(3)
    topic_id = broker.partition.topic_id
    if is_stray:
        broker.start_anew()
        broker.logs.set_aside(FLIGHTS, "it is in the way")
    refused = refuse_a_rename(monkeypatch, code, "-delete")
    broker.show_only((tombstone_key(topic_id), TombstoneDocument(FLIGHTS.topic, topic_id, NOW_MS, 1)))
    names = [[path.name.rpartition("-")[2] for path in broker.folder.glob("flights-*")]]
    for _ in range(2):
        await check_disks(broker)
        names.append([path.name.rpartition("-")[2] for path in broker.folder.glob("flights-*")])
    assert refused
    assert names == [["stray" if is_stray else "0"], ["delete"], ["delete"]]


def test_an_interrupted_truncation_lowers_the_high_watermark_to_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path, led(HERE, 5, HERE))
    for _ in range(3):
        broker.append(1)
        broker.partition.log.roll(0)
    assert broker.partition.log.high_watermark == 3
    broker.show(led(OTHER, 6, OTHER))
    refused = refuse_a_rename(monkeypatch, errno.ENOSPC, ".log.deleted", passing=2)
    with pytest.raises(DiskFull):
        broker.partition.follower.diverged(5, 0)
    assert refused
    assert broker.partition.log.high_watermark == broker.partition.log.log_end_offset == 2


async def test_a_log_whose_producers_could_not_be_loaded_on_a_full_disk_loads_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path, led(HERE, 5, HERE))
    for sequence in range(7):
        data = encode_batch([Record(0, NOW_MS, None, b"x")], producer_id=8, producer_epoch=0, base_sequence=sequence)
        broker.partition.append_as_leader(memoryview(data), parse_header(data, 0), NOW_MS)
    log = broker.partition.log
    log.flush()
    fails, replay, fails_left = [DiskFull(log.log_dir, "no space left")] * 2, Log.producer_replay, list[int]()

    def replay_or_fail(self: Log) -> ProducerReplay:
        if fails:
            raise fails.pop()
        return replay(self)

    monkeypatch.setattr(Log, "producer_replay", replay_or_fail)
    broker.show(led(OTHER, 6, OTHER))
    tasks: list[asyncio.Future[object]] = []
    periodic_tasks = LogTasks(
        broker.logs, broker.replicas, broker.clock, lambda w: tasks.append(asyncio.ensure_future(w))
    )
    broker.partition.follower.diverged(5, 1)
    await asyncio.gather(*tasks)
    fails_left.append(len(fails))
    for _ in range(2):
        await periodic_tasks.flush(broker.logs.log_dirs[0])
        await asyncio.gather(*tasks)
    assert fails_left == [1]  # A full disk is not asked again at once.
    assert not log.known_producers.are_held_back
    assert log.producers.last_offsets() == {8: 0}

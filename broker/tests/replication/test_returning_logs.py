"""F22, F35: a log that comes back from a disk that failed may lack what its replica had acknowledged."""

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path
from shutil import rmtree
from uuid import UUID

import pytest
from one_replica import AWAY, FLIGHTS, HERE, OTHER, Broker, led

from barnabas_broker.app.log_tasks import LogTasks
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TombstoneDocument
from barnabas_broker.replication.fetch_session import UNLIMITED, LogMover, Throttle
from barnabas_broker.replication.other_brokers import OfflineReports
from barnabas_broker.replication.stray_log_policy import StrayLogPolicy
from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.errors import CorruptLog, LogDirFailed
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition


async def test_the_high_watermark_checkpoint_keeps_partitions_that_wait_for_the_metadata(
    tmp_path: Path,
) -> None:
    """After a crash the high watermark would otherwise be 0, and a truncation would drop a whole compacted log."""
    broker = Broker(tmp_path, led(HERE, 5, HERE))
    broker.append(3)
    periodic_tasks = LogTasks(broker.logs, broker.replicas, broker.clock, lambda work: work.close())
    await periodic_tasks.checkpoint(broker.logs.log_dirs[0])
    broker.lose_disk()
    broker.find_disk()
    assert broker.error_of_read() is ErrorCode.KAFKA_STORAGE_ERROR
    await periodic_tasks.checkpoint(broker.logs.log_dirs[0])
    assert broker.logs.log_dirs[0].checkpointed(checkpoints.HIGH_WATERMARKS, FLIGHTS) == 3


def test_a_late_error_of_an_earlier_failure_leaves_a_returned_log_dir_online(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 5, HERE))
    broker.append(3)
    broker.lose_disk()
    with pytest.raises(LogDirFailed) as refused:
        broker.logs.log_dirs[0].rewrite_checkpoints()
    broker.find_disk()
    broker.replicas.failures.log_dir_failed(refused.value)
    assert broker.logs.log_dirs[0].is_online


def test_a_partition_is_created_when_a_log_dir_returns_after_all_had_failed(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(OTHER, 4, OTHER, AWAY))
    for log_dir in broker.logs.log_dirs:
        broker.replicas.failures.log_dir_failed(LogDirFailed(log_dir.path, "the disk failed"))
    more = PartitionState((OTHER, HERE), OTHER, 0, (OTHER, HERE))
    broker.show(broker.state, more)
    assert broker.offline_reports[-1] == {TopicPartition(FLIGHTS.topic, 1): -1}
    assert len(broker.replicas.offline()) == 2
    broker.logs.probe(broker.logs.log_dirs)
    broker.replicas.bring_back()
    assert broker.replicas.offline() == [FLIGHTS]


def test_deleting_a_topic_does_not_remove_the_log_of_an_earlier_topic(tmp_path: Path) -> None:
    """The earlier log came back with its disk while the later topic's disk was offline, and has no tombstone."""
    broker, later_id = Broker(tmp_path, led(HERE, 4, HERE, replicas=1)), UUID(int=8)
    broker.append(3)
    earlier = broker.logs.get(FLIGHTS)
    broker.image.tombstones[later_id] = TombstoneDocument(FLIGHTS.topic, later_id, 0)
    StrayLogPolicy(HERE, broker.logs, broker.image).remove(FLIGHTS, later_id)
    assert earlier is not None
    assert broker.logs.get(FLIGHTS) is earlier


def test_a_replica_stays_online_if_the_disk_it_moves_to_fails(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(OTHER, 4, HERE, OTHER))
    broker.replicas.failures.storage_failed(broker.partition, LogDirFailed("/elsewhere", "the disk failed"))
    assert broker.partition.failure is None
    assert broker.offline_reports == []


def test_a_replica_that_waits_for_the_metadata_is_not_moved_and_comes_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE, OTHER))
    mover = LogMover(
        broker.logs, broker.replicas, Throttle(broker.clock, lambda: UNLIMITED), lambda _: None, asyncio.sleep
    )
    broker.lose_disk()
    broker.find_disk()
    with pytest.raises(ApiError, match="the disk failed") as refused:
        mover.move(FLIGHTS, str(tmp_path / "more"))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    broker.show(led(OTHER, 5, OTHER))
    assert broker.partition.failure is None
    assert broker.fetching.followed == {FLIGHTS}


def test_a_damaged_log_is_offline_and_its_log_dir_stays_online(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE, OTHER))
    broker.replicas.failures.log_failed(FLIGHTS, CorruptLog(str(broker.folder), "damaged"))
    broker.show(led(OTHER, 5, OTHER))
    broker.replicas.bring_back()
    assert broker.partition.failure is not None
    assert broker.logs.log_dirs[0].is_online


@pytest.mark.parametrize("fails", [False, True])
async def test_offline_reports_proposed_during_a_write_are_batched_into_the_next(fails: bool) -> None:
    written: list[Mapping[TopicPartition, int]] = []
    answered = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def resign(failed_epochs: Mapping[TopicPartition, int]) -> None:
        written.append(failed_epochs)
        await answered.wait()
        if fails:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the store is away")

    def spawn(work: Awaitable[None]) -> None:
        tasks.append(asyncio.ensure_future(work))

    offline_reports = OfflineReports(resign, spawn)
    offline_reports.propose({TopicPartition("t", 0): 1})
    await asyncio.sleep(0)
    offline_reports.propose({TopicPartition("t", 1): 2})
    offline_reports.propose({TopicPartition("t", 0): 3})
    answered.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    later = {TopicPartition("t", 0): 3, TopicPartition("t", 1): 2}
    assert written == ([{TopicPartition("t", 0): 1}] if fails else [{TopicPartition("t", 0): 1}, later])
    offline_reports.propose({TopicPartition("t", 2): 4})
    await asyncio.gather(*tasks, return_exceptions=True)
    assert written[-1][TopicPartition("t", 2)] == 4


async def test_a_stalled_broker_completes_a_move_as_a_whole(tmp_path: Path) -> None:
    moves: list[Awaitable[None]] = []
    broker = Broker(tmp_path, led(HERE, 4, HERE, replicas=1))
    broker.append(3)
    partition = broker.partition
    mover = LogMover(
        broker.logs, broker.replicas, Throttle(broker.clock, lambda: UNLIMITED), moves.append, asyncio.sleep
    )
    mover.move(FLIGHTS, str(tmp_path / "more"))
    broker.is_awake = False
    await moves[0]
    assert partition.log is broker.logs.get(FLIGHTS)
    assert (partition.log.log_dir, partition.log.log_end_offset) == (str(tmp_path / "more"), 3)


@pytest.mark.parametrize(("machine_ran_on", "was_cut_before"), [(False, False), (True, True), (True, False)])
def test_a_replica_whose_log_dir_appears_late_after_a_power_cut_leads_once_the_loss_is_accepted(
    tmp_path: Path, machine_ran_on: bool, was_cut_before: bool
) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE, replicas=1))
    broker.append(3)
    broker.stop()
    here, cut_dirs = tmp_path / "logs", [broker.logs.log_dirs[0].directory_id] * was_cut_before
    (here / ".kafka_cleanshutdown").unlink()
    here.rename(tmp_path / "away")
    here.write_text("no directory: its disk did not come up", encoding="utf-8")
    broker = Broker(tmp_path, led(HERE, 4, HERE, replicas=1), machine_ran_on=machine_ran_on, cut_dirs=cut_dirs)
    assert broker.error_of_find() is ErrorCode.KAFKA_STORAGE_ERROR
    here.unlink()
    (tmp_path / "away").rename(here)
    broker.find_disk()
    if was_cut_before or not machine_ran_on:
        assert broker.error_of_find() is ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.losses == [{FLIGHTS: 4}]
        lost = PartitionState((HERE,), NO_LEADER, 5, (), partition_epoch=5, last_known_leader=HERE, lacking=(HERE,))
        broker.show(lost)
        broker.replicas.bring_back()
        assert broker.error_of_read() is ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.show(led(HERE, 6, HERE, replicas=1))
    assert (broker.error_of_read(), broker.partition.log.log_end_offset) == (None, 3)


def test_a_leader_whose_disk_returns_without_its_log_reports_the_loss_and_follows_the_next(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE))
    broker.append(3)
    broker.lose_disk()
    rmtree(broker.folder / str(FLIGHTS))
    broker.find_disk()
    broker.show(led(HERE, 5, HERE))
    assert broker.losses == [{FLIGHTS: 5}]
    broker.show(led(OTHER, 6, OTHER))
    assert broker.partition.failure is None
    assert broker.fetching.followed == {FLIGHTS}


def test_a_replica_without_its_log_leads_once_the_loss_is_accepted(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE, replicas=1))
    broker.append(3)
    broker.lose_disk()
    rmtree(broker.folder / str(FLIGHTS))
    broker.find_disk()
    broker.show(led(HERE, 5, HERE, replicas=1))
    broker.show(PartitionState((HERE,), NO_LEADER, 6, (), partition_epoch=6, last_known_leader=HERE, lacking=(HERE,)))
    broker.replicas.bring_back()
    broker.show(led(HERE, 7, HERE, replicas=1))
    assert broker.losses == [{FLIGHTS: 5}]
    assert (broker.error_of_read(), broker.partition.log.log_end_offset) == (None, 0)

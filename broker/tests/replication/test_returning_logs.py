"""F22, F35: a log that comes back from a disk that failed may lack what its replica had acknowledged."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from uuid import UUID

import pytest

from barnabas_broker.metadata.documents import encode, topic_key
from barnabas_broker.metadata.image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.metadata.store import Document, Listing
from barnabas_broker.replication.log_mover import LogMover
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.purgatory import Purgatory
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.replication.resignations import Resignations
from barnabas_broker.replication.surroundings import Surroundings
from barnabas_broker.replication.throttle import UNLIMITED, Throttle
from barnabas_broker.storage.errors import CorruptLog, LogDirFailed
from barnabas_broker.storage.files import PosixFileSystem
from barnabas_broker.storage.log_dir import BrokerIdentity
from barnabas_broker.storage.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.open_files import OpenFiles
from barnabas_broker.storage.segment import LogEnvironment
from barnabas_broker.storage.trash import Trash
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.clock import Cancellable
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

NOW_MS = 1_700_000_000_000
HERE, OTHER, AWAY = 1, 2, 3
FLIGHTS = TopicPartition("flights", 0)


class StandingTime:
    """What is to be called later never is."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_s(self) -> float:
        return 0.0

    def call_soon(self, callback: Callable[[], object]) -> Cancellable:
        return self

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Cancellable:
        return self

    def cancel(self) -> None:
        """It does not come."""


class Fetching:
    """Takes note of what is followed."""

    def __init__(self) -> None:
        self.followed: set[TopicPartition] = set()

    def follow(self, partition: Partition) -> None:
        self.followed.add(partition.topic_partition)

    def unfollow(self, partition: Partition) -> None:
        self.followed.discard(partition.topic_partition)


class Broker:
    """Broker 1 with a replica of one partition; the test is the metadata."""

    def __init__(self, folder: Path, state: PartitionState) -> None:
        self.folder = folder / "logs"
        self.time = StandingTime()
        self.fetching = Fetching()
        self.is_awake = True
        self.resignations: list[Mapping[TopicPartition, int]] = []
        self.image = MetadataImage()
        self._version = 0
        self.show(state)
        environment = LogEnvironment(PosixFileSystem(), OpenFiles(100), Trash(), random.Random(0))
        settings = LogManagerSettings([str(self.folder), str(folder / "more")])
        self.logs = LogManager(environment, self.time, settings, BrokerIdentity("c", HERE), lambda _: LogConfig())
        self.logs.load()
        config = parse_broker_config({"node.id": str(HERE), "log.dirs": f"{self.folder},{folder / 'more'}"})
        surroundings = Surroundings(
            self.time,
            self.time,
            Purgatory(self.time),
            self.fetching,
            lambda _: None,
            self.resignations.append,
            lambda: self.is_awake,
        )
        self.replicas = ReplicaManager(HERE, config, self.logs, self.image, surroundings)
        self.replicas.start()

    def show(self, state: PartitionState, *more: PartitionState) -> None:
        self._version += 1
        self.state = state
        document = TopicDocument(FLIGHTS.topic, UUID(int=7), (state, *more), {"min.insync.replicas": "1"})
        key = topic_key(FLIGHTS.topic)
        self.image.apply_listing(Listing(self._version, [Document(key, encode(document), self._version)]))

    @property
    def partition(self) -> Partition:
        return self.replicas.find(FLIGHTS.topic, None, 0)

    def append(self, count: int) -> None:
        for _ in range(count):
            batch = encode_batch([Record(0, NOW_MS, None, b"value")])
            self.partition.append_as_leader(memoryview(batch), parse_header(batch, 0), NOW_MS)

    def lose_disk(self) -> None:
        self.replicas.log_failed(FLIGHTS, LogDirFailed(str(self.folder), "the disk failed"))

    def find_disk(self, *, cut_to_bytes: int | None = None) -> None:
        """It works again, perhaps without the last records; the chore looks at it."""
        if cut_to_bytes is not None:
            segment = next(self.folder.glob(f"{FLIGHTS}/*.log"))
            segment.write_bytes(segment.read_bytes()[:cut_to_bytes])
        if self.logs.probe_failed_dirs():
            self.replicas.delete_unassigned()
        self.replicas.bring_back()

    def error_of_read(self) -> ErrorCode | None:
        try:
            self.partition.check_readable(-1)
        except ApiError as error:
            return error.code
        return None


def led(
    leader: int, epoch: int, *isr: int, partition_epoch: int = 0, elr: tuple[int, ...] = (), replicas: int = 3
) -> PartitionState:
    return PartitionState(
        tuple(range(1, replicas + 1)), leader, epoch, isr, elr=elr, partition_epoch=partition_epoch or epoch
    )


def test_a_leader_whose_disk_lost_records_does_not_lead_in_the_epoch_in_which_it_acknowledged_them(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE, replicas=1))
    broker.append(5)
    size_bytes = broker.partition.log.size_bytes
    assert broker.partition.high_watermark == 5
    broker.lose_disk()
    assert broker.resignations == [{FLIGHTS: 4}]
    broker.find_disk(cut_to_bytes=3 * size_bytes // 5)
    assert broker.error_of_read() is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.partition.high_watermark == 5
    broker.show(led(HERE, 5, HERE, replicas=1))
    assert broker.error_of_read() is None
    assert (broker.partition.log.log_end_offset, broker.partition.high_watermark) == (3, 3)
    leadership = broker.partition.leadership
    assert leadership is not None
    assert leadership.epoch_start_offset == 3
    broker.append(1)
    assert broker.partition.end_offset_for_epoch(4) == (4, 3)


def test_a_follower_whose_disk_failed_fetches_again_only_when_it_is_out_of_the_isr(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(OTHER, 4, HERE, OTHER))
    assert broker.fetching.followed == {FLIGHTS}
    broker.lose_disk()
    assert broker.resignations == [{FLIGHTS: 4}]
    assert broker.fetching.followed == set()
    broker.find_disk()
    broker.show(led(OTHER, 4, OTHER, partition_epoch=5))  # What it fetched before may still be heard in this epoch.
    assert broker.fetching.followed == set()
    broker.show(led(OTHER, 5, OTHER, partition_epoch=6))
    assert broker.fetching.followed == {FLIGHTS}
    assert broker.partition.failure is None


def test_what_the_metadata_has_not_heard_is_said_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE, OTHER))
    broker.lose_disk()
    broker.replicas.bring_back()
    broker.replicas.bring_back()
    assert broker.resignations == [{FLIGHTS: 4}] * 3
    broker.show(led(OTHER, 5, OTHER))
    broker.replicas.bring_back()
    assert len(broker.resignations) == 3


def test_who_is_elected_while_its_disk_is_away_gives_up_where_others_have_all(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(OTHER, 4, HERE, OTHER, AWAY))
    broker.lose_disk()
    broker.show(led(HERE, 5, HERE, AWAY))
    assert broker.resignations == [{FLIGHTS: 4}] * 2
    broker.show(led(HERE, 6, HERE))
    assert len(broker.resignations) == 2
    broker.find_disk()
    assert broker.error_of_read() is None


def test_who_has_no_leader_waits_with_its_log_online(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE, elr=(AWAY,)))
    broker.lose_disk()
    broker.show(led(NO_LEADER, 5, elr=(AWAY,)))
    broker.find_disk()
    assert broker.error_of_read() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.show(led(HERE, 6, HERE))
    assert broker.error_of_read() is None


def test_a_disk_that_fails_again_takes_its_replicas_out_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE, replicas=1))
    broker.lose_disk()
    broker.show(led(HERE, 5, HERE, replicas=1))
    broker.find_disk()
    broker.lose_disk()
    assert broker.resignations == [{FLIGHTS: 4}, {FLIGHTS: 5}]


def test_a_partition_that_no_directory_can_take_is_made_when_one_is_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(OTHER, 4, OTHER, AWAY))
    for log_dir in broker.logs.log_dirs:
        broker.replicas.log_dir_failed(LogDirFailed(log_dir.path, "the disk failed"))
    more = PartitionState((OTHER, HERE), OTHER, 0, (OTHER, HERE))
    broker.show(broker.state, more)
    assert broker.resignations[-1] == {TopicPartition(FLIGHTS.topic, 1): -1}
    assert len(broker.replicas.offline()) == 2
    broker.logs.probe_failed_dirs()
    broker.replicas.create_missing()
    assert broker.replicas.offline() == [FLIGHTS]


def test_the_log_of_a_partition_that_went_while_its_disk_was_away_goes_when_that_is_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(OTHER, 4, HERE, OTHER))
    broker.lose_disk()
    broker.show(PartitionState((OTHER, AWAY), OTHER, 5, (OTHER, AWAY), partition_epoch=5))
    broker.find_disk()
    assert broker.logs.logs == {}
    assert [path.name.rpartition("-")[2] for path in broker.folder.glob(f"{FLIGHTS.topic}*")] == ["delete"]


def test_a_replica_stays_online_when_it_is_the_disk_to_move_to_that_fails(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(OTHER, 4, HERE, OTHER))
    broker.replicas.storage_failed(broker.partition, LogDirFailed("/elsewhere", "the disk failed"))
    assert broker.partition.failure is None
    assert broker.resignations == []


def test_what_waits_for_the_metadata_is_not_moved_and_comes_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE, OTHER))
    mover = LogMover(broker.logs, broker.replicas, Throttle(broker.time, lambda: UNLIMITED), lambda _: None)
    broker.lose_disk()
    broker.find_disk()
    with pytest.raises(ApiError, match="the disk failed") as refused:
        mover.move(FLIGHTS, str(tmp_path / "more"))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    broker.show(led(OTHER, 5, OTHER))
    assert broker.partition.failure is None
    assert broker.fetching.followed == {FLIGHTS}


def test_a_replica_that_comes_later_is_made_in_the_log_dir_that_was_asked_for(tmp_path: Path) -> None:
    more = str(tmp_path / "more")
    broker = Broker(tmp_path, PartitionState((OTHER, AWAY), OTHER, 4, (OTHER, AWAY), partition_epoch=4))
    mover = LogMover(broker.logs, broker.replicas, Throttle(broker.time, lambda: UNLIMITED), lambda _: None)
    with pytest.raises(ApiError, match="is not on this broker"):
        mover.move(FLIGHTS, more)
    with pytest.raises(ApiError, match="the broker has") as refused:
        mover.move(FLIGHTS, "/nowhere")
    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    broker.show(led(OTHER, 5, OTHER, HERE))
    assert broker.partition.log.log_dir == more


def test_a_damaged_log_is_offline_and_its_directory_is_not(tmp_path: Path) -> None:
    broker = Broker(tmp_path, led(HERE, 4, HERE, OTHER))
    broker.replicas.log_failed(FLIGHTS, CorruptLog(str(broker.folder), "damaged"))
    broker.show(led(OTHER, 5, OTHER))
    broker.replicas.bring_back()
    assert broker.partition.failure is not None
    assert broker.logs.log_dirs[0].is_online


@pytest.mark.parametrize("fails", [False, True])
def test_one_write_carries_all_resignations_of_its_time(fails: bool) -> None:
    async def scenario() -> None:
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

        resignations = Resignations(resign, spawn)
        resignations.propose({TopicPartition("t", 0): 1})
        await asyncio.sleep(0)
        resignations.propose({TopicPartition("t", 1): 2})
        resignations.propose({TopicPartition("t", 0): 3})
        answered.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        later = {TopicPartition("t", 0): 3, TopicPartition("t", 1): 2}
        assert written == ([{TopicPartition("t", 0): 1}] if fails else [{TopicPartition("t", 0): 1}, later])
        resignations.propose({TopicPartition("t", 2): 4})
        await asyncio.gather(*tasks, return_exceptions=True)
        assert written[-1][TopicPartition("t", 2)] == 4

    asyncio.run(scenario())


def test_a_broker_that_stands_still_ends_no_move_by_halves(tmp_path: Path) -> None:
    async def scenario() -> None:
        moves: list[Awaitable[None]] = []
        broker = Broker(tmp_path, led(HERE, 4, HERE, replicas=1))
        broker.append(3)
        partition = broker.partition
        mover = LogMover(broker.logs, broker.replicas, Throttle(broker.time, lambda: UNLIMITED), moves.append)
        mover.move(FLIGHTS, str(tmp_path / "more"))
        broker.is_awake = False
        await moves[0]
        assert partition.log is broker.logs.get(FLIGHTS)
        assert (partition.log.log_dir, partition.log.log_end_offset) == (str(tmp_path / "more"), 3)

    asyncio.run(scenario())

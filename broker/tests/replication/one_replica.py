"""A broker with one replica and two log dirs; the test provides its metadata."""

import random
from collections.abc import Collection, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from barnabas_broker.metadata.controller.decisions.elections import LogAhead
from barnabas_broker.metadata.documents import AnyDocument, encode, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.metadata.store.metadata_store import Document, Listing
from barnabas_broker.replication.leader_replica import Purgatory
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.replication.replica_states import ReplicaEnvironment
from barnabas_broker.replication.stray_log_policy import only_topic
from barnabas_broker.storage.disk.checkpoints import LastIncarnation
from barnabas_broker.storage.disk.files import OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.errors import LogDirFailed
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_dir_loader import TopicLookup
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import START_MS
from harness.manual_timers import ManualTimers

NOW_MS = START_MS
HERE, OTHER, AWAY = 1, 2, 3
NONE: Final[Mapping[TopicPartition, int]] = {}
FLIGHTS = TopicPartition("flights", 0)


def at_once(work: Coroutine[object, object, None]) -> None:
    """Run a coroutine that waits for nothing but its next turn, with no other tasks."""
    with suppress(StopIteration):
        while True:
            work.send(None)


class Fetching:
    """A record of the partitions that are followed."""

    def __init__(self) -> None:
        self.followed: set[TopicPartition] = set()

    def follow(self, partition: Partition) -> None:
        self.followed.add(partition.topic_partition)

    def go_on(self, partition: Partition) -> None:
        pass

    def unfollow(self, partition: Partition) -> None:
        self.followed.discard(partition.topic_partition)


def _config(topic: str) -> LogConfig:
    return LogConfig()


class Broker:
    """Broker 1 with a replica of one partition; the test provides the metadata."""

    def __init__(
        self,
        folder: Path,
        state: PartitionState,
        *,
        machine_ran_on: bool = True,
        cut_dirs: Collection[UUID | None] = (),
    ) -> None:
        self.folder = folder / "logs"
        cut = frozenset(each for each in cut_dirs if each is not None)
        self.last_incarnation = LastIncarnation(machine_ran_on=machine_ran_on, cut_dirs=cut)
        self.timers = ManualTimers()
        self.clock = self.timers.clock
        self.fetching = Fetching()
        self.is_awake = True
        self.offline_reports: list[Mapping[TopicPartition, int]] = []
        self.losses: list[Mapping[TopicPartition, int]] = []
        self.ahead: list[Mapping[TopicPartition, LogAhead]] = []
        self.image = MetadataImage()
        self._version = 0
        self.show(state)
        self._load()
        at_once(self.replicas.start())

    def _load(self) -> None:
        folder = self.folder.parent
        environment = LogEnvironment(PosixFileSystem(), OpenFiles(100), Trash(), random.Random(0))
        settings = LogManagerSettings([str(self.folder), str(folder / "more")])
        topics = TopicLookup(self._assigned, partial(only_topic, self.image))
        self.logs = LogManager(environment, self.clock, settings, BrokerIdentity("c", HERE), _config, topics)
        self.logs.load(last_incarnation=self.last_incarnation)
        self.config = parse_broker_config({"node.id": str(HERE), "log.dirs": f"{self.folder},{folder / 'more'}"})
        replica_environment = ReplicaEnvironment(
            self.clock,
            self.timers,
            Purgatory(self.timers),
            self.fetching,
            lambda _: None,
            self.offline_reports.append,
            self.losses.append,
            self.ahead.append,
            lambda: self.is_awake,
            lambda: None,
        )
        self.replicas = ReplicaManager(HERE, self.config, self.logs, self.image, replica_environment)

    def _assigned(self, topic_id: UUID, number: int) -> TopicPartition | None:
        name = self.image.topic_name(topic_id)
        return None if name is None else TopicPartition(name, number)

    def show(self, state: PartitionState, *more: PartitionState) -> None:
        self._version += 1
        self.state = state
        document = TopicDocument(FLIGHTS.topic, UUID(int=7), (state, *more), {"min.insync.replicas": "1"})
        key = topic_key(FLIGHTS.topic)
        self.image.apply_listing(Listing(self._version, [Document(key, encode(document), self._version)]))

    def show_only(self, *documents: tuple[str, AnyDocument]) -> None:
        """Replace the content of the store by these documents."""
        self._version += 1
        listed = [Document(key, encode(document), self._version) for key, document in documents]
        self.image.apply_listing(Listing(self._version, listed))

    def start_anew(self, *documents: tuple[str, AnyDocument]) -> None:
        """Start the next incarnation of the broker, with a store that has only these documents."""
        self.load_anew(*documents)
        at_once(self.replicas.start())

    def load_anew(
        self, *documents: tuple[str, AnyDocument], high_watermarks: Mapping[TopicPartition, int] = NONE
    ) -> None:
        """Load the logs of the next incarnation, which has not taken over its partitions yet."""
        self.logs.shutdown(lambda log: high_watermarks.get(log.topic_partition))
        self.image = MetadataImage()
        self.show_only(*documents)
        self._load()

    @property
    def partition(self) -> Partition:
        return self.replicas.lookup.find(FLIGHTS.topic, None, 0)

    def append(self, count: int, partition: Partition | None = None) -> None:
        for _ in range(count):
            batch = encode_batch([Record(0, NOW_MS, None, b"value")])
            (partition or self.partition).append_as_leader(memoryview(batch), parse_header(batch, 0), NOW_MS)

    def stop(self) -> None:
        self.logs.shutdown(lambda _: None)

    def lose_disk(self) -> None:
        self.replicas.failures.log_failed(FLIGHTS, LogDirFailed(str(self.folder), "the disk failed"))

    def find_disk(self, *, cut_to_bytes: int | None = None) -> None:
        """Let the disk work again, perhaps without the last records, and run the periodic task that checks it."""
        if cut_to_bytes is not None:
            segment = next(self.folder.glob(f"{FLIGHTS}/*.log"))
            segment.write_bytes(segment.read_bytes()[:cut_to_bytes])
        if self.logs.probe(self.logs.log_dirs):
            at_once(self.replicas.sweep())
        self.replicas.bring_back()

    def error_of_find(self) -> ErrorCode | None:
        try:
            self.replicas.lookup.find(FLIGHTS.topic, None, 0)
        except ApiError as error:
            return error.code
        return None

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

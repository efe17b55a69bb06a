"""Brokers whose replicas fetch from each other over a simulated network; time moves when the test says so."""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.fetch_session import FetchEnvironment
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.follower_sessions import FollowerAnswer, FollowerSessions, LeaderEnvironment
from barnabas_broker.replication.leader_replica import IsrProposer, PartitionEnvironment, Purgatory
from barnabas_broker.replication.other_brokers import Link
from barnabas_broker.replication.partition import CommitQueue, Partition
from barnabas_broker.storage.disk.files import FileSystem, OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.logs.log_loader import open_log
from barnabas_broker.storage.logs.log_syncs import LogEnvironment, LogPlace
from barnabas_broker.wire.fetch import FetchRequest, encode_fetch_response, parse_fetch
from barnabas_broker.wire.framing import FileSlice, locate_body
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import LONG_MAX, LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import START_MS
from harness.manual_timers import ManualTimers

TOPIC_ID = UUID(int=7)
LATENCY_S = 0.001


class WorldLink:
    """A link to one broker; frames take LATENCY_S each way, and those under way are lost when it breaks."""

    def __init__(self, world: "World", broker_id: int, on_closed: Callable[[str], None]) -> None:
        self.world = world
        self.broker_id = broker_id
        self.on_closed: Callable[[str], None] | None = on_closed
        if broker_id in world.unreachable:
            world.timers.call_later(LATENCY_S, lambda: self.break_("refused"))

    def send(self, frame: bytes | bytearray, on_response: Callable[[memoryview], None]) -> None:
        self.world.timers.call_later(LATENCY_S, partial(self._arrive, bytes(frame), on_response))

    def close(self) -> None:
        self.on_closed = None
        self.world.links.discard(self)

    def break_(self, reason: str) -> None:
        on_closed = self.on_closed
        self.close()
        if on_closed is not None:
            on_closed(reason)

    def _arrive(self, frame: bytes, on_response: Callable[[memoryview], None]) -> None:
        if self.on_closed is None or self.broker_id in self.world.silent:
            return
        buffer = memoryview(frame)
        _, version, correlation_id, start = locate_body(buffer, 4, len(buffer))
        request = parse_fetch(buffer, start, len(buffer), version)
        self.world.requests.append(request)

        def answer(found: FollowerAnswer) -> None:
            error, session_id, topics = found
            parts = encode_fetch_response(correlation_id, version, topics, session_id, error)
            response = b"".join(
                part.file.read_at(part.position, part.length) if isinstance(part, FileSlice) else part for part in parts
            )
            self.world.timers.call_later(LATENCY_S, partial(self._return, response, on_response))

        self.world.brokers[self.broker_id].sessions.fetch(request, answer)

    def _return(self, response: bytes, on_response: Callable[[memoryview], None]) -> None:
        if self.on_closed is not None:
            self.world.response_sizes.append(len(response))
            on_response(memoryview(response)[4:])


class WorldBroker:
    """The replicas of one broker."""

    def __init__(self, world: "World", broker_id: int, folder: Path, files: FileSystem) -> None:
        self.world = world
        self.broker_id = broker_id
        self.folder = folder
        self.environment = LogEnvironment(files, OpenFiles(1000), Trash(), random.Random(0))
        self.partitions: dict[int, Partition] = {}
        self.suspects: list[tuple[int, int | None]] = []
        self.failures: list[tuple[int, StorageError]] = []
        self.fetchers = Fetchers(
            FetchEnvironment(
                broker_id,
                lambda: world.broker_epochs[broker_id],
                world,
                world.clock,
                world.timers,
                lambda: world.config,
                self._storage_failed,
                lambda broker_id, answered_epoch: self.suspects.append((broker_id, answered_epoch)),
                world.broker_epochs.get,
            )
        )
        self.sessions = FollowerSessions(
            LeaderEnvironment(
                broker_id,
                self.find,
                self._storage_failed,
                world.clock,
                world.timers,
                lambda: world.config,
                lambda each: world.broker_epochs[each] if each in world.brokers else None,
            )
        )

    def find(self, name: str | None, topic_id: bytes | None, index: int) -> Partition:
        if index not in self.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.partitions[index]

    def _storage_failed(self, partition: Partition, error: StorageError) -> ApiError:
        self.failures.append((partition.topic_partition.partition, error))
        self.fetchers.unfollow(partition)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def apply(self, index: int, state: PartitionState) -> None:
        """Apply the state as the replica manager does."""
        partition = self.partitions.get(index) or self._make(index)
        led_by = partition.state.leader, partition.leader_epoch
        partition.apply(state)
        if led_by != (partition.state.leader, partition.leader_epoch):
            self.fetchers.unfollow(partition)
            if partition.state.leader not in (self.broker_id, -1):
                self.fetchers.follow(partition)

    def _make(self, index: int) -> Partition:
        topic_partition = TopicPartition("flights", index)
        directory = self.folder / str(topic_partition)
        directory.mkdir(parents=True)
        place = LogPlace(
            log_dir=str(self.folder),
            directory=str(directory),
            topic_partition=topic_partition,
            config=self.world.log_config,
        )
        log = open_log(self.environment, place, START_MS)
        context = PartitionEnvironment(
            self.broker_id,
            self.world.clock,
            lambda _, __: True,
            lambda: 30_000,
            self.world.proposals.append,
            lambda: 1,
            lambda: None,
        )
        waiters = Purgatory(self.world.timers).wait_list()
        partition = Partition(topic_partition, TOPIC_ID, log, 0, context, waiters, CommitQueue(self.world.timers))
        self.partitions[index] = partition
        return partition


class World:
    """The brokers 1, 2 and 3, and the network between them (`Links`)."""

    def __init__(self, folder: Path, files: dict[int, FileSystem] | None = None, **settings: int) -> None:
        self.timers = ManualTimers()
        self.clock = self.timers.clock
        self.config: Any = SimpleNamespace(
            replica_fetch_wait_max_ms=500,
            replica_fetch_min_bytes=1,
            replica_fetch_max_bytes=1 << 20,
            replica_fetch_response_max_bytes=10 << 20,
            replica_fetch_backoff_ms=1000,
            replica_socket_timeout_ms=30_000,
            fetch_max_bytes=55 << 20,
            leader_replication_throttled_rate=LONG_MAX,
            follower_replication_throttled_rate=LONG_MAX,
        )
        vars(self.config).update(settings)
        self.log_config = LogConfig(min_insync_replicas=1)
        self.links: set[WorldLink] = set()
        self.broker_epochs = {1: 1, 2: 1, 3: 1}
        self.unreachable: set[int] = set()
        self.silent: set[int] = set()
        self.requests: list[FetchRequest] = []
        self.response_sizes: list[int] = []
        self.proposals: list[IsrProposer] = []
        self.states: dict[int, PartitionState] = {}
        self.brokers: dict[int, WorldBroker] = {}
        for each in (1, 2, 3):
            disk = (files or {}).get(each) or PosixFileSystem()
            self.brokers[each] = WorldBroker(self, each, folder / str(each), disk)

    def open(self, broker_id: int, on_closed: Callable[[str], None]) -> Link:
        link = WorldLink(self, broker_id, on_closed)
        self.links.add(link)
        return link

    def lead(
        self, index: int, leader: int, *, replicas: tuple[int, ...] = (1, 2), to: tuple[int, ...] | None = None
    ) -> None:
        """Create the partition, or elect another leader, and show that to the brokers `to`."""
        before = self.states.get(index)
        state = PartitionState(
            replicas=replicas,
            leader=leader,
            leader_epoch=before.leader_epoch + 1 if before else 0,
            isr=replicas,
            partition_epoch=before.partition_epoch + 1 if before else 0,
        )
        self.states[index] = state
        self.show(index, to or replicas)

    def show(self, index: int, to: tuple[int, ...]) -> None:
        for each in to:
            self.brokers[each].apply(index, self.states[index])

    def append(self, index: int, value: bytes = b"value", *, broker: int | None = None, records: int = 1) -> None:
        batch = encode_batch([Record(number, self.clock.now_ms(), None, value) for number in range(records)])
        leader = self.brokers[broker or self.states[index].leader].partitions[index]
        leader.append_as_leader(memoryview(batch), parse_header(batch, 0), self.clock.now_ms())

    def bytes_of(self, broker_id: int, index: int) -> bytes:
        log = self.brokers[broker_id].partitions[index].log
        return b"".join(segment.file.read_at(0, segment.size_bytes) for segment in log.segments)

    def is_equal(self, index: int, *brokers: int) -> bool:
        return len({self.bytes_of(each, index) for each in brokers or (1, 2)}) == 1

    def ends(self, broker_id: int) -> dict[int, int]:
        partitions = self.brokers[broker_id].partitions
        return {index: partition.log.log_end_offset for index, partition in sorted(partitions.items())}

    def named(self) -> Counter[int]:
        """Return how often each partition was named in the requests so far, and forget these."""
        requests, self.requests = self.requests, []
        return Counter(each.partition for request in requests for topic in request.topics for each in topic.partitions)

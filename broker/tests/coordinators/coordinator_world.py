"""A simulated world for the group coordinator: time moved by hand, and a log in memory that can hold back and fail."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any
from uuid import UUID

from group_script import AT_ONCE, subscription
from manual_persister import ManualPersister

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.groups.messages import (
    CommitRequest,
    CommittedOffset,
    JoinReply,
    JoinRequest,
    MemberIdentity,
    SyncReply,
    SyncRequest,
)
from barnabas_broker.coordinators.groups.shard import GroupEnvironment
from barnabas_broker.coordinators.modern.records import MemberProtocol
from barnabas_broker.coordinators.modern.shard import ModernEnvironment
from barnabas_broker.coordinators.modern.targets import KnownTopic
from barnabas_broker.coordinators.share.share_groups import ShareEnvironment
from barnabas_broker.metadata.model import TombstoneDocument
from barnabas_broker.replication.record_log import KeyValue
from barnabas_broker.wire.key_values import KeyValueSlice, Marker, ProducerEpoch, TransactionalKeyValues
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.group_configs import effective_group_config, effective_share_config
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.manual_timers import ManualTimers

_IDS = count(1)

Done = Callable[[ApiError | None], object]


class MemoryLog:
    """A CoordinatorLog: batches in the order they were written, and how many of them are committed.

    `holding`: batches are committed only by `commit`. `failing`: nothing is written.
    """

    def __init__(self, partitions: int, timers: ManualTimers) -> None:
        self.batches = 0
        self.holding = False
        self.failing: ErrorCode | None = None
        self._timers = timers
        self._written: list[list[Sequence[Any]]] = [[] for _ in range(partitions)]
        self._committed = [0] * partitions
        self._waiting: list[list[tuple[int, Done]]] = [[] for _ in range(partitions)]

    def append(
        self, partition: int, records: Sequence[KeyValue], done: Done, producer: ProducerEpoch | None = None
    ) -> None:
        self._append(partition, records if producer is None else [(producer, record) for record in records], done)

    def append_marker(self, partition: int, marker: Marker, transaction_version: int, done: Done) -> None:
        self._append(partition, [marker], done)

    def _append(self, partition: int, batch: Sequence[Any], done: Done) -> None:
        self.batches += 1
        if self.failing is not None:
            done(ApiError(self.failing))
            return
        self.write(partition, batch)
        self.when_committed(partition, done)

    def write(self, partition: int, records: Sequence[Any]) -> None:
        """Write a batch without a callback for its commit."""
        self._written[partition].append(records)

    def when_committed(self, partition: int, done: Done) -> None:
        self._waiting[partition].append((len(self._written[partition]), done))
        self._timers.call_soon(self._go_on)

    def _go_on(self) -> None:
        for partition, batches in enumerate(self._written):
            if not self.holding:
                self._committed[partition] = len(batches)
            self._tell(partition)

    def _tell(self, partition: int) -> None:
        waiting = self._waiting[partition]
        while waiting and waiting[0][0] <= self._committed[partition]:
            waiting.pop(0)[1](None)

    def commit(self, batches: int = 2**31) -> None:
        """Advance the high watermarks by so many batches."""
        for partition, written in enumerate(self._written):
            self._committed[partition] = min(self._committed[partition] + batches, len(written))
            self._tell(partition)

    def fail(self, error: ErrorCode, survivors: int = 0) -> None:
        """Fail all waiting appends; so many batches that are not committed stay in the logs."""
        self._written = [
            batches[: committed + survivors] for batches, committed in zip(self._written, self._committed, strict=True)
        ]
        for partition, waiting in enumerate(self._waiting):
            self._waiting[partition] = []
            for _, done in waiting:
                done(ApiError(error))

    def read(self, partition: int, on_ready: Callable[[], object]) -> Iterator[KeyValueSlice | None]:
        self._timers.call_soon(on_ready)
        yield None
        yield from map(_slice, list(self._written[partition]))

    def committed(self, partition: int) -> list[KeyValue]:
        """Return the committed records."""
        return [record for batch in self._written[partition][: self._committed[partition]] for record in batch]


def _slice(batch: Sequence[Any]) -> KeyValueSlice:
    if isinstance(batch[0], Marker):
        return batch[0]
    if isinstance(batch[0][0], ProducerEpoch):
        return TransactionalKeyValues(batch[0][0].producer_id, dict(record for _, record in batch))
    return dict(batch)


class ManualTopics:
    """The topics of the cluster, as a test sets them."""

    def __init__(self) -> None:
        self.known: dict[str, KnownTopic] = {}
        self.versions = 0
        self.created: dict[str, int] = {}
        self.knows_created = True

    def make(self, name: str, partitions: int) -> UUID:
        """Create a topic, or give it more partitions; return its id, which has the bytes of its name."""
        self.versions += 1
        self.created.setdefault(name, self.versions)
        topic_id = UUID(bytes=name.encode().ljust(16, b"-"))
        self.known[name] = KnownTopic(topic_id, partitions)
        return topic_id

    def delete(self, name: str) -> None:
        self.versions += 1
        del self.known[name], self.created[name]

    def version(self) -> int:
        return self.versions

    def find(self, name: str) -> KnownTopic | None:
        return self.known.get(name)

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, each in self.known.items() if each.topic_id == topic_id), None)

    def names(self) -> list[str]:
        return list(self.known)

    def created_since(self, version: int) -> list[str] | None:
        return [name for name, since in self.created.items() if since > version] if self.knows_created else None


class World:
    """One broker's coordinator with its environment."""

    def __init__(self, config: BrokerConfig = AT_ONCE, partitions: int = 1) -> None:
        self.config = config
        self.timers = ManualTimers()
        self.clock = self.timers.clock
        self.log = MemoryLog(partitions, self.timers)
        self.partitions = partitions
        self.leader_epoch = 0
        self.tombstones: dict[UUID, TombstoneDocument] = {}
        self.is_awake = True
        self.topics = ManualTopics()
        self.consumer_settings = effective_group_config({}, config)
        self.share_settings = effective_share_config({}, config)
        self.persister = ManualPersister()
        self.coordinator = self._new_coordinator()
        self.elect()

    def _new_coordinator(self) -> GroupCoordinator:
        environment = GroupEnvironment(
            self.config,
            self.log,
            self.clock,
            self.timers,
            lambda: dict(self.tombstones),
            lambda: self.is_awake,
            lambda: str(next(_IDS)),
            ModernEnvironment(self.topics, lambda _: self.consumer_settings, lambda: True),
            ShareEnvironment(lambda _: self.share_settings, lambda: True, self.persister),
        )
        return GroupCoordinator(environment, self.partitions)

    def bury(self, *topics: tuple[str, UUID]) -> None:
        """Write the tombstones of topics, which the coordinator does not know yet."""
        for name, topic_id in topics:
            self.tombstones[topic_id] = TombstoneDocument(name, topic_id, self.clock.now_ms())

    def delete(self, *topics: tuple[str, UUID]) -> None:
        """Delete topics."""
        self.bury(*topics)
        self.coordinator.on_topics_deleted({topic_id: self.tombstones[topic_id] for _, topic_id in topics})

    def elect(self) -> None:
        """Make this broker the leader of all partitions, in a new epoch."""
        self.leader_epoch += 1
        for partition in range(self.partitions):
            self.coordinator.runtime.elect(partition, self.leader_epoch)
        self.timers.pass_time()

    def resign(self, survivors: int = 0) -> None:
        """Make another broker the leader; so many batches beyond the high watermark of this one were replicated."""
        self.log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, survivors)
        for partition in range(self.partitions):
            self.coordinator.runtime.resign(partition)

    def crash(self, survivors: int = 0) -> None:
        """Stop the broker; another one loads the log."""
        self.coordinator.runtime.stop()
        self.log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, survivors)
        self.coordinator = self._new_coordinator()
        self.elect()


class Client:
    """A consumer of one group as a coordinator sees it. `joined` and `synced` hold its responses, newest last."""

    def __init__(self, world: World, name: str, instance_id: str | None = None, group_id: str = "readers") -> None:
        self.world = world
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.joined: list[JoinReply] = []
        self.synced: list[SyncReply] = []
        self.sync_asked: list[tuple[int, str]] = []
        """The generation, and the instance id or member id, of each sync."""

    def join(self, topics: Sequence[str] = ("flights",), **changes: Any) -> "Client":
        """Send a JoinGroup of version 3, which requires no member id."""
        request = JoinRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(MemberProtocol("range", subscription(list(topics))),),
            requires_known_member_id=False,
        )._replace(**changes)
        self.world.coordinator.join(request, self._on_joined)
        self.world.timers.pass_time()
        return self

    def _on_joined(self, reply: JoinReply) -> None:
        self.joined.append(reply)
        if reply.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = reply.member_id
        if reply.error is ErrorCode.NONE:
            self.generation = reply.generation

    def sync(self, **assignments: str) -> "Client":
        """Send a SyncGroup; `assignments` are by member id."""
        self.sync_asked.append((self.generation, self.instance_id or self.member_id))
        by_member = {member_id: assigned.encode() for member_id, assigned in assignments.items()}
        request = SyncRequest(self.group_id, self.member_id, self.instance_id, self.generation, assignments=by_member)
        self.world.coordinator.sync(request, self.synced.append)
        self.world.timers.pass_time()
        return self

    def heartbeat(self) -> ErrorCode:
        """Send a Heartbeat."""
        return self.world.coordinator.heartbeat(self.group_id, self.member_id, self.instance_id, self.generation)

    def leave(self) -> ErrorCode:
        """Send a LeaveGroup."""
        identity = MemberIdentity(self.member_id, self.instance_id)
        result = self.world.coordinator.leave(self.group_id, [identity])[0].error
        self.world.timers.pass_time()
        return result

    def commit(self, *offsets: tuple[str, int, int], api_version: int = 9, **changes: Any) -> list[list[ErrorCode]]:
        """Send an OffsetCommit of (topic, partition, offset); return the list that receives the response."""
        named = [
            (TopicPartition(topic, partition), CommittedOffset(offset, **changes))
            for topic, partition, offset in offsets
        ]
        return self.commit_all(named, api_version)

    def commit_all(
        self, named: Sequence[tuple[TopicPartition, CommittedOffset]], api_version: int = 9
    ) -> list[list[ErrorCode]]:
        """OffsetCommit of these; the list that the answer will be put in."""
        answers: list[list[ErrorCode]] = []
        request = CommitRequest(self.group_id, self.member_id, self.instance_id, self.generation, api_version, named)
        self.world.coordinator.commit(request, answers.append)
        return answers

    def committed(self) -> dict[str, int]:
        """Return the offset of each partition, as an OffsetFetch of everything does."""
        offsets = self.world.coordinator.committed(self.group_id)
        return {str(topic_partition): committed.offset for topic_partition, committed in offsets.items()}


def stable(world: World, *clients: Client) -> None:
    """Bring clients of one group into a stable generation, each assigned its own name."""
    for client in clients:
        client.join()
    while any(client.generation != clients[0].generation or not client.joined for client in clients):
        for client in clients:
            client.join()
    leader = next(client for client in clients if client.joined[-1].leader == client.member_id)
    for client in clients:
        if client is not leader:
            client.sync()
    leader.sync(**{client.member_id: client.name for client in clients})
    assert [client.synced[-1].assignment.decode() for client in clients] == [client.name for client in clients]

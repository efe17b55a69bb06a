"""The states of the replicas on this broker, and the table of transitions between the states.

Only `ReplicaStates.change` writes a state. A trigger that the table does not list for a state is a bug.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import msgspec

from barnabas_broker.metadata.controller.decisions.elections import LogAhead
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.leader_replica import IsrProposer, Purgatory
from barnabas_broker.replication.partition import Partition, why_missing
from barnabas_broker.storage.errors import DiskFull, Exhausted, LogDirFailed, StorageError
from barnabas_broker.storage.log_dirs.log_dir import LogDirState
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairRounds
from barnabas_core.topic_partition import TopicPartition


class ReplicaState(Enum):
    """The states of a replica. Only an ONLINE replica is served."""

    UNMADE = "unmade"
    """The replica's log will be opened or created in one of the next turns of the event loop."""
    REFUSED = "refused"
    """The replica's log could not be created; the broker tries again every second."""
    AWAY = "away"
    """The replica's log was not found, but may be in an offline log dir."""
    DAMAGED = "damaged"
    """The replica's log is in its log dir, but could not be loaded."""
    LOST = "lost"
    """The replica leads or may be elected leader, but has no log, or its log may lack records."""
    ONLINE = "online"
    """The replica is served: it leads or follows."""
    AHEAD = "ahead"
    """The replica neither leads nor follows, because its log has a later leader epoch than the metadata."""
    OFFLINE = "offline"
    """The disk or the log of the replica failed while the replica was online."""
    GOING = "going"
    """The partition is no longer assigned to this broker; the log will soon be deleted, or kept as a stray log."""
    NONE = "none"
    """The replica does not exist on this broker."""


class Trigger(Enum):
    """The events that change the state of a replica."""

    ASSIGNED = "the metadata assigns the replica to this broker"
    ABSENT = "the broker starts without the replica's log while a log dir is offline"
    OPENED = "the replica's log was opened or created"
    NOT_MADE = "the replica's log could not be created"
    NOT_FOUND = "the replica's log may be in an offline log dir"
    NOT_LOADED = "the replica's log could not be loaded"
    LACKING = "a replica that leads or may be elected leader has no log, or its log may lack records"
    FAILED = "the disk or the log of the replica failed"
    RETURNED = "the replica's log was loaded again"
    OVERTOOK = "the replica's log has a later leader epoch than the metadata"
    OVERTAKEN = "the leader epoch in the metadata is no longer lower than in the replica's log"
    UNASSIGNED = "the metadata assigns the replica to other brokers, or the topic was deleted"
    REMOVED = "the replica's log was deleted, or is kept as a stray log"
    FORGOTTEN = "an earlier replica of the partition is still being removed, or the topic has no such partition"


class Transition(NamedTuple):
    """A transition between states; `needs` is the condition that must hold before the transition."""

    before: tuple[ReplicaState, ...]
    trigger: Trigger
    after: ReplicaState
    needs: str


_S, _T = ReplicaState, Trigger
WITHOUT_LOG: Final = (_S.UNMADE, _S.REFUSED, _S.AWAY, _S.DAMAGED, _S.LOST)
_WITH_LOG: Final = (_S.ONLINE, _S.AHEAD, _S.OFFLINE)
WITHOUT_USABLE_LOG: Final = (_S.REFUSED, _S.AWAY, _S.DAMAGED, _S.LOST, _S.OFFLINE)
"""The states of assigned replicas whose logs failed, or could not be found, loaded or created."""
NOT_SERVED: Final = (*WITHOUT_USABLE_LOG, _S.AHEAD)
"""The states of assigned replicas that are not served; every second, the broker checks if it can serve them."""

TRANSITIONS: Final = (
    Transition((_S.NONE,), _T.ASSIGNED, _S.UNMADE, "the topic's metadata lists this broker as a replica"),
    Transition((_S.NONE,), _T.ABSENT, _S.AWAY, "all online log dirs are loaded"),
    Transition(
        WITHOUT_LOG,
        _T.OPENED,
        _S.ONLINE,
        "an existing log was recovered, or an empty log with the topic id was created",
    ),
    Transition(WITHOUT_LOG, _T.NOT_MADE, _S.REFUSED, "nothing"),
    Transition(
        WITHOUT_LOG,
        _T.NOT_FOUND,
        _S.AWAY,
        "no new log is created, because an empty log would hide that records are missing",
    ),
    Transition(WITHOUT_LOG, _T.NOT_LOADED, _S.DAMAGED, "the files of the log are unchanged"),
    Transition(
        (*WITHOUT_LOG, _S.OFFLINE),
        _T.LACKING,
        _S.LOST,
        "no new log is created while the replica leads or may be elected leader",
    ),
    Transition(
        (_S.ONLINE, _S.AHEAD), _T.FAILED, _S.OFFLINE, "no Produce or Fetch request is still waiting for the failed log"
    ),
    Transition(
        (_S.OFFLINE, _S.LOST),
        _T.RETURNED,
        _S.ONLINE,
        "the partition's metadata already reflects the failure of the log",
    ),
    Transition((_S.ONLINE,), _T.OVERTOOK, _S.AHEAD, "nothing"),
    Transition((_S.AHEAD,), _T.OVERTAKEN, _S.ONLINE, "the metadata image has the partition's new leader epoch"),
    Transition(
        (_S.NONE, *WITHOUT_LOG, *_WITH_LOG),
        _T.UNASSIGNED,
        _S.GOING,
        "the metadata image says whether the topic exists or was deleted",
    ),
    Transition(
        (_S.GOING,),
        _T.REMOVED,
        _S.NONE,
        "the name of the log's directory ends in `-delete`, or the log is registered as stray",
    ),
    Transition(WITHOUT_LOG, _T.FORGOTTEN, _S.NONE, "the replica has no log on this broker"),
)
_AFTER: Final = {(before, each.trigger): each.after for each in TRANSITIONS for before in each.before}


class ReplicaRecord:
    """A replica and its state; `partition` is None until the replica's log is opened for the first time."""

    __slots__ = ("ahead_since_s", "partition", "state", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.state = ReplicaState.NONE
        self.partition: Partition | None = None
        self.ahead_since_s = 0.0
        """The monotonic time in seconds at which the state became AHEAD."""


class ReplicaStates:
    """The `ReplicaRecord` of each replica on this broker.

    This broker has at most two replicas of a partition: an old one that is being removed (GOING), and an assigned one.
    """

    def __init__(self) -> None:
        self._by_state: dict[ReplicaState, dict[TopicPartition, ReplicaRecord]] = {each: {} for each in ReplicaState}
        self._assigned: dict[TopicPartition, ReplicaRecord] = {}

    def get(self, topic_partition: TopicPartition) -> ReplicaRecord | None:
        """Return the `ReplicaRecord` of an assigned replica; None if the replica is not assigned to this broker."""
        return self._assigned.get(topic_partition)

    def is_unmade(self, topic_partition: TopicPartition) -> bool:
        """True if the log of the replica still has to be opened or created."""
        return topic_partition in self._by_state[ReplicaState.UNMADE]

    def hosted(self, topic_partition: TopicPartition) -> ReplicaRecord:
        """Return the `ReplicaRecord` of an assigned replica. Raises KeyError if the replica is not assigned."""
        return self._assigned[topic_partition]

    def going(self, topic_partition: TopicPartition) -> ReplicaRecord | None:
        """Return the `ReplicaRecord` of a replica whose log still has to be removed, or None."""
        return self._by_state[ReplicaState.GOING].get(topic_partition)

    def of(self, *states: ReplicaState) -> list[ReplicaRecord]:
        """Return the replicas in these states, ordered by state, then by the time at which they entered the state."""
        return [record for state in states for record in self._by_state[state].values()]

    def first(self, state: ReplicaState) -> ReplicaRecord | None:
        """Return the replica that has been in a state for the longest time; None if no replica is in the state."""
        return next(iter(self._by_state[state].values()), None)

    def begin(self, topic_partition: TopicPartition, topic_id: UUID, trigger: Trigger) -> ReplicaRecord:
        """Create the `ReplicaRecord` of a replica in the state NONE, and make the transition that `trigger` causes."""
        record = ReplicaRecord(topic_partition, topic_id)
        self.change(record, trigger)
        return record

    def change(self, record: ReplicaRecord, trigger: Trigger) -> None:
        """Change the state of a replica as the table of transitions says for the trigger."""
        where, before = record.topic_partition, record.state
        after = _AFTER.get((before, trigger))
        assert after is not None, (
            f"{where} is {before.value}, and no transition is defined for the trigger: {trigger.value}"
        )
        assert where not in self._by_state[after] or after is before, (
            f"{where} already has a replica in the state {after.value}, and may have only one"
        )
        self._by_state[before].pop(where, None)
        if self._assigned.get(where) is record:
            del self._assigned[where]
        record.state = after
        if after is ReplicaState.NONE:
            return
        self._by_state[after][where] = record
        if after is not ReplicaState.GOING:
            self._assigned[where] = record


class HostedTopic:
    """A topic with its settings, and its partitions on this broker by partition number."""

    __slots__ = ("config", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID, config: LogConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.partitions: dict[int, Partition] = {}


class PartitionLookup:
    """The lookup of partitions.

    `is_awake` returns False after this process was suspended, until it knows again which brokers lead.
    """

    def __init__(
        self, broker_id: int, image: MetadataImage, states: ReplicaStates, is_awake: Callable[[], bool]
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._states = states
        self._is_awake = is_awake
        self.topics: dict[str, HostedTopic] = {}
        self._by_id: dict[bytes, HostedTopic] = {}
        """The topics by the bytes of their topic ids, because creating a UUID takes longer than the lookup."""

    def find(self, name: str | None, topic_id: bytes | None, index: int) -> Partition:
        """Return a partition by topic name or, without a name, by topic id.

        Raises ApiError if this broker does not have the partition. Raises ApiError also after this process was
        suspended, until it knows again which brokers lead.
        """
        if not self._is_awake():
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker was suspended, and is checking which brokers lead now"
            )
        try:
            topic = self.topics[name] if name is not None else self._by_id[topic_id]  # type: ignore[index]
            return topic.partitions[index]
        except KeyError:
            raise self._why_missing(name, topic_id, index) from None

    def _why_missing(self, name: str | None, topic_id: bytes | None, index: int) -> ApiError:
        if name is None and topic_id in self._by_id:
            name = self._by_id[topic_id].name
        is_unmade = name is not None and self._states.is_unmade(TopicPartition(name, index))
        uuid = None if topic_id is None else UUID(bytes=topic_id)
        return why_missing(self._image, self._broker_id, name, uuid, index, is_unmade=is_unmade)

    def hosted(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the partition, even if it is offline; None if this broker does not have the partition."""
        topic = self.topics.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic is not None else None

    def partitions(self) -> Iterator[Partition]:
        """Yield all partitions on this broker, offline ones included."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def add(self, topic: HostedTopic) -> None:
        """Add a topic that has, or will have, partitions on this broker."""
        self.topics[topic.name] = self._by_id[topic.topic_id.bytes] = topic

    def remove(self, name: str) -> HostedTopic | None:
        """Remove and return a deleted topic, None if the topic had no partitions on this broker."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            del self._by_id[topic.topic_id.bytes]
        return topic


class Fetching(Protocol):
    """The fetchers of the followers on this broker."""

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its current leader in its current leader epoch, and no longer from another leader."""
        ...

    def go_on(self, partition: Partition) -> None:
        """Resume the fetches of a partition after a sync of its log; do nothing if this broker is not a follower."""
        ...

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching a partition, if it is being fetched."""
        ...


class ReplicaEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of the replica manager."""

    clock: Clock
    timers: Timers
    purgatory: Purgatory
    fetching: Fetching
    propose_isr: Callable[[IsrProposer], object]
    give_up: Callable[[Mapping[TopicPartition, int]], object]
    """Report to the controller in which leader epochs the logs of partitions failed, so that other brokers lead."""
    lost: Callable[[Mapping[TopicPartition, int]], object]
    """Report to the controller which logs lack committed records, with the leader epochs of their partitions."""
    ahead: Callable[[Mapping[TopicPartition, LogAhead]], object]
    """Tell the controller which partitions have a later leader epoch in their log than in the metadata."""
    is_awake: Callable[[], bool]
    """Return True unless this process was suspended after it last read the latest metadata."""
    turned_away: Callable[[], object]
    """Record that a request was refused now: its leader epoch is wrong, or another broker leads the partition."""


log = logging.getLogger(__name__)


class OfflinePartitions:
    """The handler of disk failures.

    `resign` asks the controller to elect other leaders for the failed partitions, and to remove this broker from their
    ISRs. The partitions of a failed log dir are taken offline in several turns of the event loop.
    """

    def __init__(
        self,
        lookup: PartitionLookup,
        states: ReplicaStates,
        logs: LogManager,
        fetching: Fetching,
        resign: Callable[[Mapping[TopicPartition, int]], object],
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._lookup = lookup
        self._states = states
        self._logs = logs
        self._fetching = fetching
        self._resign = resign
        self._rounds = FairRounds(clock, timers, lookup.partitions, self._follow_log_dir)
        self._full: set[str] = set()
        """The full log dirs, each logged once until the log dir has free space again."""

    @contextmanager
    def using(self, name: str | None, index: int, topic_id: bytes | None = None) -> Iterator[Partition]:
        """Yield a partition by topic name or topic id; turn a StorageError in the `with` block into an ApiError."""
        partition = self._lookup.find(name, topic_id, index)
        try:
            yield partition
        except StorageError as error:
            raise self.storage_failed(partition, error) from error

    def storage_failed(self, partition: Partition, error: StorageError) -> ApiError:
        """Take the failed log or log dir offline, log the failure, and return the error for the client.

        A full disk, or a lack of file descriptors or memory, takes nothing offline: the next append may succeed.
        """
        if not isinstance(error, DiskFull):
            self._take_offline(partition, error)
            log.error("%s: %s", partition.topic_partition, error)
        elif isinstance(error, Exhausted):
            log.error("%s: %s", partition.topic_partition, error)
        elif error.log_dir not in self._full:
            self._full.add(error.log_dir)
            log.error(
                "%s: %s; all appends to this log dir fail until the log dir has free space",
                partition.topic_partition,
                error,
            )
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def _take_offline(self, partition: Partition, error: StorageError) -> None:
        """Take the partition of a corrupt log offline, or all partitions of a failed log dir."""
        if isinstance(error, LogDirFailed):
            self.log_dir_failed(error)
        if not isinstance(error, LogDirFailed) or partition.log.log_dir == error.log_dir:
            self._go_offline(partition, error)

    def _go_offline(self, partition: Partition, error: StorageError) -> None:
        """Take a partition offline, and resign as its leader and ISR member.

        Do nothing if the partition was removed or is already offline.
        """
        topic_partition = partition.topic_partition
        if partition.failure is None and self._lookup.hosted(topic_partition) is partition:
            self._fetching.unfollow(partition)
            partition.go_offline(error)
            self._states.change(self._states.hosted(topic_partition), Trigger.FAILED)
            self.give_up({topic_partition: partition.failed_epoch})

    def _follow_log_dir(self, partition: Partition) -> None:
        for log_dir in self._logs.log_dirs:
            if log_dir.path == partition.log.log_dir and log_dir.failure is not None:
                self._go_offline(partition, log_dir.failure)

    @property
    def are_going_offline(self) -> bool:
        """True if partitions of a failed log dir still have to be taken offline before the log dir is loaded again."""
        return self._rounds.is_under_way

    def give_up(self, failed_epochs: Mapping[TopicPartition, int]) -> None:
        """Resign as leader and ISR member of partitions whose logs failed in the leader epochs `failed_epochs`."""
        self._resign(failed_epochs)

    def log_failed(self, topic_partition: TopicPartition, error: StorageError) -> None:
        """Take the log or its log dir offline after a disk failure in background work, unless the disk is only full."""
        partition = self._lookup.hosted(topic_partition)
        if partition is not None:
            self.storage_failed(partition, error)
        elif isinstance(error, LogDirFailed):
            self.log_dir_failed(error)

    def log_dir_failed(self, error: StorageError) -> None:
        """Mark a log dir as failed, and begin to take its partitions offline."""
        affected = self._logs.fail_dir(error)
        if affected:
            log.error("log dir %s is offline with %d partitions: %s", error.log_dir, len(affected), error)
            self._rounds.begin()

    def check_full_dirs(self) -> None:
        """Log each log dir that was full and has free space again.

        The next failure for lack of space in the log dir is then logged, too.
        """
        for log_dir in self._logs.log_dirs:
            if log_dir.path in self._full and log_dir.state is LogDirState.ONLINE:
                self._full.remove(log_dir.path)
                log.info("log dir %s has free space again", log_dir.path)

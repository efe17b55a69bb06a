"""The handling of disk failures: a StorageError takes partitions offline, and becomes KAFKA_STORAGE_ERROR."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.partition_lookup import PartitionLookup
from barnabas_broker.replication.replica_environment import Fetching
from barnabas_broker.replication.replica_states import ReplicaStates, Trigger
from barnabas_broker.storage.errors import DiskFull, Exhausted, LogDirFailed, StorageError
from barnabas_broker.storage.log_dirs.log_dir import LogDirState
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.clock import Clock, Timers
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.fair_turns import FairRounds
from barnabas_core.topic_partition import TopicPartition

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

    def look_at_full_dirs(self) -> None:
        """Log each log dir that was full and has free space again.

        The next failure for lack of space in the log dir is then logged, too.
        """
        for log_dir in self._logs.log_dirs:
            if log_dir.path in self._full and log_dir.state is LogDirState.ONLINE:
                self._full.remove(log_dir.path)
                log.info("log dir %s has free space again", log_dir.path)

"""The moves of a broker's logs between its log dirs (KIP-113)."""

from collections.abc import Sequence

from barnabas_broker.storage.errors import disk_errors
from barnabas_broker.storage.log_dirs.log_dir import LogDir, online_log
from barnabas_broker.storage.log_dirs.log_dir_choice import LogDirChoice
from barnabas_broker.storage.log_dirs.replica_move import ReplicaMove
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_core import kafka_uuid
from barnabas_core.clock import Clock
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition


class ReplicaMoves:
    """The moves of replicas between log dirs.

    The caller of `start` carries out the move: it calls `copy` until the lag is small, `sync` in a thread, then
    `finish`.
    """

    def __init__(
        self,
        environment: LogEnvironment,
        clock: Clock,
        choice: LogDirChoice,
        log_dirs: Sequence[LogDir],
    ) -> None:
        self._environment = environment
        self._clock = clock
        self._choice = choice
        self._log_dirs = log_dirs
        self.under_way: dict[TopicPartition, ReplicaMove] = {}
        self.interrupted: dict[TopicPartition, str] = {}
        """The target log dir, by partition, of each move that a stop of the broker has interrupted.

        `LogMover.resume` starts these moves again.
        """

    def start(self, topic_partition: TopicPartition, log_dir: str) -> ReplicaMove | None:
        """Begin to move a log to the log dir at a path; return None if that log dir has the log already.

        The current move of the log is cancelled in both cases. Raises StorageError, and ApiError if the log or the log
        dir is unknown, or if the log dir is offline or already has a directory of the log's name.
        """
        target, log = self._choice.at(log_dir), online_log(self._log_dirs, topic_partition)
        if log is None:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic_partition} is not on this broker")
        if log.log_dir != target.path:
            self._check_free(target.path, topic_partition)
            # `_check_free` found no directory of this partition, so a note of a damaged log there is out of date.
            target.damaged.pop(topic_partition, None)
        self.stop(topic_partition)
        if log.log_dir == target.path:
            return None
        unique = kafka_uuid.random_uuid(self._environment.random.getrandbits)
        move = ReplicaMove(self._environment, log, target.path, unique)
        move.begin()
        self.under_way[topic_partition] = move
        return move

    def _check_free(self, log_dir: str, topic_partition: TopicPartition) -> None:
        """Raise ApiError if the directory for the finished copy already exists, and StorageError if the disk fails."""
        directory = f"{log_dir}/{topic_partition}"
        with disk_errors(log_dir, directory):
            is_there = self._environment.files.exists(directory)
        if is_there:
            message = (
                f"the directory {directory} exists already, but no log could be loaded from it; move the "
                f"directory away first"
            )
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def stop(self, topic_partition: TopicPartition) -> None:
        """Cancel the move of a partition, if there is one."""
        move = self.under_way.pop(topic_partition, None)
        if move is not None:
            move.abandon()

    def sync(self, move: ReplicaMove) -> None:
        """Sync the copy, and remove checkpoint entries of an earlier log with the same name. Raises StorageError.

        The call blocks, so it must run in a thread, before `finish`.
        """
        move.sync()
        target = self._choice.at(move.log_dir)
        if target.begin_log(move.log.topic_partition):
            target.checkpoint_anew()

    def finish(self, move: ReplicaMove) -> Log:
        """Replace the log by its copy, and return the new log.

        The call blocks while it copies the last records, so the lag of the copy should be small.
        """
        topic_partition = move.log.topic_partition
        source, target = self._choice.at(move.log.log_dir), self._choice.at(move.log_dir)
        log = target.logs[topic_partition] = move.swap(self._clock.now_ms())
        source.forget(topic_partition)
        del self.under_way[topic_partition]
        return log

    def dir_failed(self, log_dir: str) -> None:
        """Stop the moves from and to a log dir."""
        for move in list(self.under_way.values()):
            if log_dir in (move.log_dir, move.log.log_dir):
                self.stop(move.log.topic_partition)

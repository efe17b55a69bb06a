"""The moves of replicas between the log dirs of this broker (KIP-113): a move copies, catches up, and swaps the logs.

Replicas are served while they move. After a new disk is added hundreds of replicas may move, but only one of them
copies or swaps in a turn of the event loop. `replica.alter.log.dirs.io.max.bytes.per.second` limits the copying.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Final, NamedTuple

from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.replication.throttle import Throttle
from barnabas_broker.storage.errors import LogDirFailed, StorageError
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.log_dirs.replica_move import ReplicaMove
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)

TRUNCATION_S: Final = 0.05
"""The interval in seconds at which a move checks whether a truncation of its log has ended."""


class MoveSteps(NamedTuple):
    """The limits of a move: it copies at most `copy_bytes` in one turn of the event loop.

    A copy that lacks at most `swap_lag_bytes` is synced, and then completed and swapped in one turn.
    """

    copy_bytes: int = 1024 * 1024
    swap_lag_bytes: int = 4 * 1024 * 1024


STEPS: Final = MoveSteps()


class LogMover:
    """The mover of replicas between log dirs; each move runs in the background."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        throttle: Throttle,
        spawn: Callable[[Coroutine[object, object, None]], object],
        sleep: Callable[[float], Awaitable[None]],
        steps: MoveSteps = STEPS,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._throttle = throttle
        self._spawn = spawn
        self._sleep = sleep
        self._steps = steps
        self._turn = asyncio.Lock()
        """The lock that lets only one move at a time copy data or swap the logs."""

    def resume(self) -> None:
        """Restart the moves that a stop or a crash interrupted. The partitions must already exist."""
        for topic_partition, log_dir in self._logs.moves.interrupted.items():
            try:
                self.move(topic_partition, log_dir)
                log.info("the interrupted move of %s to %s is restarted", topic_partition, log_dir)
            except ApiError as error:
                log.warning("the interrupted move of %s to %s cannot be restarted: %s", topic_partition, log_dir, error)
        self._logs.moves.interrupted.clear()

    def move(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Begin to move the log to `log_dir`, unless the log is there already; stop an earlier move of the log.

        Raises ApiError if the partition or the log dir is missing or offline. If only the partition is missing, its log
        will later be created in `log_dir`; ApiError is raised nevertheless, as in Kafka.
        """
        topic, number = topic_partition
        if self._replicas.lookup.hosted(topic_partition) is None:
            self._logs.prefer(topic_partition, log_dir)
        with self._replicas.failures.using(topic, number) as partition:
            if partition.failure is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(partition.failure))
            move = self._logs.moves.start(topic_partition, log_dir)
        if move is not None:
            self._spawn(self._carry_out(move, partition))

    async def _carry_out(self, move: ReplicaMove, partition: Partition) -> None:
        topic_partition = move.log.topic_partition
        try:
            while self._is_wanted(move):
                await self._catch_up(move)
                await self._logs.disk_threads.run(move.log_dir, partial(self._logs.moves.sync, move))
                while self._is_wanted(move) and move.log.known_producers.are_held_back:
                    await self._sleep(TRUNCATION_S)
                async with self._turn:
                    if self._is_wanted(move) and self._may_swap(move):
                        self._swap(move, partition)
                        await self._sleep(0)
        except (ApiError, StorageError) as error:
            log.error("the move of %s to %s failed: %s", topic_partition, move.log_dir, error)
            if isinstance(error, LogDirFailed):
                self._replicas.failures.storage_failed(partition, error)
            if self._is_wanted(move):
                self._logs.moves.stop(topic_partition)

    async def _catch_up(self, move: ReplicaMove) -> None:
        """Copy until the copy lacks at most `swap_lag_bytes`."""
        while move.lag_bytes > self._steps.swap_lag_bytes and self._is_wanted(move):
            async with self._turn:
                pause_s = self._throttle.pause_s()
                if not pause_s and self._is_wanted(move):
                    move.copy(self._steps.copy_bytes)
                    self._throttle.take(self._steps.copy_bytes)
                    await self._sleep(0)
            if pause_s:
                await self._sleep(pause_s)

    def _may_swap(self, move: ReplicaMove) -> bool:
        """True if the copy lacks at most `swap_lag_bytes`, and the log is not being truncated."""
        return move.lag_bytes <= self._steps.swap_lag_bytes and not move.log.known_producers.are_held_back

    def _is_wanted(self, move: ReplicaMove) -> bool:
        return self._logs.moves.under_way.get(move.log.topic_partition) is move

    def _swap(self, move: ReplicaMove, partition: Partition) -> None:
        while move.lag_bytes:
            move.copy(self._steps.copy_bytes)
        partition.move_to(self._logs.moves.finish(move))
        log.info("the move of %s to %s is complete", move.log.topic_partition, move.log_dir)

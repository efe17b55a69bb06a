"""The follower's side of a fetch session with one leader (KIP-227).

A request names only the partitions whose fetch position changed since the previous request. After the leader has sent
records or an error for a partition, the leader sends no further result until a request names the partition again.
Therefore two requests may be in flight, and a partition that fails backs off without delaying the other partitions.

The moves of replicas between the log dirs of this broker (KIP-113): a move copies, catches up, and swaps the logs.
Replicas are served while they move. After a new disk is added hundreds of replicas may move, but only one of them
copies or swaps in a turn of the event loop. `replica.alter.log.dirs.io.max.bytes.per.second` limits the copying.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Final

import msgspec

from barnabas_broker.replication.leader_replica import FetchPosition
from barnabas_broker.replication.other_brokers import Links
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.errors import LogDirFailed, StorageError
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.log_dirs.replica_moves import ReplicaMove
from barnabas_broker.wire.fetch import FetchPartition
from barnabas_broker.wire.replica_fetch import FetchedPartition, ReplicaFetchResponse
from barnabas_core.clock import Cancellable, Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.log_config import LONG_MAX
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_partition import TopicPartition

UNLIMITED: Final = LONG_MAX
BURST_S: Final = 1.0
PAUSE_S_MAX: Final = 1.0
"""The maximum length of a pause in seconds; after each pause the rate is read again, as it may have changed."""
PAUSE_S_MIN: Final = 0.01


class Throttle:
    """The token bucket; `rate` returns the limit in bytes per second.

    The tokens may become negative, because the size of a response is known only after records were read or fetched.
    """

    def __init__(self, clock: Clock, rate: Callable[[], int]) -> None:
        self._clock = clock
        self._rate = rate
        self._left_bytes = 0.0
        self._filled_s = -BURST_S
        self.bytes_total = 0

    @property
    def is_limited(self) -> bool:
        """True if a rate limit is set."""
        return self._rate() < UNLIMITED

    def take(self, size_bytes: int) -> None:
        """Count bytes that were sent or fetched for throttled replicas, and take as many tokens."""
        self.bytes_total += size_bytes
        self._fill()
        self._left_bytes -= size_bytes

    def pause_s(self) -> float:
        """Return the time in seconds for which throttled replicas have to pause now, or 0."""
        if not self.is_limited:
            return 0.0
        self._fill()
        if self._left_bytes > 0:
            return 0.0
        rate = self._rate()
        wait_s = -self._left_bytes / rate if rate else PAUSE_S_MAX
        return min(max(wait_s, PAUSE_S_MIN), PAUSE_S_MAX)

    def _fill(self) -> None:
        now_s, rate = self._clock.monotonic_s(), self._rate()
        self._left_bytes = min(self._left_bytes + (now_s - self._filled_s) * rate, rate * BURST_S)
        self._filled_s = now_s


log = logging.getLogger(__name__)

NO_SESSION: Final = 0
SESSION_EPOCH_MAX: Final = 2**31 - 1
FIRST_PAUSE_S: Final = 0.02
"""The pause in seconds after a first failure, doubled with each further failure."""
DOUBLINGS_MAX: Final = 20
FAILURES_LOGGED: Final = 7
"""The number of consecutive failures, over about a second, after which a warning is logged."""
FAILURES_LOGGED_EACH: Final = 3600
"""The number of further failures after which the warning is logged again.

The pause between two failures is then 1 s, so the warning is logged about once an hour.
"""
NOT_ASKED: Final = -1
UNKNOWN_LAG: Final = -1

Key = tuple[bytes, int]
"""A topic id and a partition index."""


class FetchEnvironment(msgspec.Struct, frozen=True):
    """The objects and functions that all fetchers of a broker share."""

    broker_id: int
    broker_epoch: Callable[[], int]
    links: Links
    clock: Clock
    timers: Timers
    config: Callable[[], BrokerConfig]
    storage_failed: Callable[[Partition, StorageError], object]
    """Take the partition offline, or its whole log dir if the disk failed.

    A temporary error, such as a full disk, takes nothing offline.
    """
    on_suspect: Callable[[int, int | None], object]
    """Report that the connection to a broker failed, so that the controller checks whether the broker is alive.

    The second argument is the broker epoch of the incarnation that has answered last; None if none has.
    """
    epoch_of: Callable[[int], int | None]
    """Return the registered epoch of a broker."""


class Followed:
    """A partition that this broker fetches from its leader."""

    __slots__ = ("asked_in", "failures", "lag", "partition", "pause", "position")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.asked_in = NOT_ASKED
        """The number of the last request that named the partition; results with lower numbers are ignored."""
        self.position: FetchPosition | None = None
        """The fetch position in the last request that named the partition."""
        self.failures = 0
        """The number of consecutive failures to fetch this partition."""
        self.pause: Cancellable | None = None
        self.lag = UNKNOWN_LAG
        """The leader's high watermark minus the follower's log end offset, at least 0, as of the last response."""

    def end_pause(self) -> None:
        """Cancel the pause of the partition, if the partition is paused."""
        if self.pause is not None:
            self.pause.cancel()
            self.pause = None


def pause_s(failures: int, longest_ms: int) -> float:
    """Return the pause in seconds after consecutive failures; each failure doubles the pause, up to `longest_ms`."""
    return min(longest_ms / 1000, FIRST_PAUSE_S * (1 << min(failures - 1, DOUBLINGS_MAX)))


class FetchSession:
    """The partitions fetched from one leader.

    A partition pauses after a failure, or because of the throttle; `wake` is called when the pause ends.
    """

    def __init__(
        self, leader_id: int, environment: FetchEnvironment, throttle: Throttle, wake: Callable[[], None]
    ) -> None:
        self._leader_id = leader_id
        self._environment = environment
        self._throttle = throttle
        self._wake = wake
        self._followed: dict[Key, Followed] = {}
        self._changed: dict[Key, Followed] = {}
        self._forgotten: dict[Key, None] = {}
        self._arrived: deque[tuple[int, Key, FetchedPartition]] = deque()
        """The results that have not been applied to their partitions yet, each with the number of its Fetch request."""
        self._first_number = 0
        """The number of the session's first request; responses to requests with lower numbers are ignored."""
        self.session_id = NO_SESSION
        self.session_epoch = 0

    @property
    def followed(self) -> Iterable[Followed]:
        """The partitions of the session, paused ones included."""
        return self._followed.values()

    @property
    def is_empty(self) -> bool:
        """True if the session has no partitions."""
        return not self._followed

    @property
    def has_news(self) -> bool:
        """True if the next Fetch request must add, change or forget partitions of the session (KIP-227)."""
        return bool(self._changed or self._forgotten)

    def follow(self, partition: Partition) -> None:
        """Add the partition if the session lacks it; end its pause, and name it in the next request."""
        key = _key(partition)
        followed = self._followed.setdefault(key, Followed(partition))
        followed.partition = partition
        followed.end_pause()
        followed.failures = 0
        self._forgotten.pop(key, None)
        self._changed[key] = followed

    def unfollow(self, partition: Partition) -> None:
        """Remove a partition; if a request has named it, the next request tells the leader to forget it."""
        key = _key(partition)
        followed = self._followed.pop(key, None)
        if followed is None:
            return
        followed.end_pause()
        self._changed.pop(key, None)
        if followed.asked_in != NOT_ASKED:
            self._forgotten[key] = None

    def clear(self) -> None:
        """Remove all partitions from the session."""
        for followed in list(self._followed.values()):
            self.unfollow(followed.partition)

    def restart(self, next_number: int) -> None:
        """Begin a new session whose first request has the number `next_number` and names all unpaused partitions.

        The results that have not been applied yet are dropped.
        """
        self.session_id, self.session_epoch = NO_SESSION, 0
        self._first_number = next_number
        self._forgotten.clear()
        self._arrived.clear()
        for followed in self._followed.values():
            followed.asked_in = NOT_ASKED
        self._changed = {key: each for key, each in self._followed.items() if each.pause is None}

    def news(self, number: int) -> tuple[dict[bytes, list[FetchPartition]], dict[bytes, list[int]]]:
        """Return the partitions that the next Fetch request adds or changes, and those that it forgets, by topic id.

        The queue of changed partitions is emptied. A changed partition is left out if the throttle pauses it, or if its
        log has to be synced first.
        """
        changed, self._changed = self._changed, {}
        forgotten, self._forgotten = self._forgotten, {}
        max_bytes = self._environment.config().replica_fetch_max_bytes
        named: dict[bytes, list[FetchPartition]] = {}
        for key, followed in changed.items():
            position = self._position(key, followed)
            if position is None or self._is_throttled(key, followed):
                continue
            followed.position, followed.asked_in = position, number
            offset, fetched_epoch, leader_epoch, log_start_offset = position
            asked = FetchPartition(key[1], leader_epoch, offset, fetched_epoch, log_start_offset, max_bytes)
            named.setdefault(key[0], []).append(asked)
        indexes: dict[bytes, list[int]] = {}
        for topic_id, index in forgotten:
            indexes.setdefault(topic_id, []).append(index)
        return named, indexes

    def _position(self, key: Key, followed: Followed) -> FetchPosition | None:
        """Return the fetch position; None if the partition was removed, its log failed, or its log must be synced.

        A fetch confirms to the leader that all earlier records are on the follower's disk.
        """
        if self._followed.get(key) is not followed or followed.partition.log.syncs.unsynced_from is not None:
            return None
        try:
            return followed.partition.follower.fetch_position(followed.partition.state.leader_epoch)
        except StorageError as error:
            self._storage_failed(key, followed, error)
            return None

    def _is_throttled(self, key: Key, followed: Followed) -> bool:
        """Pause the partition if the throttle requires a pause; return True if the partition was paused."""
        if followed.lag == 0 or not self._counts(followed.partition):
            return False
        pause_s = self._throttle.pause_s()
        if pause_s:
            followed.pause = self._environment.timers.call_later(pause_s, lambda: self._resume(key, followed))
        return pause_s > 0

    def _counts(self, partition: Partition) -> bool:
        """True if the bytes fetched for the partition count towards the follower's replication throttle."""
        throttled, index = partition.log.config.follower_throttled_replicas, partition.topic_partition.partition
        return self._throttle.is_limited and throttled.includes(index, self._environment.broker_id)

    def sent(self) -> None:
        """Advance the session epoch, because a request was sent."""
        self.session_epoch = self.session_epoch % SESSION_EPOCH_MAX + 1

    def arrived(self, number: int, response: ReplicaFetchResponse) -> bool:
        """Queue the results of a response; return False if the leader refused the request.

        A response to a request of an earlier session is ignored.
        """
        if number < self._first_number:
            return True
        if response.error or response.session_id == NO_SESSION:
            return False
        self.session_id = response.session_id
        for topic_id, results in response.topics:
            self._arrived += ((number, (topic_id, result.partition), result) for result in results)
        return True

    def take_over(self, bytes_max: int) -> bool:
        """Apply queued results, up to about `bytes_max` bytes or some milliseconds; return True if results are left."""
        now_ms, turn = self._environment.clock.now_ms(), FairTurn(self._environment.clock)
        while self._arrived and bytes_max > 0 and turn.take():
            number, key, result = self._arrived.popleft()
            bytes_max -= len(result.records)
            followed = self._followed.get(key)
            if followed is not None and followed.asked_in <= number and key not in self._changed:
                self._apply_partition(key, followed, result, now_ms)
        return bool(self._arrived)

    def _apply_partition(self, key: Key, followed: Followed, result: FetchedPartition, now_ms: int) -> None:
        """Apply the result for one partition; a failure pauses only this partition."""
        try:
            moved = self._take_over(followed, result, now_ms)
        except ApiError as error:
            self._pause(key, followed, str(error))
        except StorageError as error:
            self._storage_failed(key, followed, error)
        else:
            followed.failures = 0
            if moved:
                self._changed[key] = followed

    def _take_over(self, followed: Followed, result: FetchedPartition, now_ms: int) -> bool:
        """Apply the result for one partition; return True if the fetch position changed.

        Raises ApiError if the follower must pause fetching the partition, and StorageError if its log fails.
        """
        partition = followed.partition
        follower, leader_epoch = partition.follower, partition.state.leader_epoch
        if result.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            follower.out_of_range(result.log_start_offset, result.last_stable_offset, now_ms)
        elif result.error:
            raise ApiError(_known(result.error), f"error {result.error}")
        elif result.diverging_epoch is not None:
            follower.diverged(*result.diverging_epoch)
        else:
            if result.records and self._counts(partition):
                self._throttle.take(len(result.records))
            follower.append(result.records, leader_epoch, result.high_watermark, result.log_start_offset, now_ms)
        position = follower.fetch_position(leader_epoch)
        followed.lag = max(result.high_watermark - position.offset, 0)
        if position != followed.position:
            return True
        if result.error or result.diverging_epoch is not None or result.records:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the leader's response did not advance the fetch position")
        return False

    def _storage_failed(self, key: Key, followed: Followed, error: StorageError) -> None:
        """Report a disk failure. If the partition stays online, as it does on a full disk, pause fetching it."""
        self._environment.storage_failed(followed.partition, error)
        if self._followed.get(key) is followed:
            self._pause(key, followed, str(error))

    def _pause(self, key: Key, followed: Followed, why: str) -> None:
        followed.failures += 1
        if followed.failures % FAILURES_LOGGED_EACH == FAILURES_LOGGED:
            log.warning("cannot fetch %s from broker %d: %s", followed.partition.topic_partition, self._leader_id, why)
        followed.end_pause()
        delay_s = pause_s(followed.failures, self._environment.config().replica_fetch_backoff_ms)
        followed.pause = self._environment.timers.call_later(delay_s, lambda: self._resume(key, followed))

    def _resume(self, key: Key, followed: Followed) -> None:
        followed.pause = None
        self._changed[key] = followed
        self._wake()


def _key(partition: Partition) -> Key:
    return partition.topic_id.bytes, partition.topic_partition.partition


def _known(code: int) -> ErrorCode:
    return ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR


TRUNCATION_S: Final = 0.05
"""The interval in seconds at which a move checks whether a truncation of its log has ended."""


class MoveSteps(msgspec.Struct, frozen=True):
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
        move.copy(self._steps.copy_bytes)  # An empty segment needs a file, too.
        partition.move_to(self._logs.moves.finish(move))
        log.info("the move of %s to %s is complete", move.log.topic_partition, move.log_dir)

"""The follower's side of a fetch session with one leader (KIP-227).

A request names only the partitions whose fetch position changed since the previous request. After the leader has sent
records or an error for a partition, the leader sends no further result until a request names the partition again.
Therefore two requests may be in flight, and a partition that fails backs off without delaying the other partitions.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from barnabas_broker.replication.links import Links
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.partition_environment import FetchPosition
from barnabas_broker.replication.throttle import Throttle
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.wire.fetch import FetchPartition
from barnabas_broker.wire.replica_fetch import FetchedPartition, ReplicaFetchResponse
from barnabas_core.clock import Cancellable, Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.fair_turns import FairTurn

log = logging.getLogger(__name__)

NO_SESSION: Final = 0
SESSION_EPOCH_MAX: Final = 2**31 - 1
FIRST_PAUSE_S: Final = 0.02
"""The pause in seconds after a first failure, doubled with each further failure."""
DOUBLINGS_MAX: Final = 20
FAILURES_TOLD: Final = 7
"""The number of consecutive failures, over about a second, after which a warning is logged."""
FAILURES_TOLD_EACH: Final = 3600
"""The number of further failures after which the warning is logged again.

The pause between two failures is then 1 s, so the warning is logged about once an hour.
"""
NOT_ASKED: Final = -1
UNKNOWN_LAG: Final = -1

Key = tuple[bytes, int]
"""A topic id and a partition index."""


class FetchEnvironment(NamedTuple):
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
    on_suspect: Callable[[int], object]
    """Report that the connection to a broker failed, so that the controller checks whether the broker is alive."""


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
        if followed.failures % FAILURES_TOLD_EACH == FAILURES_TOLD:
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

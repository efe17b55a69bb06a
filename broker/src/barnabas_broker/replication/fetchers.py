"""The fetchers of this broker: a `Fetcher` for each leader of partitions that this broker follows.

The fetcher of partitions from one leader. The fetcher always has a request in flight, and the leader delays the
response until records arrive. A partition that is added in the meantime does not wait: the fetcher names the
partition in a second request, and the leader then answers the first request at once.
"""

import logging
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from barnabas_broker.replication.fetch_session import NO_SESSION, FetchEnvironment, FetchSession, Throttle, pause_s
from barnabas_broker.replication.other_brokers import Link
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.replica_fetch import (
    MalformedResponse,
    ReplicaFetch,
    encode_replica_fetch,
    parse_replica_fetch_response,
)
from barnabas_core.clock import Cancellable
from barnabas_core.loop_turns import APPENDED_BYTES, timed
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)

REQUESTS_MAX: Final = 2
"""The maximum number of requests in flight."""
TIMER_S_MIN: Final = 0.001
NO_EPOCH: Final = -1


class Fetcher:
    """The sender of fetch requests to one leader, for the partitions in its `session`."""

    def __init__(self, leader_id: int, environment: FetchEnvironment, throttle: Throttle) -> None:
        self.leader_id = leader_id
        self._environment = environment
        self._client_id = f"broker-{environment.broker_id}-fetcher"
        self.session = FetchSession(leader_id, environment, throttle, self._wake)
        self._link: Link | None = None
        self._link_epoch: int | None = None
        """The registered broker epoch of the leader when the connection was opened."""
        self._answered_epoch: int | None = None
        """The epoch of the connection that was last answered, so that the leader has listened in it; None before."""
        self._next_number = 1
        self._broker_epoch = NO_EPOCH
        self._sent_s: deque[float] = deque()
        """The monotonic times in seconds at which the unanswered requests were sent, oldest first."""
        self._is_woken = False
        self._is_taking_over = False
        self._failures = 0
        self._retry: Cancellable | None = None
        self._watchdog: Cancellable | None = None
        self.requests = 0
        self.bytes_in = 0

    def follow(self, partition: Partition) -> None:
        """Begin to fetch a partition, or continue in its current leader epoch; end the partition's pause, if any."""
        self.session.follow(partition)
        self._wake()

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching a partition; close the connection after the last partition."""
        self.session.unfollow(partition)
        self._wake()

    def close(self) -> None:
        """Stop fetching all partitions and close the connection."""
        self.session.clear()
        self._rest()

    def _rest(self) -> None:
        """Close the connection and cancel a retry, because the session has no partitions."""
        self._drop_link()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _wake(self) -> None:
        """Schedule one call of `_ask` for the next turn of the event loop, however many partitions change by then."""
        if not self._is_woken:
            self._is_woken = True
            self._environment.timers.call_soon(self._woken)

    def _woken(self) -> None:
        self._is_woken = False
        self._ask()

    def _ask(self) -> None:
        """Connect if needed; send a request if none is in flight, or a second one if partitions have changed."""
        if self.session.is_empty:
            self._rest()
            return
        if self._retry is not None:
            return
        if self._link is None:
            self._link = self._environment.links.open(self.leader_id, self._broke)
            self._link_epoch = self._environment.epoch_of(self.leader_id)
        under_way = len(self._sent_s)
        is_second = under_way < REQUESTS_MAX and self.session.has_news and self.session.session_id != NO_SESSION
        if under_way == 0 or is_second:
            self._send(self._link)

    def _send(self, link: Link) -> None:
        number, broker_epoch = self._next_number, self._environment.broker_epoch()
        if broker_epoch != self._broker_epoch:  # A new broker epoch requires a new session.
            self._broker_epoch = broker_epoch
            self.session.restart(number)
        named, forgotten = self.session.news(number)
        config = self._environment.config()
        fetch = ReplicaFetch(
            self._client_id,
            self._environment.broker_id,
            broker_epoch,
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            self.session.session_id,
            self.session.session_epoch,
        )
        self._next_number += 1
        self.session.sent()
        self.requests += 1
        self._sent_s.append(self._environment.clock.monotonic_s())
        if self._watchdog is None:
            self._watch(config.replica_socket_timeout_ms / 1000)
        link.send(encode_replica_fetch(number & 0x7FFFFFFF, fetch, named, forgotten), partial(self._answered, number))

    def _answered(self, number: int, frame: memoryview) -> None:
        self._sent_s.popleft()
        self.bytes_in += len(frame)
        try:
            response = parse_replica_fetch_response(frame)
        except MalformedResponse as error:
            self._broke(str(error))
            return
        if response.correlation_id != number & 0x7FFFFFFF:
            self._broke(f"the correlation id {response.correlation_id} does not match the request {number}")
            return
        self._answered_epoch = self._link_epoch
        if self.session.arrived(number, response):
            self._failures = 0
            if not self._is_taking_over:
                self._take_over()
        else:
            log.info("broker %d refused the fetch session with error %d", self.leader_id, response.error)
            self.session.restart(self._next_number)
            self._ask_later()

    @timed("append of fetched records")
    def _take_over(self) -> None:
        """Apply queued results in several turns of the event loop, then send the next request."""
        self._is_taking_over = self.session.take_over(APPENDED_BYTES)
        if self._is_taking_over:
            self._environment.timers.call_soon(self._take_over)
        else:
            self._ask()

    def _broke(self, reason: str) -> None:
        """Close the failed connection, report the broker as suspect, and retry later."""
        level = logging.DEBUG if self._failures else logging.INFO
        log.log(level, "the connection to broker %d failed: %s", self.leader_id, reason)
        self._drop_link()
        self._environment.on_suspect(self.leader_id, self._answered_epoch)
        self._ask_later()

    def _drop_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        self._sent_s.clear()
        self.session.restart(self._next_number)

    def _ask_later(self) -> None:
        if self._retry is None:
            self._failures += 1
            delay_s = pause_s(self._failures, self._environment.config().replica_fetch_backoff_ms)
            self._retry = self._environment.timers.call_later(delay_s, self._ask_again)

    def _ask_again(self) -> None:
        self._retry = None
        self._ask()

    def _watch(self, delay_s: float) -> None:
        self._watchdog = self._environment.timers.call_later(max(delay_s, TIMER_S_MIN), self._check_response)

    def _check_response(self) -> None:
        """Close the connection if the oldest request has had no response for `replica.socket.timeout.ms`."""
        self._watchdog = None
        if not self._sent_s:
            return
        timeout_ms = self._environment.config().replica_socket_timeout_ms
        left_s = self._sent_s[0] + timeout_ms / 1000 - self._environment.clock.monotonic_s()
        if left_s > 0:
            self._watch(left_s)
        else:
            self._broke(f"no response came within replica.socket.timeout.ms={timeout_ms}")


class FetchStatus(msgspec.Struct, frozen=True):
    """The status of a fetched partition, with its lag in offsets, and whether the last fetch failed."""

    topic_partition: TopicPartition
    leader_id: int
    lag: int
    is_failing: bool


class Fetchers:
    """The fetchers of this broker, one for each leader."""

    def __init__(self, environment: FetchEnvironment) -> None:
        self._environment = environment
        self.throttle = Throttle(environment.clock, lambda: environment.config().follower_replication_throttled_rate)
        self._fetchers: dict[int, Fetcher] = {}
        self._fetched_from: dict[tuple[UUID, int], Fetcher] = {}

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its current leader in its current leader epoch, and no longer from another leader."""
        key = partition.topic_id, partition.topic_partition.partition
        leader_id = partition.state.leader
        previous = self._fetched_from.get(key)
        if previous is not None and previous.leader_id != leader_id:
            previous.unfollow(partition)
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(leader_id, self._environment, self.throttle)
        self._fetched_from[key] = fetcher
        fetcher.follow(partition)

    def go_on(self, partition: Partition) -> None:
        """Resume the fetches of a partition after a sync of its log; do nothing if this broker is not a follower."""
        fetcher = self._fetched_from.get((partition.topic_id, partition.topic_partition.partition))
        if fetcher is not None:
            fetcher.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching a partition, if it is being fetched."""
        fetcher = self._fetched_from.pop((partition.topic_id, partition.topic_partition.partition), None)
        if fetcher is not None:
            fetcher.unfollow(partition)

    def close(self) -> None:
        """Stop fetching all partitions and close the connections."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._fetched_from.clear()

    def status(self) -> Iterator[FetchStatus]:
        """Yield the status of every fetched partition; partitions may change during the iteration."""
        for fetcher in list(self._fetchers.values()):
            for each in list(fetcher.session.followed):
                yield FetchStatus(
                    each.partition.topic_partition, fetcher.leader_id, max(each.lag, 0), each.failures > 0
                )

    @property
    def requests(self) -> int:
        """The number of fetch requests that the current fetchers have sent."""
        return sum(fetcher.requests for fetcher in self._fetchers.values())

    @property
    def bytes_in(self) -> int:
        """The number of bytes that the current fetchers have received."""
        return sum(fetcher.bytes_in for fetcher in self._fetchers.values())

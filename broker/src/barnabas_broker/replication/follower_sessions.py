"""The leader's side of the fetch sessions (KIP-227): one session for each broker that follows partitions.

The leader reads a partition only if a request names the partition, or after the partition has changed. After a result
with records or an error, a partition gets no further result until the follower names the partition again. A request
without results waits until records are appended, or until its `max_wait_ms` has passed.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from barnabas_broker.replication.fetch_session import Throttle
from barnabas_broker.replication.partition import Partition, no_replica
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.wire.fetch import FetchPartition, FetchRequest, FetchResult, FetchTopic, ForgottenTopic
from barnabas_broker.wire.framing import FileSlice
from barnabas_core.clock import Cancellable, Clock, Timers, monotonic_ms
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import STEP_ELEMENTS, InSteps, in_steps

NO_OFFSET: Final = -1


class Session(Protocol):
    """The fetch session that a partition notifies of changes. Notifications are frequent, so they must be cheap."""

    follower_id: int

    def has_records(self, partition: "FollowerPartition") -> None:
        """Mark the partition as one to read for the next response, because it may have records or an error."""
        ...

    def has_news(self, partition: "FollowerPartition") -> None:
        """Include the partition's high watermark and log start offset in the next response."""
        ...


class FollowerPartition:
    """A partition in a follower's session; `is_waiting` is True until a result with records or an error is sent."""

    __slots__ = ("_sent", "_session", "is_waiting", "partition", "topic", "wanted")

    def __init__(self, session: Session, topic: FetchTopic, partition: Partition, wanted: FetchPartition) -> None:
        self._session = session
        self._sent = (NO_OFFSET, NO_OFFSET)
        """The high watermark and the log start offset last sent to the follower; NO_OFFSET to send both again."""
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.is_waiting = False

    def changed(self) -> None:
        """Notify the session of appended records or of a new leader if the follower waits for records."""
        if self.is_waiting:
            self._session.has_records(self)

    def high_watermark_advanced(self) -> None:
        """Notify the session of a new high watermark or log start offset if the follower waits for records."""
        if self.is_waiting:
            self._session.has_news(self)

    def named(self, wanted: FetchPartition, broker_epoch: int, now_ms: int) -> FetchResult | None:
        """Store the fetch offset of a request; return a result if the follower's log diverges, otherwise None.

        Raises ApiError if this broker does not lead the partition, if the follower is not one of the replicas, or if
        the log does not contain the fetch offset. Raises StorageError if the disk fails.
        """
        self.wanted = wanted
        self.is_waiting = False
        self._sent = (NO_OFFSET, NO_OFFSET)  # The last response may be lost, so the offsets are sent again.
        partition, follower_id, offset = self.partition, self._session.follower_id, wanted.fetch_offset
        partition.check_readable(wanted.current_leader_epoch)
        self._check_is_replica()
        diverging = diverging_epoch(partition, wanted)
        if diverging is not None:
            return self._result(None, diverging)
        log = partition.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            allowed = f"{log.log_start_offset} to {log.log_end_offset}"
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the fetch offset is {offset}, but the log of {log.topic_partition} has the offsets {allowed}",
            )
        self.is_waiting = True
        partition.fetched_by(follower_id, broker_epoch, offset, wanted.log_start_offset, now_ms)
        return None

    @property
    def has_more(self) -> bool:
        """True if the log ends after the follower's fetch offset."""
        return self.partition.log.log_end_offset > self.wanted.fetch_offset

    def read(self, length_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        """Return records from the fetch offset on; None if the log has no more, or if the first batch is too large.

        Raises ApiError if this broker does not lead the partition, or if the follower is not one of the replicas.
        Raises StorageError if the disk fails.
        """
        partition, wanted = self.partition, self.wanted
        partition.check_readable(wanted.current_leader_epoch)
        self._check_is_replica()
        log, length_max = partition.log, min(wanted.max_bytes, length_max)
        return log.read(wanted.fetch_offset, length_max, log.log_end_offset, at_least_one_batch=at_least_one_batch)

    def _check_is_replica(self) -> None:
        follower_id, replicas = self._session.follower_id, self.partition.state.replicas
        if follower_id not in replicas:
            raise no_replica(follower_id, replicas)

    def counts_for_throttle(self, leader_id: int) -> bool:
        """True if the bytes sent for the partition count towards the leader's replication throttle."""
        partition = self.partition
        return partition.log.config.leader_throttled_replicas.includes(self.wanted.partition, leader_id)

    @property
    def is_in_sync(self) -> bool:
        """True if the follower is in the ISR, in which case the throttle does not delay the partition."""
        return self._session.follower_id in self.partition.state.isr

    def sent(self, records: FileSlice) -> FetchResult:
        """Return a result with `records`, and count their bytes as sent to followers.

        The follower gets no further result for the partition until one of its Fetch requests lists the partition again.
        """
        self.is_waiting = False
        self.partition.sent_to_follower(records.length)
        return self._result(records)

    def news(self) -> FetchResult | None:
        """Return a result without records that sends the high watermark and the log start offset to the follower.

        Return None if the follower already has both offsets, or does not wait for records.
        """
        log = self.partition.log
        is_known = self._sent == (log.high_watermark, log.log_start_offset)
        return None if is_known or not self.is_waiting else self._result(None)

    def refused(self, error: ApiError) -> FetchResult:
        """Return the result for an error.

        In a result with OFFSET_OUT_OF_RANGE, the field for the last stable offset has the log end offset, to which a
        follower truncates its log.
        """
        self.is_waiting = False
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return refusal(self.wanted.partition, error)
        log = self.partition.log
        return FetchResult(
            self.wanted.partition,
            error.code,
            log.high_watermark,
            log.log_end_offset,
            log.log_start_offset,
            None,
        )

    def _result(self, records: FileSlice | None, diverging: tuple[int, int] | None = None) -> FetchResult:
        log = self.partition.log
        high_watermark, log_start_offset = self._sent = log.high_watermark, log.log_start_offset
        return FetchResult(
            self.wanted.partition,
            ErrorCode.NONE,
            high_watermark,
            high_watermark,
            log_start_offset,
            records,
            diverging,
        )


def refusal(index: int, error: ApiError) -> FetchResult:
    """Return a result with an error and without offsets."""
    return FetchResult(index, error.code, NO_OFFSET, NO_OFFSET, NO_OFFSET, None)


def diverging_epoch(partition: Partition, wanted: FetchPartition) -> tuple[int, int] | None:
    """Return where a follower's log diverges from the leader's log (KIP-595), or None if no divergence is known.

    The result is the leader's largest epoch that is at most the follower's last fetched epoch, and the end offset of
    that epoch in the leader's log.
    """
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return None
    return epoch, end_offset


NO_SESSION: Final = 0
SESSION_EPOCH_MAX: Final = 2**31 - 1

TopicKey = bytes | str
"""The topic id, or the topic name if the request has no topic id."""
FetchResults = dict[TopicKey, tuple[FetchTopic, list[FetchResult]]]


class FollowerAnswer(NamedTuple):
    """The content of a response: an error for the whole request, or the results for partitions."""

    error: int
    session_id: int
    topics: list[tuple[FetchTopic, list[FetchResult]]]


SESSION_GONE: Final = FollowerAnswer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, NO_SESSION, [])
SendAnswer = Callable[[FollowerAnswer], None]


class LeaderEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of all sessions."""

    broker_id: int
    find: Callable[[str | None, bytes | None, int], Partition]
    """Return the partition with a topic name or topic id, and a partition index.

    Raises ApiError if this broker does not have the partition.
    """
    storage_failed: Callable[[Partition, StorageError], ApiError]
    clock: Clock
    timers: Timers
    config: Callable[[], BrokerConfig]
    registered_epoch: Callable[[int], int | None]
    """Return the broker epoch of a registered broker, None for any other broker."""


class FollowerSessions:
    """The sessions of all followers, at most one for each broker id."""

    def __init__(self, environment: LeaderEnvironment) -> None:
        self._environment = environment
        self._sessions: dict[int, FollowerSession] = {}
        self.throttle = Throttle(environment.clock, lambda: environment.config().leader_replication_throttled_rate)
        self._last_id = NO_SESSION

    def fetch(self, request: FetchRequest, send: SendAnswer) -> None:
        """Answer a follower's request now or later, but never before an earlier request of the same session.

        A request with another broker epoch than the registered one is refused, because such a request must not advance
        the high watermark (KIP-903).
        """
        session = self._session_of(request, send)
        if session is not None:
            session.fetch(request, send)

    def answer_in_steps(self, request: FetchRequest) -> InSteps[FollowerAnswer]:
        """Answer a request for very many partitions in steps, without a wait for records.

        Other requests may come between two steps. If the follower then has another session or another broker epoch, the
        rest of this request is dropped.
        """
        answers: list[FollowerAnswer] = []
        session = self._session_of(request, answers.append)
        if session is not None:
            attempt, follower_id = _Attempt(is_urgent=True), request.replica_id
            for _ in session.read_in_steps(attempt, request):
                yield 0
                epoch = self._environment.registered_epoch(follower_id)
                if self._sessions.get(follower_id) is not session or epoch != request.replica_epoch:
                    return SESSION_GONE
            session.answer(attempt, answers.append)
        return answers[0]

    def _session_of(self, request: FetchRequest, send: SendAnswer) -> "FollowerSession | None":
        """Return the session of a request, which may be new, or refuse the request and return None.

        The follower's waiting request, if any, is answered before the refusal.
        """
        follower_id = request.replica_id
        session = self._sessions.get(follower_id)
        registered_epoch = self._environment.registered_epoch(follower_id)
        if registered_epoch is None:
            error = ErrorCode.BROKER_ID_NOT_REGISTERED
        elif registered_epoch != request.replica_epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        elif request.session_id == NO_SESSION or request.session_epoch <= 0:
            return self._begin(follower_id)
        elif session is None or session.session_id != request.session_id:
            error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif session.next_epoch != request.session_epoch:
            error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        else:
            return session
        if session is not None:
            session.end_wait()
        send(FollowerAnswer(error, NO_SESSION, []))
        return None

    def _begin(self, follower_id: int) -> "FollowerSession":
        previous = self._sessions.get(follower_id)
        if previous is not None:
            previous.close()
        self._last_id = self._last_id % SESSION_EPOCH_MAX + 1
        session = self._sessions[follower_id] = FollowerSession(
            self._environment, self.throttle, follower_id, self._last_id
        )
        return session

    def close(self) -> None:
        """Close and remove all sessions."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    @property
    def partition_counts(self) -> dict[int, int]:
        """The number of partitions in each session, by the broker id of the follower."""
        return {follower_id: session.partition_count for follower_id, session in self._sessions.items()}


class _Attempt:
    """The results that one attempt to answer a Fetch request has read."""

    __slots__ = ("bytes_read", "is_urgent", "results", "served")

    def __init__(self, *, is_urgent: bool = False) -> None:
        self.is_urgent = is_urgent
        self.bytes_read = 0
        self.results: FetchResults = {}
        self.served: list[tuple[FollowerPartition, FileSlice]] = []

    def add(self, topic: FetchTopic, result: FetchResult) -> None:
        self.results.setdefault(_topic_key(topic), (topic, []))[1].append(result)

    def refuse(self, topic: FetchTopic, result: FetchResult) -> None:
        """Add a partition's result with an error or a diverging epoch, so that the response is sent at once."""
        self.is_urgent = True
        self.add(topic, result)

    def serve(self, partition: FollowerPartition, records: FileSlice) -> None:
        self.bytes_read += records.length
        self.served.append((partition, records))


class FollowerSession:
    """The session of one follower, with the follower's waiting request if a request waits."""

    def __init__(self, environment: LeaderEnvironment, throttle: Throttle, follower_id: int, session_id: int) -> None:
        self._environment = environment
        self._throttle = throttle
        self.follower_id = follower_id
        self.session_id = session_id
        self.next_epoch = 0
        self._partitions: dict[tuple[TopicKey, int], FollowerPartition] = {}
        self._ready: dict[FollowerPartition, None] = {}
        """The partitions that may have records or an error, in the order in which they are served."""
        self._held: dict[FollowerPartition, None] = {}
        """The partitions that the throttle delays."""
        self._release: Cancellable | None = None
        self._news: dict[FollowerPartition, None] = {}
        """The partitions whose high watermark or log start offset may have advanced since the last response."""
        self._send: SendAnswer | None = None
        self._bytes_min = self._bytes_max = 0
        self._deadline: Cancellable | None = None
        self._is_woken = False

    @property
    def partition_count(self) -> int:
        """The number of partitions in the session."""
        return len(self._partitions)

    def close(self) -> None:
        """Remove all partitions; answer a waiting request with FETCH_SESSION_ID_NOT_FOUND."""
        send = self._send
        self._stop_waiting()
        if self._release is not None:
            self._release.cancel()
        for key in list(self._partitions):
            self._drop(key)
        if send is not None:
            send(SESSION_GONE)

    def has_records(self, partition: FollowerPartition) -> None:
        """Mark a partition as one to read for the next response, because it may have records or an error.

        If a Fetch request of the follower waits, schedule an attempt to answer the request.
        """
        self._ready[partition] = None
        if self._send is not None and not self._is_woken:
            self._is_woken = True
            self._environment.timers.call_soon(self._woken)

    def has_news(self, partition: FollowerPartition) -> None:
        """Include the partition's high watermark and log start offset in the next response, without sending it now."""
        self._news[partition] = None

    def fetch(self, request: FetchRequest, send: SendAnswer) -> None:
        """Answer the previous request if it still waits; then answer `request`, at once or later.

        `request` is answered at once if its results have `min_bytes` bytes, an error or a diverging epoch, if it is the
        first of the session, or if its `max_wait_ms` is 0. Its fetch offsets confirm which records the follower has.
        """
        self.end_wait()
        attempt = _Attempt(is_urgent=self.next_epoch == 0 or request.max_wait_ms <= 0)
        self.next_epoch = self.next_epoch % SESSION_EPOCH_MAX + 1
        for forgotten in request.forgotten:
            for index in forgotten.partitions:
                self._drop((_topic_key(forgotten), index))
        now_ms = monotonic_ms(self._environment.clock)
        for topic in request.topics:
            for wanted in topic.partitions:
                self._name(attempt, topic, wanted, request.replica_epoch, now_ms)
        self._send = send
        self._bytes_min = max(request.min_bytes, 1)
        self._bytes_max = min(request.max_bytes, self._environment.config().fetch_max_bytes)
        if not self._answer_if_due(attempt):
            self._deadline = self._environment.timers.call_later(request.max_wait_ms / 1000, self._expired)

    def read_in_steps(self, attempt: _Attempt, request: FetchRequest) -> InSteps[None]:
        """Take the fetch offsets of a request, and read partitions for its response, in steps of a few partitions."""
        self.end_wait()
        self.next_epoch = self.next_epoch % SESSION_EPOCH_MAX + 1
        self._bytes_max = min(request.max_bytes, self._environment.config().fetch_max_bytes)
        yield from in_steps(
            ((_topic_key(topic), index) for topic in request.forgotten for index in topic.partitions), self._drop
        )
        named = ((topic, wanted) for topic in request.topics for wanted in topic.partitions)
        for number, (topic, wanted) in enumerate(named, 1):
            self._name(attempt, topic, wanted, request.replica_epoch, monotonic_ms(self._environment.clock))
            if number % STEP_ELEMENTS == 0:
                yield 0
        for number, each in enumerate(list(self._ready), 1):
            if each in self._ready and not self._read(each, attempt):
                break
            if number % STEP_ELEMENTS == 0:
                yield 0

    def answer(self, attempt: _Attempt, send: SendAnswer) -> None:
        """Answer with what an attempt has read in steps, after another request that has come in between."""
        self.end_wait()
        attempt.served = [each for each in attempt.served if each[0] in self._ready]
        self._send = send
        self._answer(attempt)

    def end_wait(self) -> None:
        """Answer the waiting request, if a request waits, with the records that are available now."""
        if self._send is not None:
            self._expired()

    def _name(
        self, attempt: _Attempt, topic: FetchTopic, wanted: FetchPartition, broker_epoch: int, now_ms: int
    ) -> None:
        try:
            each = self._find(topic, wanted)
        except ApiError as error:
            self._drop((_topic_key(topic), wanted.partition))
            attempt.refuse(topic, refusal(wanted.partition, error))
            return
        self._ready.pop(each, None)
        try:
            diverging = each.named(wanted, broker_epoch, now_ms)
        except (ApiError, StorageError) as error:
            attempt.refuse(each.topic, self._refused(each, error))
            return
        if diverging is not None:
            attempt.refuse(each.topic, diverging)
        else:
            self._ready[each] = None

    def _find(self, topic: FetchTopic, wanted: FetchPartition) -> FollowerPartition:
        """Return the partition from the session, or add it. Raises ApiError if this broker has no such partition."""
        key = _topic_key(topic), wanted.partition
        partition = self._environment.find(topic.name, topic.topic_id, wanted.partition)
        each = self._partitions.get(key)
        if each is None or each.partition is not partition:
            self._drop(key)
            named_topic = FetchTopic(topic.name, topic.topic_id, [])
            each = self._partitions[key] = FollowerPartition(self, named_topic, partition, wanted)
            partition.watchers.watch(self.follower_id, each)
        return each

    def _drop(self, key: tuple[TopicKey, int]) -> None:
        each = self._partitions.pop(key, None)
        if each is not None:
            each.partition.watchers.unwatch(self.follower_id, each)
            self._ready.pop(each, None)
            self._held.pop(each, None)
            self._news.pop(each, None)

    def _refused(self, each: FollowerPartition, error: ApiError | StorageError) -> FetchResult:
        if isinstance(error, StorageError):
            error = self._environment.storage_failed(each.partition, error)
        return each.refused(error)

    def _woken(self) -> None:
        """Try to answer the waiting request after partitions have changed."""
        self._is_woken = False
        if self._send is not None:
            self._answer_if_due(_Attempt())

    def _expired(self) -> None:
        """Answer the waiting request with the records that are available now."""
        self._answer_if_due(_Attempt(is_urgent=True))

    def _answer_if_due(self, attempt: _Attempt) -> bool:
        """Read the partitions that may have records, and respond if they have at least `min_bytes`.

        If the attempt is urgent, respond in any case. Return True if the response was sent.
        """
        for each in list(self._ready):
            if not self._read(each, attempt):
                break
        is_due = attempt.is_urgent or attempt.bytes_read >= self._bytes_min
        if is_due:
            self._answer(attempt)
        return is_due

    def _read(self, each: FollowerPartition, attempt: _Attempt) -> bool:
        """Read one partition for the response; return False if the response has no room for another partition."""
        if self._throttle.is_limited and self._holds_back(each):
            return True
        bytes_left = self._bytes_max - attempt.bytes_read
        try:
            records = each.read(bytes_left, at_least_one_batch=not attempt.bytes_read)
        except (ApiError, StorageError) as error:
            del self._ready[each]
            attempt.refuse(each.topic, self._refused(each, error))
            return True
        if records is not None:
            attempt.serve(each, records)
            return records.length < bytes_left
        if each.has_more:
            return False
        del self._ready[each]
        self._news[each] = None
        return True

    def _holds_back(self, each: FollowerPartition) -> bool:
        """Delay the partition if the throttle requires a pause; return True if the partition is delayed."""
        if not each.has_more or each.is_in_sync or not each.counts_for_throttle(self._environment.broker_id):
            return False
        pause_s = self._throttle.pause_s()
        if not pause_s:
            return False
        del self._ready[each]
        self._held[each] = None
        if self._release is None:
            self._release = self._environment.timers.call_later(pause_s, self._released)
        return True

    def _released(self) -> None:
        self._release = None
        held, self._held = self._held, {}
        for each in held:
            each.changed()

    def _answer(self, attempt: _Attempt) -> None:
        send = self._send
        assert send is not None
        self._stop_waiting()
        for each, records in attempt.served:
            del self._ready[each]
            if self._throttle.is_limited and each.counts_for_throttle(self._environment.broker_id):
                self._throttle.take(records.length)
            attempt.add(each.topic, each.sent(records))
        news, self._news = self._news, {}
        for each in news:
            result = each.news()
            if result is not None:
                attempt.add(each.topic, result)
        send(FollowerAnswer(ErrorCode.NONE, self.session_id, list(attempt.results.values())))

    def _stop_waiting(self) -> None:
        self._send = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _topic_key(topic: FetchTopic | ForgottenTopic) -> TopicKey:
    return topic.topic_id or topic.name or ""

"""Fetch (1), v4 to v18, of consumers and followers.

The response consists of encoded headers, and of slices of segment files that the kernel sends. v12 is flexible and adds
the last fetched epoch; v13 replaces topic names by topic ids. Consumers get no fetch sessions (KIP-227): the session id
is always 0. A request without min_bytes of records waits in the purgatory; while it waits, only partitions that change
are read again. Topics that the consumer may not read are refused, and followers without ClusterAction.

A follower's `replica_id` is its broker id; v15 adds the broker epoch. It reads up to the log end offset, in an
incremental fetch session (KIP-227). While a response waits, the broker reads further requests from the connection. The
follower's next request ends the wait, and the responses keep their order. A request with a replica id is refused on all
listeners but the inter-broker listener of that replica; otherwise a client on another listener could move the high
watermark. A request above LARGE_FETCH_BYTES takes several turns of the event loop, from its parsing to the freeing of
its results.
"""

from collections.abc import Callable, Collection
from itertools import count
from typing import Final

import msgspec

from barnabas_broker.handlers.channel import Channel, Client, GiveUp, TakesTurns, lacking, may_act_as_broker, rights_of
from barnabas_broker.handlers.handler_environment import LEADER_ERRORS, HandlerEnvironment, current_leader
from barnabas_broker.handlers.large_responses import CloseConnection, SharedTurn
from barnabas_broker.replication.follower_sessions import NO_SESSION, FollowerAnswer, diverging_epoch
from barnabas_broker.replication.leader_replica import WaitList
from barnabas_broker.replication.partition import Partition
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.logs.log import aborted_among
from barnabas_broker.storage.logs.offset_lookup import last_stable_offset
from barnabas_broker.wire.fetch import (
    SESSIONS_SINCE,
    FetchPartition,
    FetchRequest,
    FetchResult,
    FetchTopic,
    encode_fetch_response,
    fetch_response_in_steps,
    parse_fetch,
    parse_fetch_in_steps,
)
from barnabas_broker.wire.framing import MalformedRequest, Part
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.config.log_config import Compression
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import LARGE_FETCH_BYTES, STEP_ELEMENTS, InSteps


def answer_replica_fetch(
    environment: HandlerEnvironment, channel: Channel, version: int, correlation_id: int, request: FetchRequest
) -> None:
    """Respond to a follower as soon as there are new records, or refuse it (`may_follow`)."""

    def answer(found: FollowerAnswer) -> None:
        error, session_id, topics = found
        channel.answer(encode_fetch_response(correlation_id, version, topics, session_id, error))

    if may_follow(environment, channel.client, request.replica_id):
        if request.session_id == NO_SESSION:
            _watch(environment, channel, request)
        environment.followers.fetch(request, answer)
    else:
        refuse_follower(channel, version, correlation_id)


def _watch(environment: HandlerEnvironment, channel: Channel, request: FetchRequest) -> None:
    """Report the follower as a suspect when its connection closes: it may be in sync while it leads nothing."""
    report = _Closed(environment.suspect, request.replica_id, request.replica_epoch)
    if report not in channel.when_closed:
        channel.when_closed.append(report)


class _Closed(msgspec.Struct, frozen=True):
    suspect: Callable[[int, int | None], object]
    broker_id: int
    broker_epoch: int

    def __call__(self, _: object) -> None:
        self.suspect(self.broker_id, self.broker_epoch)


def may_follow(environment: HandlerEnvironment, client: Client, broker_id: int) -> bool:
    """True if the client has ClusterAction on the cluster, and comes from the inter-broker listener of that broker."""
    rights = rights_of(environment, client)
    is_allowed = rights.is_super or rights.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return is_allowed and client.listener_name == _listener_of(environment, broker_id)


def _listener_of(environment: HandlerEnvironment, broker_id: int) -> str:
    """Return the name of a broker's inter-broker listener.

    Brokers may have different inter-broker listeners during a rolling restart.
    """
    registration = environment.image.brokers.get(broker_id)
    own = "" if registration is None else registration.inter_broker_listener
    return own or environment.config.listeners.inter_broker


def refuse_follower(channel: Channel, version: int, correlation_id: int) -> None:
    """Respond with CLUSTER_AUTHORIZATION_FAILED. Raises CloseConnection if the version has no field for the error."""
    if version < SESSIONS_SINCE:
        raise CloseConnection(f"a client that is not a broker sent Fetch v{version} with a replica id")
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    channel.answer(encode_fetch_response(correlation_id, version, [], NO_SESSION, error))


BUG: Final = "a Fetch request failed because of a bug"
NO_ERROR: Final = 0
NO_OFFSET: Final = -1
ZSTD_SINCE: Final = 10
"""The first version that may read topics with compression.type=zstd (KIP-110); codecs of batches are not checked."""


_Place = tuple[Partition, int, int]
"""A partition, the index of its topic in the request, and the index of the partition within the topic."""


class ConsumerFetch:
    """A consumer's Fetch request with the results so far.

    Every partition is read once, and later read again only if it has changed. While the request waits for records, this
    object is its DelayedOperation. Read on each topic is checked when the fetch begins, and again after each wait.
    """

    __slots__ = (
        "_channel",
        "_correlation_id",
        "_end_wait",
        "_environment",
        "_places",
        "_reader",
        "_request",
        "_results",
        "_send",
        "_version",
    )

    def __init__(
        self,
        environment: HandlerEnvironment,
        channel: Channel,
        request: FetchRequest,
        version: int,
        correlation_id: int,
    ) -> None:
        self._environment = environment
        self._channel = channel
        self._request = request
        self._version = version
        self._correlation_id = correlation_id
        self._send: Callable[[list[Part]], None] | None = None
        self._end_wait: Callable[[], None] | None = None
        self._reader: _Reader | _RefusingReader = (_CommittedReader if request.isolation_level else _Reader)(
            environment, min(request.max_bytes, environment.config.fetch_max_bytes), version, channel.client
        )
        self._results: list[tuple[FetchTopic, list[FetchResult]]] = []
        self._places: dict[WaitList, list[_Place]] = {}

    def refuse(self, topics: Collection[str | bytes | None]) -> None:
        """Respond with TOPIC_AUTHORIZATION_FAILED for `topics`, which are topic names or the bytes of topic ids."""
        if topics:
            assert isinstance(self._reader, _Reader), "refuse may be called only once per request"
            self._reader = _RefusingReader(self._reader, topics)

    def begin(self) -> GiveUp | None:
        """Read the partitions that the client may read, and respond.

        If the response must wait, return the callback that drops the request if the connection closes.
        """
        rights = rights_of(self._environment, self._channel.client)
        if not rights.is_super:
            self._check_rights(rights)
        self._results = [(topic, []) for topic in self._request.topics]
        for number, (topic, results) in enumerate(self._results):
            for wanted in topic.partitions:
                results.append(self._read(number, len(results), topic, wanted))
        self._answer_or_wait()
        return self.give_up if self._end_wait is not None else None

    def _check_rights(self, rights: Rights) -> None:
        """Refuse the topics that the client may not read; a topic without partitions needs no right."""
        readable, topics = rights.readable, self._request.topics
        for topic in topics:
            if (topic.topic_id or topic.name) not in readable:
                asked = [topic for topic in topics if topic.partitions]
                self.refuse(lacking(self._environment, rights, AclOperation.READ, asked))
                return

    def give_up(self) -> None:
        """Drop the request of a closed connection; otherwise the request could wait for weeks (max_wait_ms)."""
        end_wait, self._end_wait = self._end_wait, None  # Break the reference cycle of request and callback.
        if end_wait is not None:
            end_wait()

    def _read(self, number: int, index: int, topic: FetchTopic, wanted: FetchPartition) -> FetchResult:
        result, partition = self._reader.read(topic, wanted)
        if partition is not None:
            self._places.setdefault(partition.waiters, []).append((partition, number, index))
        return result

    def _read_what_changed(self) -> None:
        """Read those partitions again that have changed since they were read; the purgatory reports later changes."""
        for places in self._places.values():
            partition, number, index = places[0]
            result = self._results[number][1][index]
            if result.high_watermark != partition.log.high_watermark or partition.leader is None:
                self._read_again(places)

    def _read_again(self, places: "list[_Place]") -> None:
        for _, number, index in places:
            topic, results = self._results[number]
            self._reader.put_back(results[index])
            results[index], _ = self._reader.read(topic, topic.partitions[index])

    def _answer_or_wait(self) -> None:
        """Respond if the response has min_bytes of records or an error; otherwise wait, at most for max_wait_ms."""
        if self._is_enough or self._request.max_wait_ms <= 0:
            self._answer()
            return
        self._send = self._send or self._channel.defer()
        self._end_wait = self._environment.purgatory.watch(self, self._places, self._request.max_wait_ms / 1000)

    @property
    def _is_enough(self) -> bool:
        reader = self._reader
        return reader.is_urgent or not self._places or reader.bytes_read >= self._request.min_bytes

    def try_complete(self, changed: WaitList) -> bool:
        """Check the client's rights, and read the partition again, because it has changed.

        Respond and return True if the response has min_bytes of records or an error; otherwise return False.
        """
        self._take_back()
        self._read_again(self._places[changed])
        if not self._is_enough:
            return False
        self._answer()
        return True

    def expire(self) -> None:
        """Check the client's rights, and respond with the records read so far, because max_wait_ms is over."""
        self._take_back()
        self._answer()

    def _take_back(self) -> None:
        """Refuse topics for which the client has lost Read since the fetch began."""
        environment, topics = self._environment, self._request.topics
        rights = rights_of(environment, self._channel.client)
        if rights.is_super or all((topic.topic_id or topic.name) in rights.readable for topic in topics):
            return
        refused = lacking(environment, rights, AclOperation.READ, topics)
        self.refuse(refused)
        for topic, results in self._results:
            if (topic.topic_id or topic.name) in refused:
                results[:] = [unauthorized(each.partition) for each in results]

    def _answer(self) -> None:
        self._end_wait = None  # Break the reference cycle, because gc never collects objects frozen by gc.freeze.
        send = self._send or self._channel.answer
        send(encode_fetch_response(self._correlation_id, self._version, self._results))


class _Reader:
    """The reader of partitions within the request's byte limits, which the first batch of the response may exceed."""

    __slots__ = ("_bytes_left", "_client", "_environment", "_is_before_zstd", "bytes_read", "is_urgent")

    def __init__(self, environment: HandlerEnvironment, bytes_left: int, version: int, client: Client) -> None:
        self._environment = environment
        self._client = client
        self._is_before_zstd = version < ZSTD_SINCE
        self._bytes_left = bytes_left
        self.bytes_read = 0
        self.is_urgent = False

    def read(self, topic: FetchTopic, wanted: FetchPartition) -> tuple[FetchResult, Partition | None]:
        """Return the result for one partition, and the Partition object (None if this broker has no replica).

        An error or a diverging epoch sets `is_urgent`, so that the response is sent at once.
        """
        partition: Partition | None = None
        try:
            partition = self._environment.replicas.lookup.find(topic.name, topic.topic_id, wanted.partition)
            partition.check_readable(wanted.current_leader_epoch)
            if self._is_before_zstd and partition.log.config.compression is Compression.ZSTD:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"compression.type=zstd requires Fetch v{ZSTD_SINCE} or later",
                )
            return self._read_partition(partition, wanted), partition
        except ApiError as error:
            return self._refused(topic, wanted.partition, error), partition
        except StorageError as error:
            assert partition is not None
            refusal = self._environment.replicas.failures.storage_failed(partition, error)
            return self._refused(topic, wanted.partition, refusal), partition

    def put_back(self, result: FetchResult) -> None:
        """Subtract the size of a result from the bytes read for the request, because the partition is read again."""
        if result.records is not None:
            self.bytes_read -= result.records.length
            self._bytes_left += result.records.length

    def _read_partition(self, partition: Partition, wanted: FetchPartition) -> FetchResult:
        records = None
        log = partition.log
        high_watermark = log.high_watermark
        diverging = diverging_epoch(partition, wanted)
        if diverging is None:
            length_max = min(wanted.max_bytes, self._bytes_left)
            records = partition.read(
                wanted.fetch_offset, length_max, high_watermark, at_least_one_batch=not self.bytes_read
            )
            if records is not None:
                self.bytes_read += records.length
                self._bytes_left -= records.length
        else:
            self.is_urgent = True
        states = log.known_producers.states
        if states is None or states.transactions.first_unstable_offset >= high_watermark:
            stable_offset = high_watermark
        else:
            stable_offset = last_stable_offset(partition.log)
        return FetchResult(
            wanted.partition, NO_ERROR, high_watermark, stable_offset, log.log_start_offset, records, diverging
        )

    def _refused(self, topic: FetchTopic, index: int, error: ApiError) -> FetchResult:
        self.is_urgent = True
        leader = None
        if error.code in LEADER_ERRORS:
            listener_name = self._client.listener_name
            leader = current_leader(self._environment.image, listener_name, topic.name, topic.topic_id, index)
        return FetchResult(index, error.code, NO_OFFSET, NO_OFFSET, NO_OFFSET, None, leader=leader)


class _CommittedReader(_Reader):
    """A reader for READ_COMMITTED. Records end at the last stable offset; results also list aborted transactions."""

    __slots__ = ()

    def _read_partition(self, partition: Partition, wanted: FetchPartition) -> FetchResult:
        records, aborted = None, []
        diverging = diverging_epoch(partition, wanted)
        stable_offset = last_stable_offset(partition.log)
        if diverging is None:
            length_max, is_first = min(wanted.max_bytes, self._bytes_left), self.bytes_read == 0
            records = partition.read(wanted.fetch_offset, length_max, stable_offset, at_least_one_batch=is_first)
            if records is not None:
                self.bytes_read += records.length
                self._bytes_left -= records.length
                aborted = aborted_among(partition.log, wanted.fetch_offset, records)
        else:
            self.is_urgent = True
        return FetchResult(
            wanted.partition,
            NO_ERROR,
            partition.log.high_watermark,
            stable_offset,
            partition.log.log_start_offset,
            records,
            diverging,
            None,
            aborted,
        )


class _RefusingReader:
    """A reader that refuses the topics in `refused`, and passes all other topics to `reader`."""

    __slots__ = ("_reader", "_refused")

    def __init__(self, reader: _Reader, refused: Collection[str | bytes | None]) -> None:
        self._reader = reader
        self._refused = refused

    is_urgent: Final = True
    """True: the fetch does not wait for records, because a response with an error is sent at once."""

    @property
    def bytes_read(self) -> int:
        """The number of bytes of records that were read so far for this request."""
        return self._reader.bytes_read

    def put_back(self, result: FetchResult) -> None:
        self._reader.put_back(result)

    def read(self, topic: FetchTopic, wanted: FetchPartition) -> tuple[FetchResult, Partition | None]:
        if (topic.topic_id or topic.name) not in self._refused:
            return self._reader.read(topic, wanted)
        return unauthorized(wanted.partition), None


def unauthorized(index: int) -> FetchResult:
    """Return the result of a partition that the client may not read."""
    return FetchResult(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NO_OFFSET, NO_OFFSET, NO_OFFSET, None)


class FetchInTurns(ConsumerFetch):
    """A large request of a consumer: topics are refused, partitions read, and results encoded, in several turns.

    The request and the results are freed in turns, too, once this object has gone.
    """

    __slots__ = ("_has_waited", "_turn")

    async def begin_in_turns(self, turn: SharedTurn, send: Callable[[list[Part]], None]) -> None:
        """Read the partitions that the client may read, and respond or wait. Raises CloseConnection if it has gone."""
        self._turn, self._send, self._has_waited = turn, send, False
        self.refuse(await self._turn.run(self._refused_in_steps()))
        await self._turn.run(self._read_in_steps())
        if self._turn.is_gone():
            raise CloseConnection("the client has disconnected")
        self._read_what_changed()
        self._answer_or_wait()

    def _refused_in_steps(self) -> InSteps[set[str | bytes | None]]:
        """Return the topics that the client may not read; a topic without partitions needs no right."""
        environment, client, topics = self._environment, self._channel.client, self._request.topics
        refused = set[str | bytes | None]()
        if rights_of(environment, client).is_super:
            return refused
        for begin in range(0, len(topics), STEP_ELEMENTS):
            asked = [topic for topic in topics[begin : begin + STEP_ELEMENTS] if topic.partitions]
            refused |= lacking(environment, rights_of(environment, client), AclOperation.READ, asked)
            yield 0
        return refused

    def _read_in_steps(self) -> InSteps[None]:
        elements = count(1)
        for number, topic in enumerate(self._request.topics):
            results: list[FetchResult] = []
            self._results.append((topic, results))
            if next(elements) % STEP_ELEMENTS == 0:
                yield 0
            for wanted in topic.partitions:
                results.append(self._read(number, len(results), topic, wanted))
                if next(elements) % STEP_ELEMENTS == 0:
                    yield 0

    def give_up(self) -> None:
        """Drop the request of a closed connection while it waits, and free it."""
        if self._end_wait is not None:
            super().give_up()
            self.free()

    def free(self) -> None:
        """Begin to free the request and its results, in turns."""
        keep_results(self._turn, self._results)
        self._turn.kept += self._places.values()
        self._environment.attempt(self._turn.free())

    def _answer(self) -> None:
        self._end_wait = None
        self._environment.attempt(self._answer_in_turns())

    async def _answer_in_turns(self) -> None:
        try:
            if self._has_waited:
                await self._turn.run(self._take_back_in_steps())
            assert self._send is not None
            steps = fetch_response_in_steps(self._correlation_id, self._version, self._results)
            self._send(await self._turn.run(steps))
        except CloseConnection as reason:
            self._channel.close(str(reason))
        except BaseException:
            self._channel.close(BUG)
            raise
        finally:
            self.free()

    def _take_back(self) -> None:
        """Check the rights again later, in the turns of the response."""
        self._has_waited = True

    def _take_back_in_steps(self) -> InSteps[None]:
        refused = yield from self._refused_in_steps()
        self.refuse(refused)
        for number, (topic, results) in enumerate(self._results):
            if (topic.topic_id or topic.name) in refused:
                results[:] = [unauthorized(each.partition) for each in results]
            if number % STEP_ELEMENTS == 0:
                yield 0


def keep_results(turn: SharedTurn, topics: list[tuple[FetchTopic, list[FetchResult]]]) -> None:
    """Keep results, to be freed in turns at the end; their lists come last, because what comes last is freed first."""
    for _, results in topics:
        turn.kept += results
    turn.kept += topics


class LargeFetch:
    """A Fetch request of more than LARGE_FETCH_BYTES, which is parsed in turns before its sender is known."""

    __slots__ = ("_channel", "_consumer", "_correlation_id", "_environment", "_send", "_turn", "_version")

    def __init__(self, environment: HandlerEnvironment, channel: Channel, version: int, correlation_id: int) -> None:
        if channel.turn is None:
            is_broker = may_act_as_broker(environment, channel.client)
            raise TakesTurns(environment.broker_fetches if is_broker else environment.fetches)
        self._environment = environment
        self._channel = channel
        self._version = version
        self._correlation_id = correlation_id
        self._turn = channel.turn
        self._send = channel.defer()
        self._consumer: FetchInTurns | None = None

    def give_up(self) -> None:
        """Drop the request of a closed connection; while it takes turns, the next one notices that."""
        if self._consumer is not None:
            self._consumer.give_up()

    async def answer(self, buffer: memoryview, start: int, end: int) -> None:
        """Parse the request, free its bytes, and answer it."""
        try:
            parsing = parse_fetch_in_steps(buffer, start, end, self._version, self._turn.kept)
            request = await self._turn.run(parsing)
            del buffer, parsing  # The connection frees the bytes now.
            self._channel.request_is_read()
            await self._answer(request)
        except (MalformedRequest, CloseConnection) as reason:
            self._channel.close(str(reason))
            self._free()
        except BaseException:
            self._channel.close(BUG)
            self._free()
            raise

    async def _answer(self, request: FetchRequest) -> None:
        if request.replica_id >= 0:
            await self._answer_follower(request)
            return
        self._consumer = FetchInTurns(self._environment, self._channel, request, self._version, self._correlation_id)
        await self._consumer.begin_in_turns(self._turn, self._send)

    async def _answer_follower(self, request: FetchRequest) -> None:
        """Answer a follower without a wait, so that its connection reads on soon."""
        environment, version, turn = self._environment, self._version, self._turn
        if not may_follow(environment, self._channel.client, request.replica_id):
            refuse_follower(self._channel, version, self._correlation_id)
            self._send([])
        else:
            _watch(environment, self._channel, request)
            error, session_id, topics = await turn.run(environment.followers.answer_in_steps(request))
            steps = fetch_response_in_steps(self._correlation_id, version, topics, session_id, error)
            self._send(await turn.run(steps))
            keep_results(turn, topics)
        self._free()

    def _free(self) -> None:
        if self._consumer is None:
            self._environment.attempt(self._turn.free())
        else:
            self._consumer.free()


def handle(
    environment: HandlerEnvironment,
    channel: Channel,
    version: int,
    correlation_id: int,
    buffer: memoryview,
    body_start: int,
    end: int,
) -> GiveUp | None:
    """Answer a follower, or begin the fetch of a consumer."""
    if end - body_start > LARGE_FETCH_BYTES:
        large = LargeFetch(environment, channel, version, correlation_id)
        environment.attempt(large.answer(buffer, body_start, end))
        return large.give_up
    request = parse_fetch(buffer, body_start, end, version)
    if request.replica_id >= 0:
        answer_replica_fetch(environment, channel, version, correlation_id, request)
        return None
    return ConsumerFetch(environment, channel, request, version, correlation_id).begin()

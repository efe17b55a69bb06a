"""Dispatch each framed request to its handler, send the response, and catch all exceptions of handlers.

A request above LARGE_REQUEST_BYTES is decoded, checked, refused and encoded in turns, unless its handler reads the
bytes itself.

A client that exceeds a quota is throttled: the throttle time is written into the response, and the connection is muted
for that time. The handlers of Produce and Fetch are wrapped for that only while quotas exist, so a cluster without
quotas pays nothing. The time that a handler takes counts towards the quota request_percentage. The time is known only
after the response is sent, so it affects only the throttle times of later requests.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable
from time import perf_counter
from typing import Any, Final, cast

from barnabas_broker.handlers.batch_trust import ConnectionTrust
from barnabas_broker.handlers.channel import (
    Channel,
    Client,
    GiveUp,
    MessageHandler,
    RawHandler,
    RequestContext,
    TakesTurns,
    may_act_as_broker,
)
from barnabas_broker.handlers.guard import CLUSTER_ACTIONS_SINCE
from barnabas_broker.handlers.handler_environment import FULL_WINDOW_S, ClientLimits, HandlerEnvironment, Limited
from barnabas_broker.handlers.large_responses import CloseConnection, LargeResponses, SharedTurn
from barnabas_broker.server.answers import LateAnswer
from barnabas_broker.server.connection import Connection
from barnabas_broker.wire.encoder import (
    decode_in_steps,
    decode_request,
    elements_of,
    encode_in_steps,
    encode_response,
    encode_unsupported_api_versions,
)
from barnabas_broker.wire.fetch import encode_fetch_response, lower_bytes, parse_fetch
from barnabas_broker.wire.fetch import set_throttle_time as set_in_fetch
from barnabas_broker.wire.framing import (
    API_SPECS,
    API_VERSIONS,
    FETCH,
    PRODUCE,
    FileSlice,
    MalformedRequest,
    Part,
    RequestHeader,
    locate_body,
    parse_request_header,
)
from barnabas_broker.wire.produce import set_throttle_time as set_in_produce
from barnabas_core.loop_turns import FIRST_TURN_S, LARGE_FETCH_BYTES, LARGE_REQUEST_BYTES, LONGEST_PART, LOOP_SHARE

PERCENT: Final = 100


def throttled(api_key: int, handler: RawHandler) -> RawHandler:
    """Wrap a handler of Produce or Fetch so that it enforces the client's quotas; return other handlers unchanged."""
    if api_key not in (PRODUCE, FETCH):
        return handler

    def handle(
        environment: HandlerEnvironment,
        channel: Channel,
        version: int,
        correlation_id: int,
        buffer: memoryview,
        body_start: int,
        end: int,
    ) -> GiveUp | None:
        def answer(through: Channel) -> GiveUp | None:
            return handler(environment, through, version, correlation_id, buffer, body_start, end)

        limits = channel.client.limits(environment.quotas)
        if limits is None:
            return answer(channel)
        connection = cast("Connection", channel)
        if api_key == PRODUCE:
            return _produce(answer, limits, connection, version, end - body_start)
        if end - body_start > LARGE_FETCH_BYTES and connection.turn is None:
            return answer(channel)  # It raises TakesTurns.
        request = parse_fetch(buffer, body_start, end, version)
        if request.replica_id >= 0:
            if may_act_as_broker(environment, channel.client):
                return answer(channel)
            return _fetch(answer, limits._replace(consumed_bytes=None), connection, version, correlation_id)
        if limits.consumed_bytes is not None:
            lower_bytes(buffer, body_start, version, int(limits.consumed_bytes.limit * FULL_WINDOW_S))
        return _fetch(answer, limits, connection, version, correlation_id)

    return handle


def throttle_message(
    environment: HandlerEnvironment, connection: Connection, header: RequestHeader, response: Any
) -> None:
    """Mute the client, and write the throttle time into the response, unless the response already has a longer one."""
    throttle_ms = getattr(response, "throttle_time_ms", 0)
    limits = _limits_of(environment, connection, header)
    if limits is not None:
        throttle_ms = max(throttle_ms, _wait_ms(limits.request_share))
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
    _mute(connection, throttle_ms)


def count_time(environment: HandlerEnvironment, connection: Connection, header: RequestHeader, took_s: float) -> None:
    """Charge the duration of the handler to the client's request_percentage quota."""
    limits = _limits_of(environment, connection, header)
    if limits is not None:
        _count_time(limits, took_s)


def _limits_of(environment: HandlerEnvironment, connection: Connection, header: RequestHeader) -> ClientLimits | None:
    since = CLUSTER_ACTIONS_SINCE.get(header.api_key)
    is_between_brokers = since is not None and header.api_version >= since
    if is_between_brokers and may_act_as_broker(environment, connection.client):
        return None
    return connection.client.limits(environment.quotas)


def _count_time(limits: ClientLimits, took_s: float) -> None:
    if limits.request_share is not None:
        limits.request_share.count(took_s * PERCENT)


def _wait_ms(limited: Limited | None) -> int:
    wait_ms = 0 if limited is None else limited.wait_ms()
    if limited is not None and wait_ms:
        limited.throttled(wait_ms)
    return wait_ms


def _mute(connection: Connection, throttle_ms: int) -> None:
    if throttle_ms:
        connection.answers.mute(throttle_ms / 1000)


_Answer = Callable[[Channel], GiveUp | None]
"""A function that calls the handler with the parsed request and a channel for the response."""


def _produce(
    answer: _Answer, limits: ClientLimits, connection: Connection, version: int, size_bytes: int
) -> GiveUp | None:
    """Run the Produce handler and throttle the client.

    Return the callback to call if the connection closes before the response is sent, or None.
    """
    if limits.produced_bytes is not None and connection.turn is None:
        limits.produced_bytes.count(size_bytes)  # A request that takes turns comes twice, and counts the first time.
    throttle_ms = max(_wait_ms(limits.produced_bytes), _wait_ms(limits.request_share))

    def with_throttle_time(parts: list[Part]) -> list[Part]:
        return [set_in_produce(cast("bytes", part), version, throttle_ms) for part in parts]

    began_s = perf_counter()
    give_up = answer(_ThrottledChannel(connection, with_throttle_time) if throttle_ms else connection)
    _count_time(limits, perf_counter() - began_s)
    _mute(connection, throttle_ms)
    return give_up


def _fetch(
    answer: _Answer, limits: ClientLimits, connection: Connection, version: int, correlation_id: int
) -> GiveUp | None:
    """Run the Fetch handler and throttle the client.

    Return the callback to call if the connection closes before the response is sent, or None.

    A response that exceeds the byte quota is replaced by an empty response, and is not counted against the quota. But
    if the client has recently used nothing of the quota, the full response is sent and counted.

    The caller limits a response to the bytes that the quota allows in a full quota window. Only a response with a
    single batch may be larger.
    """
    turn = connection.turn

    def with_throttle_time(parts: list[Part]) -> list[Part]:
        if turn is not None:
            _count_time(limits, turn.spent_s)
        size_bytes = sum(part.length if part.__class__ is FileSlice else len(part) for part in parts)
        bytes_ms, is_refused = _consumed(limits.consumed_bytes, size_bytes)
        throttle_ms = max(bytes_ms, _wait_ms(limits.request_share))
        if is_refused:
            parts = encode_fetch_response(correlation_id, version, [])
        if throttle_ms:
            set_in_fetch(parts, version, throttle_ms)
            _mute(connection, throttle_ms)
        return parts

    began_s = perf_counter()
    give_up = answer(_ThrottledChannel(connection, with_throttle_time))
    _count_time(limits, perf_counter() - began_s)
    return give_up


def _consumed(limited: Limited | None, size_bytes: int) -> tuple[int, bool]:
    """Return the throttle time in ms, and True if the response must be replaced by an empty one.

    A response that exceeds the quota must be replaced, unless the client has recently used nothing of the quota. The
    bytes of all other responses are counted against the quota.
    """
    if limited is None:
        return 0, False
    is_first = limited.is_unused
    limited.count(size_bytes)
    wait_ms = _wait_ms(limited)
    is_refused = wait_ms > 0 and not is_first
    if is_refused:
        limited.count(-size_bytes)
    return wait_ms, is_refused


class _ThrottledChannel:
    """A channel for the response to one request, into which `with_throttle_time` writes the throttle time."""

    __slots__ = ("_connection", "_with_throttle_time", "client", "close", "request_is_read", "turn", "when_closed")

    def __init__(self, connection: Connection, with_throttle_time: Callable[[list[Part]], list[Part]]) -> None:
        self._connection = connection
        self._with_throttle_time = with_throttle_time
        self.client: Client = connection.client
        self.close = connection.close
        self.turn: SharedTurn | None = connection.turn
        self.request_is_read = connection.request_is_read
        self.when_closed = connection.when_closed

    @property
    def trust(self) -> ConnectionTrust | None:
        """The connection's `ConnectionTrust`, which decides whether its batches are checked."""
        return self._connection.trust

    @trust.setter
    def trust(self, trust: ConnectionTrust | None) -> None:
        self._connection.trust = trust

    def answer(self, parts: list[Part]) -> None:
        """Send the response now, with the throttle time."""
        self._connection.answer(self._with_throttle_time(parts))

    def answer_soon(self, response: bytes | bytearray) -> None:
        """Send the response, with the throttle time, together with those to requests that were received with it."""
        self.answer([response])

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        """Return a callback that takes the parts of the response, and sends them with the throttle time.

        The callback sends nothing for an empty list.
        """
        answer = self._connection.defer(reads_on=reads_on)
        return lambda parts: answer(self._with_throttle_time(parts) if parts else parts)


_UNITS_A_SECOND: Final = 4000
"""The number of units in a second; response times are counted in units of 0.25 ms."""
_BUCKETS: Final = 18
_BIT_LENGTHS: Final = 64
"""The number of counters of response times; times with the same bit length, in units of 0.25 ms, share a counter."""
TIME_BOUNDS_MS: Final = tuple(2**number * 1000 / _UNITS_A_SECOND for number in range(_BUCKETS - 1))
"""The upper bounds of the buckets, 0.25 ms to 16 s; one more bucket counts longer times."""


class RequestStats:
    """The counters of one API since the start."""

    __slots__ = ("_answers", "_unanswered", "_waited_s", "busy_s", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.busy_s = 0.0
        """The seconds spent in the handler."""
        self._waited_s = 0.0
        """The seconds from the end of the handler to the response, for deferred responses."""
        self._unanswered = 0
        """The number of requests whose deferred response is unfinished.

        Requests that were dropped because their connection closed may stay in this count.
        """
        self._answers = [0] * _BIT_LENGTHS
        """The counters of response times, in units of 0.25 ms.

        Counter 0 counts times below 1 unit; counter N counts times from 2**(N-1) units to just below 2**N units.
        """

    def answered(self, took_s: float) -> None:
        """Count a request that got its response before the handler returned; add the seconds that the handler took."""
        self.busy_s += took_s
        self._answers[int(took_s * _UNITS_A_SECOND).bit_length()] += 1

    def deferred(self, busy_s: float) -> None:
        """Count a request whose response is deferred, and add the time of the handler in seconds."""
        self.busy_s += busy_s
        self._waited_s -= busy_s
        self._unanswered += 1

    def answered_late(self, took_s: float) -> None:
        """Count a deferred response, and add the time since its request in seconds."""
        self._waited_s += took_s
        self._unanswered -= 1
        self._answers[int(took_s * _UNITS_A_SECOND).bit_length()] += 1

    @property
    def count(self) -> int:
        """The number of requests since the start."""
        return sum(self._answers) + self._unanswered

    @property
    def total_s(self) -> float:
        """The sum of the seconds from each request to its response."""
        return self.busy_s + self._waited_s

    @property
    def time_counts(self) -> list[int]:
        """The number of responses in each bucket of TIME_BOUNDS_MS, and in one for longer times."""
        return [*self._answers[: _BUCKETS - 1], sum(self._answers[_BUCKETS - 1 :])]


log = logging.getLogger(__name__)

DECODED_BYTES_MAX: Final = 32 * 1024 * 1024
"""The maximum size in bytes of a request other than Produce and Fetch: decoding may copy all bytes in one turn."""
CLIENT_ID_CHARS_MAX: Final = 200
"""The maximum number of characters of a client id that are stored with its connection."""


def _check_size(api: str, size_bytes: int) -> None:
    if size_bytes > DECODED_BYTES_MAX:
        raise MalformedRequest(f"{api}: the request has {size_bytes} bytes; at most {DECODED_BYTES_MAX} are allowed")


class Dispatcher:
    """Decode requests, call the handler of the API key, and encode responses.

    A bug in a handler closes the connection of the request; the broker goes on.
    """

    def __init__(
        self,
        environment: HandlerEnvironment,
        raw_handlers: Mapping[int, RawHandler],
        message_handler: Callable[[int], MessageHandler],
    ) -> None:
        self._environment = environment
        self._quotas = environment.quotas
        self.stats = {key: RequestStats(spec.name) for key, spec in API_SPECS.items()}
        self._without_quotas = self._by_version(raw_handlers)
        self._with_quotas = self._by_version({key: throttled(key, handler) for key, handler in raw_handlers.items()})
        self._quotas.on_change = self._choose_handlers
        self._choose_handlers()
        self._message_handler = message_handler
        self._tasks: set[asyncio.Task[None]] = set()

    def _by_version(
        self, handlers: Mapping[int, RawHandler]
    ) -> Mapping[tuple[int, int], tuple[RawHandler, RequestStats]]:
        return {
            (key, version): (handler, self.stats[key])
            for key, handler in handlers.items()
            for version in range(API_SPECS[key].min_version, API_SPECS[key].max_version + 1)
        }

    def _choose_handlers(self) -> None:
        self._raw_handlers = self._with_quotas if self._quotas.are_set else self._without_quotas

    def __call__(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        """Answer the request in `buffer[start:end]`.

        Raise MalformedRequest or CloseConnection to close the connection.
        """
        began_s = perf_counter()
        api_key, version, correlation_id, body_start = locate_body(buffer, start, end)
        if connection.client.client_id is None:
            client_id = parse_request_header(buffer, start, end).client_id or ""
            connection.client = connection.client.named(client_id[:CLIENT_ID_CHARS_MAX])
        raw, stats = self._raw_handlers.get((api_key, version)) or (None, self.stats[api_key])
        try:
            if raw is not None:
                give_up = raw(self._environment, connection, version, correlation_id, buffer, body_start, end)
            else:
                header = parse_request_header(buffer, start, end)
                if end - start > LARGE_REQUEST_BYTES and API_SPECS[api_key].supports(version):
                    _check_size(stats.name, end - start)
                    connection.answer_in_turns(partial(self._answer_large, connection, header, body_start - start))
                    return
                give_up = self._answer_message(connection, header, buffer[body_start:end])
        except (MalformedRequest, CloseConnection):
            raise
        except TakesTurns as large:
            connection.answer_in_turns(partial(self._call_in_turns, connection, large.scheduler))
            return
        except Exception as error:
            log.exception("bug in the handling of %s v%d from %s", stats.name, version, connection.peer)
            raise CloseConnection(f"the handling of {stats.name} failed with an unexpected error") from error
        took_s = perf_counter() - began_s
        if took_s > LONGEST_PART.seconds:
            LONGEST_PART.seconds, LONGEST_PART.what = took_s, stats.name
        if not connection.deferred:
            stats.answered(took_s)
            return
        late = connection.deferred[0]
        connection.deferred.clear()
        if late.parts is not None:
            stats.answered(took_s)
            return
        stats.deferred(took_s)
        late.on_answer = lambda: stats.answered_late(perf_counter() - began_s)
        late.give_up = give_up

    def _answer_message(self, connection: Connection, header: RequestHeader, body: memoryview) -> GiveUp | None:
        """Decode and handle a request; return a callback to call if the connection closes before the response is sent.

        The callback cancels the future that a handler such as JoinGroup returns. Return None if the handler returns a
        response, or a coroutine, whose work must not be interrupted.
        """
        if not API_SPECS[header.api_key].supports(header.api_version):
            self._refuse_version(connection, header)
            return None
        handle = self._message_handler(header.api_key)  # The first use imports it, which no client's quota pays for.
        began_s = perf_counter()
        request = decode_request(header.api_key, header.api_version, body)
        client = connection.client.named(header.client_id)
        context = RequestContext(header.api_key, header.api_version, client, connection.is_gone, connection=connection)
        response = handle(self._environment, context, request)
        if self._quotas.are_set:
            count_time(self._environment, connection, header, perf_counter() - began_s)
        if not isawaitable(response):
            if self._quotas.are_set:
                throttle_message(self._environment, connection, header, response)
            connection.answer([encode_response(response, header.api_version, header.correlation_id)])
            return None
        # The order of responses is fixed before the connection's next request is read.
        self._start(connection, header, response, connection.defer())
        return response.cancel if isinstance(response, asyncio.Future) else None

    def _answer_large(self, connection: Connection, header: RequestHeader, body_start: int, frame: memoryview) -> None:
        """Answer a large request, whose bytes the connection keeps until they are decoded."""
        began_s, stats = perf_counter(), self.stats[header.api_key]
        answer = connection.defer()
        late = connection.deferred.pop()
        late.on_answer = lambda: stats.answered_late(perf_counter() - began_s)
        stats.deferred(0)
        turn = self._environment.answers.turn(connection.is_gone)
        handled = self._handle_large(connection, header, frame[body_start:], turn, late)
        self._start(connection, header, handled, answer, turn)

    def _call_in_turns(self, connection: Connection, scheduler: LargeResponses, frame: memoryview) -> None:
        """Call the raw handler again, in turns, for a large request, whose bytes the connection keeps until then."""
        LOOP_SHARE.charge(FIRST_TURN_S)
        connection.turn = scheduler.turn(connection.is_gone)
        try:
            self(connection, frame, 0, len(frame))
        except (MalformedRequest, CloseConnection) as refusal:
            connection.close(str(refusal))
        finally:
            connection.turn = None

    async def _handle_large(
        self, connection: Connection, header: RequestHeader, body: memoryview, turn: SharedTurn, late: LateAnswer
    ) -> Any:
        turn.begin_first()
        request = await turn.run(decode_in_steps(header.api_key, header.api_version, body, turn.kept))
        del body  # A handler may wait for minutes, and the bytes are freed only without this reference.
        connection.request_is_read()
        client = connection.client.named(header.client_id)
        context = RequestContext(header.api_key, header.api_version, client, connection.is_gone, turn, connection)
        response = self._message_handler(header.api_key)(self._environment, context, request)
        if isinstance(response, asyncio.Future):
            late.give_up = response.cancel
        return await response if isawaitable(response) else response

    def _refuse_version(self, connection: Connection, header: RequestHeader) -> None:
        """Answer ApiVersions, so that the client can choose another version; refuse other APIs, as Kafka does."""
        if header.api_key != API_VERSIONS:
            spec = API_SPECS[header.api_key]
            allowed = f"{spec.min_version} to {spec.max_version}"
            raise MalformedRequest(f"{spec.name} version {header.api_version} is not supported; allowed are {allowed}")
        connection.answer([encode_unsupported_api_versions(header.correlation_id)])

    def _start(
        self,
        connection: Connection,
        header: RequestHeader,
        response: Awaitable[Any],
        answer: Callable[[list[Part]], None],
        turn: SharedTurn | None = None,
    ) -> None:
        LOOP_SHARE.charge(FIRST_TURN_S)
        task = asyncio.ensure_future(self._finish(connection, header, response, answer, turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(
        self,
        connection: Connection,
        header: RequestHeader,
        response: Awaitable[Any],
        answer: Callable[[list[Part]], None],
        turn: SharedTurn | None,
    ) -> None:
        try:
            await self._answer(connection, header, response, answer, turn)
        except (MalformedRequest, CloseConnection) as refusal:
            connection.close(str(refusal))
        except Exception:
            log.exception(
                "bug in the handling of %s v%d from %s",
                self.stats[header.api_key].name,
                header.api_version,
                connection.client.address,
            )
            connection.close()
        finally:
            if turn is not None:
                await turn.free()

    async def _answer(
        self,
        connection: Connection,
        header: RequestHeader,
        response: Awaitable[Any],
        answer: Callable[[list[Part]], None],
        turn: SharedTurn | None,
    ) -> None:
        message = await response
        if self._quotas.are_set and turn is not None:
            count_time(self._environment, connection, header, FIRST_TURN_S + turn.spent_s)
        turn = turn or self._environment.answers.turn(connection.is_gone)
        if self._quotas.are_set:
            throttle_message(self._environment, connection, header, message)
        turn.kept += elements_of(message)
        answer([await turn.run(encode_in_steps(message, header.api_version, header.correlation_id))])

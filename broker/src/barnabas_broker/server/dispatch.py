"""Dispatch each framed request to its handler, send the response, and catch all exceptions of handlers.

A request above LARGE_REQUEST_BYTES is decoded, checked, refused and encoded in turns, unless its handler reads the
bytes itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable
from time import perf_counter
from typing import Any, Final

from barnabas_broker.handlers.channel import GiveUp, MessageHandler, RawHandler, RequestContext, TakesTurns
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import CloseConnection, LargeResponses, SharedTurn
from barnabas_broker.server.answers import LateAnswer
from barnabas_broker.server.client_throttle import count_time, throttle_message, throttled
from barnabas_broker.server.connection import Connection
from barnabas_broker.wire.encoder import (
    decode_in_steps,
    decode_request,
    elements_of,
    encode_in_steps,
    encode_response,
    encode_unsupported_api_versions,
)
from barnabas_broker.wire.framing import (
    API_SPECS,
    API_VERSIONS,
    MalformedRequest,
    Part,
    RequestHeader,
    locate_body,
    parse_request_header,
)
from barnabas_core.loop_turns import FIRST_TURN_S, LARGE_REQUEST_BYTES, LONGEST_PART, LOOP_SHARE

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
        began_s = perf_counter()
        request = decode_request(header.api_key, header.api_version, body)
        client = connection.client.named(header.client_id)
        context = RequestContext(header.api_key, header.api_version, client, connection.is_gone, connection=connection)
        response = self._message_handler(header.api_key)(self._environment, context, request)
        if self._quotas.are_set:
            count_time(self._environment, connection, header, perf_counter() - began_s)
        if not isawaitable(response):
            if self._quotas.are_set:
                throttle_message(self._environment, connection, header, response)
            connection.respond([encode_response(response, header.api_version, header.correlation_id)])
            return None
        # The order of responses is fixed before the connection's next request is read.
        self._start(connection, header, response, connection.defer())
        return response.cancel if isinstance(response, asyncio.Future) else None

    def _answer_large(self, connection: Connection, header: RequestHeader, body_start: int, frame: memoryview) -> None:
        """Answer a large request, whose bytes the connection keeps until they are decoded."""
        began_s, stats = perf_counter(), self.stats[header.api_key]
        respond = connection.defer()
        late = connection.deferred.pop()
        late.on_answer = lambda: stats.answered_late(perf_counter() - began_s)
        stats.deferred(0)
        turn = self._environment.answers.turn(connection.is_gone)
        handled = self._handle_large(connection, header, frame[body_start:], turn, late)
        self._start(connection, header, handled, respond, turn)

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
        connection.respond([encode_unsupported_api_versions(header.correlation_id)])

    def _start(
        self,
        connection: Connection,
        header: RequestHeader,
        response: Awaitable[Any],
        respond: Callable[[list[Part]], None],
        turn: SharedTurn | None = None,
    ) -> None:
        LOOP_SHARE.charge(FIRST_TURN_S)
        task = asyncio.ensure_future(self._finish(connection, header, response, respond, turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(
        self,
        connection: Connection,
        header: RequestHeader,
        response: Awaitable[Any],
        respond: Callable[[list[Part]], None],
        turn: SharedTurn | None,
    ) -> None:
        try:
            await self._respond(connection, header, response, respond, turn)
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

    async def _respond(
        self,
        connection: Connection,
        header: RequestHeader,
        response: Awaitable[Any],
        respond: Callable[[list[Part]], None],
        turn: SharedTurn | None,
    ) -> None:
        message = await response
        if self._quotas.are_set and turn is not None:
            count_time(self._environment, connection, header, FIRST_TURN_S + turn.spent_s)
        turn = turn or self._environment.answers.turn(connection.is_gone)
        if self._quotas.are_set:
            throttle_message(self._environment, connection, header, message)
        turn.kept += elements_of(message)
        respond([await turn.run(encode_in_steps(message, header.api_version, header.correlation_id))])

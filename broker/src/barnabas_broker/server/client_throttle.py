"""Throttle clients that exceed a quota.

The throttle time is written into the response, and the connection is muted for that time.

The dispatcher calls the handlers of Produce and Fetch through this module only while quotas exist, so a cluster without
quotas pays nothing. The time that a handler takes counts towards the quota request_percentage. The time is known only
after the response is sent, so it affects only the throttle times of later requests.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, cast

from barnabas_broker.handlers.batch_trust import ConnectionTrust
from barnabas_broker.handlers.channel import Channel, Client, GiveUp, RawHandler, may_act_as_broker
from barnabas_broker.handlers.guard import CLUSTER_ACTIONS_SINCE
from barnabas_broker.handlers.handler_environment import FULL_WINDOW_S, ClientLimits, HandlerEnvironment, Limited
from barnabas_broker.handlers.large_responses import SharedTurn
from barnabas_broker.server.connection import Connection
from barnabas_broker.wire.fetch import encode_fetch_response, lower_bytes, parse_fetch
from barnabas_broker.wire.fetch import tell_throttle_time as tell_consumer
from barnabas_broker.wire.framing import FETCH, PRODUCE, FileSlice, Part, RequestHeader
from barnabas_broker.wire.produce import tell_throttle_time as tell_producer
from barnabas_core.loop_turns import LARGE_FETCH_BYTES

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

    def telling(parts: list[Part]) -> list[Part]:
        return [tell_producer(cast("bytes", part), version, throttle_ms) for part in parts]

    began_s = perf_counter()
    give_up = answer(_ThrottledChannel(connection, telling) if throttle_ms else connection)
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

    def telling(parts: list[Part]) -> list[Part]:
        if turn is not None:
            _count_time(limits, turn.spent_s)
        size_bytes = sum(part.length if part.__class__ is FileSlice else len(part) for part in parts)
        bytes_ms, is_refused = _consumed(limits.consumed_bytes, size_bytes)
        throttle_ms = max(bytes_ms, _wait_ms(limits.request_share))
        if is_refused:
            parts = encode_fetch_response(correlation_id, version, [])
        if throttle_ms:
            tell_consumer(parts, version, throttle_ms)
            _mute(connection, throttle_ms)
        return parts

    began_s = perf_counter()
    give_up = answer(_ThrottledChannel(connection, telling))
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
    """A channel for the response to one request; the function `telling` writes the throttle time into the response."""

    __slots__ = ("_connection", "_telling", "client", "close", "request_is_read", "turn")

    def __init__(self, connection: Connection, telling: Callable[[list[Part]], list[Part]]) -> None:
        self._connection = connection
        self._telling = telling
        self.client: Client = connection.client
        self.close = connection.close
        self.turn: SharedTurn | None = connection.turn
        self.request_is_read = connection.request_is_read

    @property
    def trust(self) -> ConnectionTrust | None:
        """The connection's `ConnectionTrust`, which decides whether its batches are checked."""
        return self._connection.trust

    @trust.setter
    def trust(self, trust: ConnectionTrust | None) -> None:
        self._connection.trust = trust

    def respond(self, parts: list[Part]) -> None:
        """Send the response now, with the throttle time."""
        self._connection.respond(self._telling(parts))

    def respond_soon(self, response: bytes | bytearray) -> None:
        """Send the response, with the throttle time, together with those to requests that were received with it."""
        self.respond([response])

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        """Return a callback that takes the parts of the response, and sends them with the throttle time.

        The callback sends nothing for an empty list.
        """
        respond = self._connection.defer(reads_on=reads_on)
        return lambda parts: respond(self._telling(parts) if parts else parts)

"""Produce (0), v3 to v13: checks the headers of batches, and appends the batches without copying them.

v9 is flexible; v13 replaces topic names by topic ids. With acks=all the response is sent when the high watermark has
passed every batch. The response may also wait for batches whose records must be checked (`appender`). With acks=0 there
is no response, and an error closes the connection. The batches of a request that has very many are appended in several
turns of the event loop.
"""

from collections.abc import Callable
from typing import Final

from barnabas_broker.handlers.appender import Appender
from barnabas_broker.handlers.channel import Channel, GiveUp, TakesTurns
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.pending_produce import check_unanswered
from barnabas_broker.wire.produce import encode_produce_response, parse_produce

BATCHES_AT_ONCE: Final = 500
"""The maximum number of batches, and of topics, in a request that is handled in one turn, which takes about 5 ms."""


def handle(
    environment: HandlerEnvironment,
    channel: Channel,
    version: int,
    correlation_id: int,
    buffer: memoryview,
    body_start: int,
    end: int,
    make_appender: Callable[..., Appender] = Appender,
) -> GiveUp | None:
    """Append every batch, and respond with a result for each.

    Raises CloseConnection if a batch with acks=0 was refused. A batch with acks=0 is appended even if the client
    disconnects while the batch waits.
    """
    request = parse_produce(buffer, body_start, end, version)
    trust = channel.trust
    if trust is None:
        trust = channel.trust = environment.trust.of_connection(channel.client.client_id or "")
    now_ms = environment.clock.now_ms()
    appender = make_appender(environment, channel, request, buffer, version, correlation_id, trust, now_ms)
    if request.only_topic_id is None and max(len(request.batches), len(request.topics)) > BATCHES_AT_ONCE:
        return _append_in_turns(appender)
    results = appender.append_all()
    if results is None:
        return appender.late.end if appender.late is not None and request.acks else None
    if request.acks:
        channel.respond_soon(encode_produce_response(correlation_id, version, request, results))
    else:
        check_unanswered(results)
    return None


def _append_in_turns(appender: Appender) -> GiveUp:
    """Begin to append the batches; the connection reads its next request when the last one is appended."""
    turn = appender.channel.turn
    if turn is None:
        raise TakesTurns
    late = appender.answer_in_turns(turn)
    appender.environment.attempt(appender.append_in_turns(turn, late))
    return late.end

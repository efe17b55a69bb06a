"""Produce (0), v3 to v13. Batches are checked by their headers and appended as they are; nothing is copied.

v9 is flexible, v13 names topics by id. acks=all is answered when the high watermark is past every batch. A batch whose
records have to be looked into (`appender`) may be answered later, too. acks=0 gets no answer; when it fails the
connection is closed, which is all the client would notice.
"""

from collections.abc import Callable

from barnabas_broker.handlers.appender import Appender
from barnabas_broker.handlers.channel import Channel, GiveUp
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.pending_produce import check_unanswered
from barnabas_broker.wire.produce import encode_produce_response, parse_produce


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
    """Append every batch, then answer with a result for each; CloseConnection when acks=0 and one failed.

    Without acks nobody waits for the answer: such a client may close while its batch waits to be appended.
    """
    request = parse_produce(buffer, body_start, end, version)
    trust = channel.trust
    if trust is None:
        trust = channel.trust = environment.trust.of_connection(channel.client.client_id or "")
    now_ms = environment.clock.now_ms()
    appender = make_appender(environment, channel, request, buffer, version, correlation_id, trust, now_ms)
    results = appender.append_all()
    if results is None:
        return appender.late.end if appender.late is not None and request.acks else None
    if request.acks:
        channel.respond([encode_produce_response(correlation_id, version, request, results)])
    else:
        check_unanswered(results)
    return None

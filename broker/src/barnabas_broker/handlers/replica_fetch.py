"""Fetch (1) of a follower, a broker that replicates: `replica_id` is its broker id (v15: with its broker epoch).

Records up to the log's end, in an incremental session (KIP-227) that only the followers get. The answer may come
later, yet the channel reads on: a second request ends the wait of the first, whose answer goes before it.
It must come in by the listener by which that broker reaches others: a client elsewhere could move the high watermark.
"""

from barnabas_broker.handlers.channel import Channel
from barnabas_broker.handlers.close_connection import CloseConnection
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.follower_sessions import NO_SESSION, FollowerAnswer
from barnabas_broker.wire.fetch import SESSIONS_SINCE, FetchRequest
from barnabas_broker.wire.fetch_response import encode_fetch_response
from barnabas_core.errors import ErrorCode


def handle(
    environment: HandlerEnvironment, channel: Channel, version: int, correlation_id: int, request: FetchRequest
) -> None:
    """Answer with the records that are new to the follower, at once or when there are some."""

    def respond(answer: FollowerAnswer) -> None:
        error, session_id, topics = answer
        channel.respond(encode_fetch_response(correlation_id, version, topics, session_id, error))

    if channel.client.listener_name == _listener_of(environment, request.replica_id):
        environment.followers.fetch(request, respond)
    else:
        refuse(channel, version, correlation_id)


def _listener_of(environment: HandlerEnvironment, broker_id: int) -> str:
    """Return the listener by which a broker reaches others: it may differ from ours while brokers are rolled."""
    registration = environment.image.brokers.get(broker_id)
    own = "" if registration is None else registration.inter_broker_listener
    return own or environment.config.listeners.inter_broker


def refuse(channel: Channel, version: int, correlation_id: int) -> None:
    """Answer that the client is no broker. Raises CloseConnection where the version has no error for that."""
    if version < SESSIONS_SINCE:
        raise CloseConnection(f"Fetch v{version} with a replica id from a client that is no broker")
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    channel.respond(encode_fetch_response(correlation_id, version, [], NO_SESSION, error))

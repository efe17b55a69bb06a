"""Fetch (1) of followers, whose `replica_id` is their broker id; v15 adds the broker epoch.

A follower reads up to the log end offset, in an incremental fetch session (KIP-227). While a response waits, the
broker reads further requests from the connection. The follower's next request ends the wait, and the responses keep
their order. A request with a replica id is refused on all listeners but the inter-broker listener of that replica;
otherwise a client on another listener could move the high watermark.
"""

from barnabas_broker.handlers.channel import Channel
from barnabas_broker.handlers.close_connection import CloseConnection
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.follower_sessions import NO_SESSION, FollowerAnswer
from barnabas_broker.wire.fetch import SESSIONS_SINCE, FetchRequest, encode_fetch_response
from barnabas_core.errors import ErrorCode


def handle(
    environment: HandlerEnvironment, channel: Channel, version: int, correlation_id: int, request: FetchRequest
) -> None:
    """Respond to a follower as soon as there are new records, or refuse a request on the wrong listener."""

    def respond(answer: FollowerAnswer) -> None:
        error, session_id, topics = answer
        channel.respond(encode_fetch_response(correlation_id, version, topics, session_id, error))

    if channel.client.listener_name == _listener_of(environment, request.replica_id):
        environment.followers.fetch(request, respond)
    else:
        refuse(channel, version, correlation_id)


def _listener_of(environment: HandlerEnvironment, broker_id: int) -> str:
    """Return the name of a broker's inter-broker listener.

    Brokers may have different inter-broker listeners during a rolling restart.
    """
    registration = environment.image.brokers.get(broker_id)
    own = "" if registration is None else registration.inter_broker_listener
    return own or environment.config.listeners.inter_broker


def refuse(channel: Channel, version: int, correlation_id: int) -> None:
    """Respond with CLUSTER_AUTHORIZATION_FAILED. Raises CloseConnection if the version has no field for the error."""
    if version < SESSIONS_SINCE:
        raise CloseConnection(f"a client that is not a broker sent Fetch v{version} with a replica id")
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    channel.respond(encode_fetch_response(correlation_id, version, [], NO_SESSION, error))

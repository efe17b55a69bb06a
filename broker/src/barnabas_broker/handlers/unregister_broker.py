"""UnregisterBroker (64), v0: removes from the metadata a broker that will not come back (KIP-500).

The removal of a broker that is alive or has replicas is refused with INVALID_REQUEST. Kafka removes even a broker that
has replicas, and then some partitions have a replica on an unknown broker.
"""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import error_fields
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas_core.errors import ApiError


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Remove a broker from the metadata, or return the error."""
    error = None
    try:
        await environment.metadata_writer.unregister_broker(request.broker_id)
    except ApiError as refusal:
        error = refusal
    return UnregisterBrokerResponse(**error_fields(error))

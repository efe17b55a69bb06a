"""UnregisterBroker (64), v0: a broker that is gone for good is not listed any more (KIP-500).

Kafka also takes one that lives or has replicas, whose partitions then count on a broker that nobody knows: here that is
INVALID_REQUEST.
"""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas_core.errors import ApiError, ErrorCode


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Forget a broker, and answer that it is forgotten, or why not."""
    try:
        await environment.metadata_writer.unregister_broker(request.broker_id)
    except ApiError as error:
        return UnregisterBrokerResponse(throttle_time_ms=0, error_code=error.code, error_message=str(error))
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None)

"""InitProducerId (22), v0 to v5: an id for an idempotent producer, always a new one, with epoch 0.

A transactional id is refused, with the error that makes a producer give up at once: there are no transactions here.
"""

from typing import Final

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import InitProducerIdRequest, InitProducerIdResponse
from barnabas_core.errors import ApiError, ErrorCode

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
FIRST_EPOCH: Final = 0


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A producer id that nobody else has."""
    if request.transactional_id is not None:
        is_named = request.transactional_id != ""
        return _refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_named else ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await environment.producer_ids.next_id()
    except ApiError as error:
        return _refusal(error.code)
    return _response(ErrorCode.NONE, producer_id, FIRST_EPOCH)


def _refusal(error: ErrorCode) -> InitProducerIdResponse:
    return _response(error, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def _response(error: ErrorCode, producer_id: int, producer_epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=error,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        ongoing_txn_producer_id=NO_PRODUCER_ID,
        ongoing_txn_producer_epoch=NO_PRODUCER_EPOCH,
    )

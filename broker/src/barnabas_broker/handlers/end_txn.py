"""EndTxn (26), v0 to v5: commits or aborts a transaction.

The response is sent when the coordinator's decision is committed, before the markers are written. A v5 response has the
producer id and epoch of the next transaction (KIP-890); v5 requires transaction.version 2.
"""

from typing import Final

from barnabas_broker.coordinators.transactions.decisions import BUMPING_VERSION, Decision
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import id_if_lacking, outcome
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.features import transaction_version
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.messages import EndTxnRequest, EndTxnResponse
from barnabas_core.errors import ApiError, ErrorCode

FENCED_SINCE: Final = 2
BUMPS_SINCE: Final = 5


async def handle(environment: HandlerEnvironment, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort the transaction; return the producer id and epoch of the next transaction."""
    try:
        decision = await _end(environment, context, request)
    except ApiError as error:
        decision = Decision(error.code)
    response = EndTxnResponse(error_code=decision.error)
    if not decision.error:
        response.producer_id, response.producer_epoch = decision.producer
    return response


async def _end(environment: HandlerEnvironment, context: RequestContext, request: EndTxnRequest) -> Decision:
    bumps = context.api_version >= BUMPS_SINCE
    if bumps and transaction_version(environment.image.features) < BUMPING_VERSION:
        message = f"EndTxn v{context.api_version} requires transaction.version {BUMPING_VERSION}"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
    if not request.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id must not be empty")
    new_id = await id_if_lacking(environment, request.transactional_id, if_unknown=False)
    return await outcome(
        lambda answer: environment.transactions.end(
            request.transactional_id,
            ProducerEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            client_version=BUMPING_VERSION if bumps else 0,
            new_id=new_id,
            answer=answer,
        ),
        knows_fenced=context.api_version >= FENCED_SINCE,
    )

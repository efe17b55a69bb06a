"""InitProducerId (22), v0 to v5: the producer id and epoch of a producer.

Without a transactional id, the producer gets a new producer id with epoch 0. With a transactional id, the epoch
increases, which fences all earlier producers with this id, and their open transaction is aborted. From v3 on a producer
sends its current producer id and epoch (KIP-360); from v4 on the producer knows the error PRODUCER_FENCED.
"""

from typing import Final

from barnabas_broker.coordinators.transactions.decisions import NOBODY, Decision
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.deferred_answer import id_if_lacking, outcome
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.messages import InitProducerIdRequest, InitProducerIdResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode

FIRST_EPOCH: Final = 0
FENCED_SINCE: Final = 4


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return an unused producer id and epoch; with a transactional id, fence its earlier producers."""
    expected = ProducerEpoch(request.producer_id, request.producer_epoch)
    try:
        _check_right(rights_of(environment, context.client), request.transactional_id)
        if (expected.producer_id < 0) != (expected.epoch < 0):
            message = f"producer id {expected.producer_id} and epoch {expected.epoch} must both be set, or both be -1"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if request.transactional_id is None:
            return _response(Decision(ErrorCode.NONE, None, await _new_producer(environment)))
        return _response(await _of_id(environment, context, request, request.transactional_id, expected))
    except ApiError as error:
        return _response(Decision(error.code))


def _check_right(rights: Rights, transactional_id: str | None) -> None:
    """Raise ApiError unless the client may use the transactional id, or may write idempotently if the id is None."""
    if transactional_id is not None:
        if not rights.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not rights.may_any(AclOperation.WRITE, ResourceType.TOPIC) and not rights.may(
        AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER
    ):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def _new_producer(environment: HandlerEnvironment) -> ProducerEpoch:
    return ProducerEpoch(await environment.producer_ids.next_id(), FIRST_EPOCH)


async def _of_id(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: InitProducerIdRequest,
    transactional_id: str,
    expected: ProducerEpoch,
) -> Decision:
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id must not be empty")
    timeout_ms, timeout_max_ms = request.transaction_timeout_ms, environment.config.transaction_max_timeout_ms
    if not 0 < timeout_ms <= timeout_max_ms:
        message = f"transaction.timeout.ms={timeout_ms} must be from 1 to {timeout_max_ms} (transaction.max.timeout.ms)"
        raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, message)
    new_id = await id_if_lacking(environment, transactional_id, if_unknown=True)
    expected = NOBODY if expected.producer_id < 0 else expected
    return await outcome(
        lambda answer: environment.transactions.init_producer_id(
            transactional_id, expected, timeout_ms, new_id, answer
        ),
        knows_fenced=context.api_version >= FENCED_SINCE,
    )


def _response(decision: Decision) -> InitProducerIdResponse:
    producer = NOBODY if decision.error else decision.producer
    return InitProducerIdResponse(
        error_code=decision.error,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        ongoing_txn_producer_id=NOBODY.producer_id,
        ongoing_txn_producer_epoch=NOBODY.epoch,
    )

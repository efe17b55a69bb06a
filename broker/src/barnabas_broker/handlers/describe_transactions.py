"""DescribeTransactions (65), v0: no transactional id is known, as from a Kafka where nobody uses them (KIP-664)."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas_core.errors import ErrorCode

TransactionState = DescribeTransactionsResponse.TransactionState


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Answer TRANSACTIONAL_ID_NOT_FOUND for each id."""
    states = [
        TransactionState(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=each)
        for each in request.transactional_ids
    ]
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)

"""ListTransactions (66), v0 to v2: none, as from a Kafka where nobody uses transactions (KIP-664)."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import ListTransactionsRequest, ListTransactionsResponse
from barnabas_core.errors import ErrorCode


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Answer an empty list, whatever the filters."""
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, unknown_state_filters=[], transaction_states=[]
    )

"""ListTransactions (66), v0 to v2: the transactional ids of this coordinator (KIP-664).

v1 adds a filter by the duration of a transaction (KIP-994), and v2 by a pattern of transactional ids (KIP-1152).
"""

from collections.abc import Callable

from barnabas_broker.coordinators.name_patterns import NamePattern
from barnabas_broker.coordinators.transactions.transaction import Transaction, TransactionState, state_name
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import ListTransactionsRequest, ListTransactionsResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode

STATES = {state_name(state): state for state in TransactionState}
State = ListTransactionsResponse.TransactionState


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Return the transactional ids that pass the filters; INVALID_REGULAR_EXPRESSION for an invalid pattern.

    Only ids that the client may see are filtered, so that the response time does not reveal other ids.
    """
    error, states = ErrorCode.NONE, []
    try:
        passes = _filter(request, environment.clock.now_ms())
        rights = rights_of(environment, context.client)
        answer = AnswerInTurns(ListTransactionsResponse, context, environment.answers)
        visible = [
            (name, each)
            async for name, each in answer.over(environment.transactions.transactions())
            if rights.may_see(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        ]
        states = [_state(name, each) async for name, each in answer.over(visible) if passes(name, each)]
    except ApiError as refusal:
        error = refusal.code
    unknown = [name for name in request.state_filters if name not in STATES]
    return ListTransactionsResponse(error_code=error, unknown_state_filters=unknown, transaction_states=states)


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[str, Transaction], bool]:
    wanted = {STATES[name] for name in request.state_filters if name in STATES}
    producers, open_ms = set(request.producer_id_filters), request.duration_filter
    try:
        pattern = NamePattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"TransactionalIdPattern: {error}") from None

    def passes(name: str, transaction: Transaction) -> bool:
        return (
            (not request.state_filters or transaction.state in wanted)
            and (not producers or transaction.producer_id in producers)
            and (open_ms < 0 or now_ms - transaction.started_ms > open_ms)
            and (pattern is None or pattern.fits(name))
        )

    return passes


def _state(name: str, transaction: Transaction) -> State:
    return State(
        transactional_id=name, producer_id=transaction.producer_id, transaction_state=state_name(transaction.state)
    )

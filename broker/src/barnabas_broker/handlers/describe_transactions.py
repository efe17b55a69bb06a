"""DescribeTransactions (65), v0: the transactions that this broker coordinates (KIP-664)."""

from functools import partial

from barnabas_broker.coordinators.transactions.transaction import Transaction, state_name
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError

State = DescribeTransactionsResponse.TransactionState


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Return the transaction state, producer and partitions of each transactional id, or an error."""
    rights = rights_of(environment, context.client)
    answer = AnswerInTurns(DescribeTransactionsResponse, context, environment.answers)
    describe = partial(_state, environment, rights)
    states = await answer.elements(("transaction_states",), request.transactional_ids, describe)
    return DescribeTransactionsResponse(transaction_states=states)


def _state(environment: HandlerEnvironment, rights: Rights, transactional_id: str) -> State:
    try:
        found = environment.transactions.describe(transactional_id)
    except ApiError as error:
        return State(error_code=error.code, transactional_id=transactional_id)
    return State(
        transactional_id=transactional_id,
        transaction_state=state_name(found.state),
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=_topics(found, rights),
    )


def _topics(transaction: Transaction, rights: Rights) -> list[State.TopicData]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(transaction.partitions):
        if rights.may_see(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(number)
    return [State.TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()]

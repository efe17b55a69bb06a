"""DescribeTransactions (65), v0: what the coordinator knows of transactional ids (KIP-664)."""

from barnabas_broker.coordinators.transactions.transaction import Transaction, state_name
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas_core.errors import ApiError

State = DescribeTransactionsResponse.TransactionState


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """State, producer and partitions of each id, or why not."""
    states = [_state(environment, each) for each in request.transactional_ids]
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _state(environment: HandlerEnvironment, transactional_id: str) -> State:
    try:
        found = environment.transactions.describe(transactional_id)
    except ApiError as error:
        return State(error_code=error.code, transactional_id=transactional_id)
    return State(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=state_name(found.state),
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=_topics(found),
    )


def _topics(transaction: Transaction) -> list[State.TopicData]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(number)
    return [State.TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()]

"""The requests that describe and list transactions, and the producers of partitions.

DescribeTransactions (65), v0: the transactions that this broker coordinates (KIP-664).

ListTransactions (66), v0 to v2: the transactional ids of this coordinator (KIP-664). v1 adds a filter by the duration
of a transaction (KIP-994), and v2 by a pattern of transactional ids (KIP-1152).

DescribeProducers (61), v0: the idempotent producers of a partition, as any of its replicas knows them (KIP-664).
"""

from collections.abc import Callable
from functools import partial

from barnabas_broker.coordinators.name_patterns import NamePattern
from barnabas_broker.coordinators.transactions.decisions import Transaction, TransactionState, state_name
from barnabas_broker.handlers.channel import AnswerInTurns, RequestContext, rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode

DescribedTransaction = DescribeTransactionsResponse.TransactionState


async def describe_transactions(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Return the transaction state, producer and partitions of each transactional id, or an error."""
    rights = rights_of(environment, context.client)
    answer = AnswerInTurns(DescribeTransactionsResponse, context, environment.answers)
    describe = partial(_described_transaction, environment, rights)
    states = await answer.elements(("transaction_states",), request.transactional_ids, describe)
    return DescribeTransactionsResponse(transaction_states=states)


def _described_transaction(
    environment: HandlerEnvironment, rights: Rights, transactional_id: str
) -> DescribedTransaction:
    try:
        found = environment.transactions.describe(transactional_id)
    except ApiError as error:
        return DescribedTransaction(error_code=error.code, transactional_id=transactional_id)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=state_name(found.state),
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=_visible_topics(found, rights),
    )


def _visible_topics(transaction: Transaction, rights: Rights) -> list[DescribedTransaction.TopicData]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(transaction.partitions):
        if rights.may_see(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(number)
    return [DescribedTransaction.TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()]


STATES = {state_name(state): state for state in TransactionState}
ListedTransaction = ListTransactionsResponse.TransactionState


async def list_transactions(
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
        states = [_listed_transaction(name, each) async for name, each in answer.over(visible) if passes(name, each)]
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


def _listed_transaction(name: str, transaction: Transaction) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=name, producer_id=transaction.producer_id, transaction_state=state_name(transaction.state)
    )


ProducersTopic = DescribeProducersResponse.TopicResponse
ProducersPartition = ProducersTopic.PartitionResponse
ProducerState = ProducersPartition.ProducerState


async def describe_producers(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Return the active producers of each partition, or an error."""
    answer = AnswerInTurns(DescribeProducersResponse, context, environment.answers)
    topics = []
    async for topic in answer.over(request.topics):
        describe = partial(_producers_of, environment, topic.name)
        partitions = await answer.elements(("topics", "partitions"), topic.partition_indexes, describe)
        topics.append(answer.encoded(("topics",), ProducersTopic(name=topic.name, partitions=partitions)))
    return DescribeProducersResponse(topics=topics)


def _producers_of(environment: HandlerEnvironment, topic: str, number: int) -> ProducersPartition:
    try:
        with environment.replicas.failures.using(topic, number) as partition:
            if partition.failure is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(partition.failure))
            # The snapshot has an entry for each known batch of a producer, and the newest entry comes last.
            newest = {each.producer_id: each for each in partition.log.producers.snapshot()}
    except ApiError as error:
        return ProducersPartition(partition_index=number, error_code=error.code, error_message=error.message)
    return ProducersPartition(
        partition_index=number,
        error_message=None,
        active_producers=[
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.timestamp_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.transaction_first_offset,
            )
            for each in newest.values()
        ],
    )

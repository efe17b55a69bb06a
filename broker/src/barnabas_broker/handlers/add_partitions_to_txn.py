"""AddPartitionsToTxn (24), v0 to v5: adds partitions to a transaction.

Clients send v0 to v3. Brokers send v4 and later, to add partitions to many transactions at once, or to verify that the
partitions were added.
"""

from collections.abc import Awaitable, Iterable, Iterator
from inspect import isawaitable
from typing import Any, Final

from barnabas_broker.coordinators.transactions.gate import Codes
from barnabas_broker.coordinators.transactions.leader_queues import state_of
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.deferred_answer import answer_of, outcome
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import flat_in_steps
from barnabas_core.topic_name import is_internal
from barnabas_core.topic_partition import TopicPartition

FENCED_SINCE: Final = 2
BATCHED_SINCE: Final = 4
EXPLICIT_VERSION: Final = 0
"""The transaction.version for clients that send AddPartitionsToTxn or AddOffsetsToTxn instead of letting the broker add
partitions."""

Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add all partitions to the transaction, or none; return an error code for each partition.

    From v4 on, a request adds or only verifies the partitions of many transactions.
    """
    answer = AnswerInTurns(AddPartitionsToTxnResponse, context, environment.answers)
    if context.api_version >= BATCHED_SINCE:
        asked = [
            (each, _decision(environment, each, await _partitions(answer, each.topics)))
            async for each in answer.over(request.transactions)
        ]
        results = [
            Result(
                transactional_id=each.transactional_id,
                topic_results=await _topics(answer, each.topics, await found if isawaitable(found) else found),
            )
            async for each, found in answer.over(asked)
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    partitions = await _partitions(answer, request.v3_and_below_topics)
    codes = await _add(environment, answer, context, request, partitions)
    topics = await _topics(answer, request.v3_and_below_topics, codes)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def _decision(
    environment: HandlerEnvironment, wanted: Any, partitions: list[TopicPartition]
) -> Codes | Awaitable[Codes]:
    by = ProducerEpoch(wanted.producer_id, wanted.producer_epoch)
    transactional_id, adds = wanted.transactional_id, not wanted.verify_only
    return answer_of(
        lambda answer: environment.gate.decide(transactional_id, by, adds=adds, partitions=partitions, answer=answer)
    )


async def _add(
    environment: HandlerEnvironment,
    answer: AnswerInTurns,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
    partitions: list[TopicPartition],
) -> Codes:
    rights = rights_of(environment, context.client)
    refusals = {each: _refusal(environment, rights, each) async for each in answer.over(partitions)}
    if any(refusals.values()):
        return {each: code or ErrorCode.OPERATION_NOT_ATTEMPTED async for each, code in answer.along(refusals.items())}
    by = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    decision = await outcome(
        lambda done: environment.transactions.add_partitions(
            request.v3_and_below_transactional_id, by, partitions, EXPLICIT_VERSION, done
        ),
        knows_fenced=context.api_version >= FENCED_SINCE,
    )
    return dict.fromkeys(partitions, decision.error)


def _refusal(environment: HandlerEnvironment, rights: Rights, partition: TopicPartition) -> ErrorCode:
    may_write = rights.may(AclOperation.WRITE, ResourceType.TOPIC, partition.topic)
    if is_internal(partition.topic) or not may_write:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    is_known = state_of(environment.image, partition) is not None
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _partitions(answer: AnswerInTurns, topics: Iterable[Any]) -> list[TopicPartition]:
    return await answer.turn.run(flat_in_steps(topics, _partitions_of))


def _partitions_of(topic: Any) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, number) for number in topic.partitions)


async def _topics(answer: AnswerInTurns, topics: Iterable[Any], codes: Codes) -> list[Any]:
    kind = Result.AddPartitionsToTxnTopicResult
    return [
        kind(
            name=topic.name,
            results_by_partition=[
                kind.AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[TopicPartition(topic.name, number)]
                )
                async for number in answer.over(topic.partitions)
            ],
        )
        async for topic in answer.over(topics)
    ]

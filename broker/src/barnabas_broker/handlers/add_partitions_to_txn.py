"""AddPartitionsToTxn (24), v0 to v5: adds partitions to a transaction.

Clients send v0 to v3. Brokers send v4 and later, to add partitions to many transactions at once, or to verify that the
partitions were added.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from barnabas_broker.coordinators.transactions.gate import Codes
from barnabas_broker.coordinators.transactions.whereabouts import state_of
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.deferred_answer import awaited
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.transaction_answers import outcome
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas_broker.wire.transaction_markers import ProducerEpoch
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode
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
    if context.api_version >= BATCHED_SINCE:
        codes = await asyncio.gather(*(_decided(environment, each) for each in request.transactions))
        results = [
            Result(transactional_id=each.transactional_id, topic_results=_topics(each.topics, found))
            for each, found in zip(request.transactions, codes, strict=True)
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    topics = _topics(request.v3_and_below_topics, await _add(environment, context, request))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


async def _decided(environment: HandlerEnvironment, wanted: Any) -> Codes:
    by, partitions = ProducerEpoch(wanted.producer_id, wanted.producer_epoch), _partitions(wanted.topics)
    transactional_id, adds = wanted.transactional_id, not wanted.verify_only
    return await awaited(
        lambda answer: environment.gate.decide(transactional_id, by, adds=adds, partitions=partitions, answer=answer)
    )


async def _add(environment: HandlerEnvironment, context: RequestContext, request: AddPartitionsToTxnRequest) -> Codes:
    partitions = _partitions(request.v3_and_below_topics)
    rights = rights_of(environment, context.client)
    refusals = {each: _refusal(environment, rights, each) for each in partitions}
    if any(refusals.values()):
        return {each: code or ErrorCode.OPERATION_NOT_ATTEMPTED for each, code in refusals.items()}
    by = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    decision = await outcome(
        lambda answer: environment.transactions.add_partitions(
            request.v3_and_below_transactional_id, by, partitions, EXPLICIT_VERSION, answer
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


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def _topics(topics: Iterable[Any], codes: Codes) -> list[Any]:
    kind = Result.AddPartitionsToTxnTopicResult
    return [
        kind(
            name=topic.name,
            results_by_partition=[
                kind.AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[TopicPartition(topic.name, number)]
                )
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]

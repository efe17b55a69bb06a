"""AlterPartitionReassignments (45), v0 to v1: reassigns replicas, or cancels reassignments (KIP-455).

A v1 request may forbid that the replication factor changes (KIP-860).
"""

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import by_topic, error_fields
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from barnabas_core.errors import ApiError
from barnabas_core.topic_partition import TopicPartition

TopicResult = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionResult = TopicResult.ReassignablePartitionResponse


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin or cancel the reassignment of each partition, and return an error code for each."""
    may_change_factor = context.api_version == 0 or request.allow_replication_factor_change
    answer = AnswerInTurns(AlterPartitionReassignmentsResponse, context, environment.answers)
    wanted = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        async for topic in answer.over(request.topics)
        async for partition in answer.over(topic.partitions)
    }
    outcomes = await environment.metadata_writer.alter_reassignments(wanted, may_change_factor=may_change_factor)
    answer.turn.keep_outcomes(outcomes)
    results = []
    async for topic, found in answer.along(await answer.turn.run(by_topic(outcomes))):
        partitions = await answer.elements(("responses", "partitions"), found, lambda each: _result(*each))
        results.append(answer.encoded(("responses",), TopicResult(name=topic, partitions=partitions)))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor, error_message=None, responses=results
    )


def _result(number: int, error: ApiError | None) -> PartitionResult:
    return PartitionResult(partition_index=number, **error_fields(error))

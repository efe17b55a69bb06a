"""CreatePartitions (37), v0 to v3: more partitions for a topic, never fewer."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.create_partitions import NewPartitions
from barnabas_broker.wire.messages import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas_core.errors import ApiError, ErrorCode

TopicResult = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """For each topic that it has as many partitions now, or why not."""
    wanted = [_new_partitions(topic) for topic in request.topics]
    outcomes = await environment.metadata_writer.create_partitions(wanted, validate_only=request.validate_only)
    results = []
    for name, outcome in outcomes.items():
        code, message = (outcome.code, outcome.message) if isinstance(outcome, ApiError) else (ErrorCode.NONE, None)
        results.append(TopicResult(name=name, error_code=code, error_message=message))
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def _new_partitions(topic: CreatePartitionsRequest.CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    return NewPartitions(topic.name, topic.count, assignments)

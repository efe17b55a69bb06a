"""CreatePartitions (37), v0 to v3: adds partitions to topics."""

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import error_fields
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.mutation_quota import MutationCharge
from barnabas_broker.metadata.controller.decisions.alter_configs import NewPartitions
from barnabas_broker.wire.messages import CreatePartitionsRequest, CreatePartitionsResponse

TopicResult = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions, or only check the request with validate_only; return an error code for each topic."""
    answer = AnswerInTurns(CreatePartitionsResponse, context, environment.answers)
    wanted = [_new_partitions(topic) async for topic in answer.over(request.topics)]
    costs = {each.name: _added(environment, each) async for each in answer.over(wanted)}
    charge = MutationCharge(environment, context, costs, is_free=request.validate_only)
    await answer.turn.run(charge.charge())
    allowed = [each async for each in answer.over(wanted) if each.name not in charge.refused]
    made = await environment.metadata_writer.create_partitions(allowed, validate_only=request.validate_only)
    outcomes = {**made, **charge.refused}
    answer.turn.keep_outcomes(outcomes)
    results = [TopicResult(name=name, **error_fields(error)) async for name, error in answer.along(outcomes.items())]
    throttle_ms = await answer.turn.run(charge.throttle_ms(outcomes))
    return CreatePartitionsResponse(throttle_time_ms=throttle_ms, results=results)


def _new_partitions(topic: CreatePartitionsRequest.CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    return NewPartitions(topic.name, topic.count, assignments)


def _added(environment: HandlerEnvironment, wanted: NewPartitions) -> int:
    topic = environment.image.topics.get(wanted.name)
    return 0 if topic is None else max(wanted.count - len(topic.partitions), 0)

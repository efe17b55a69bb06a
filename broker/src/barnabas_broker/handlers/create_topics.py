"""CreateTopics (19), v2 to v7: creates topics; v5 adds the configs of the topic to the response, v7 the topic id."""

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.mutation_quota import MutationCharge, created_partitions
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import CreateTopicsRequest, CreateTopicsResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.config.describe import describe_topic
from barnabas_core.errors import ApiError, ErrorCode

TopicResult = CreateTopicsResponse.CreatableTopicResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create topics, or only check them with validate_only, and return an outcome for each."""
    answer = AnswerInTurns(CreateTopicsResponse, context, environment.answers)
    wanted = [_new_topic(topic) async for topic in answer.over(request.topics)]
    costs = {each.name: created_partitions(environment, each) async for each in answer.over(wanted)}
    charge = MutationCharge(environment, context, costs, is_free=request.validate_only)
    await answer.turn.run(charge.charge())
    allowed = [each async for each in answer.over(wanted) if each.name not in charge.refused]
    created = await environment.metadata_writer.create_topics(allowed, validate_only=request.validate_only)
    outcomes = {**created, **charge.refused}
    answer.turn.keep_outcomes(outcomes)
    rights = rights_of(environment, context.client)
    results = await answer.elements(("topics",), outcomes.items(), lambda each: _result(environment, rights, *each))
    throttle_ms = await answer.turn.run(charge.throttle_ms(outcomes))
    return CreateTopicsResponse(throttle_time_ms=throttle_ms, topics=results)


def _new_topic(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs={each.name: each.value for each in topic.configs},
    )


def _result(
    environment: HandlerEnvironment, rights: Rights, name: str, outcome: TopicDocument | ApiError
) -> TopicResult:
    if isinstance(outcome, ApiError):
        return TopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
    if not rights.may_see(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return TopicResult(
            name=name, topic_id=outcome.topic_id, topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
    return TopicResult(
        name=name,
        topic_id=outcome.topic_id,
        error_message=None,
        num_partitions=len(outcome.partitions),
        replication_factor=len(outcome.partitions[0].replicas),
        configs=_configs(environment, outcome),
    )


def _configs(environment: HandlerEnvironment, document: TopicDocument) -> list[TopicResult.CreatableTopicConfigs]:
    return [
        TopicResult.CreatableTopicConfigs(
            name=each.name,
            value=each.value,
            read_only=each.read_only,
            config_source=each.source,
            is_sensitive=each.sensitive,
        )
        for each in describe_topic(document.configs, environment.config)
    ]

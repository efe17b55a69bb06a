"""DeleteTopics (20), v1 to v6: deletes topics by name, and from v6 on by name or topic id."""

from uuid import UUID

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.metadata import NO_ID
from barnabas_broker.handlers.mutation_quota import MutationCharge
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode

TopicResult = DeleteTopicsResponse.DeletableTopicResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete topics, and return an outcome for each."""
    answer = AnswerInTurns(DeleteTopicsResponse, context, environment.answers)
    by_state = [
        topic.topic_id if topic.name is None else topic.name async for topic in answer.over(request.topics or ())
    ]
    asked = dict.fromkeys([*by_state, *(request.topic_names or ())])
    rights = rights_of(environment, context.client)
    refused = {each async for each in answer.over(asked) if not _may_delete(environment, rights, each)}
    costs = {each: _partitions(environment, each) async for each in answer.over(asked) if each not in refused}
    charge = MutationCharge(environment, context, costs, is_free=False)
    allowed = await answer.turn.run(charge.charge())
    outcomes = {**await environment.metadata_writer.delete_topics(allowed), **charge.refused}
    answer.turn.keep_outcomes(outcomes)
    results = await answer.elements(("responses",), outcomes.items(), lambda each: _result(*each))
    refusals = [_refused(environment, rights, each) async for each in answer.over(asked) if each in refused]
    throttle_ms = await answer.turn.run(charge.throttle_ms(outcomes))
    return DeleteTopicsResponse(throttle_time_ms=throttle_ms, responses=[*results, *refusals])


def _partitions(environment: HandlerEnvironment, topic: str | UUID) -> int:
    name = topic if isinstance(topic, str) else environment.image.topic_name(topic)
    document = environment.image.topics.get(name or "")
    return 0 if document is None else len(document.partitions)


def _may_delete(environment: HandlerEnvironment, rights: Rights, asked: str | UUID) -> bool:
    """True if the client may delete the topic, or if the topic id is unknown, which gets a different error later."""
    name = asked if isinstance(asked, str) else environment.image.topic_name(asked)
    return (
        name is None
        or rights.may_see(AclOperation.DELETE, ResourceType.CLUSTER)
        or rights.may(AclOperation.DELETE, ResourceType.TOPIC, name)
    )


def _refused(environment: HandlerEnvironment, rights: Rights, asked: str | UUID) -> TopicResult:
    """Return the result for a topic that the client may not delete.

    If the topic was requested by id, the result has its name only if the client may describe the topic.
    """
    if isinstance(asked, str):
        return TopicResult(name=asked, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    name = environment.image.topic_name(asked)
    shown = name if name is not None and rights.may_see(AclOperation.DESCRIBE, ResourceType.TOPIC, name) else None
    return TopicResult(name=shown, topic_id=asked, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _result(asked: str | UUID, outcome: TopicDocument | ApiError) -> TopicResult:
    if isinstance(outcome, ApiError):
        return TopicResult(
            name=asked if isinstance(asked, str) else None,
            topic_id=NO_ID if isinstance(asked, str) else asked,
            error_code=outcome.code,
            error_message=outcome.message,
        )
    return TopicResult(name=outcome.name, topic_id=outcome.topic_id, error_message=None)

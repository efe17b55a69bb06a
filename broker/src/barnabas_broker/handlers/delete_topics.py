"""DeleteTopics (20), v1 to v6: by name, from v6 on by name or id."""

from uuid import UUID

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.metadata import NO_ID
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.wire.messages import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas_core.errors import ApiError, ErrorCode

TopicResult = DeleteTopicsResponse.DeletableTopicResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """For each topic that it is gone, or why not. Many are told in several turns of the loop."""
    by_state = [topic.topic_id if topic.name is None else topic.name for topic in request.topics or ()]
    outcomes = await environment.metadata_writer.delete_topics([*by_state, *(request.topic_names or ())])
    answer = AnswerInTurns(DeleteTopicsResponse, context, environment.answers)
    results = await answer.elements(("responses",), outcomes.items(), lambda each: _result(*each))
    return DeleteTopicsResponse(throttle_time_ms=0, responses=results)


def _result(asked: str | UUID, outcome: TopicDocument | ApiError) -> TopicResult:
    if isinstance(outcome, ApiError):
        return TopicResult(
            name=asked if isinstance(asked, str) else None,
            topic_id=NO_ID if isinstance(asked, str) else asked,
            error_code=outcome.code,
            error_message=outcome.message,
        )
    return TopicResult(name=outcome.name, topic_id=outcome.topic_id, error_code=ErrorCode.NONE, error_message=None)

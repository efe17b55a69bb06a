"""DeleteShareGroupOffsets (92), v0: deletes the share state of topics of a share group without members (KIP-932)."""

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps

Topic: TypeAlias = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
_NO_ID: Final = UUID(int=0)


@stepwise
def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> InSteps[DeleteShareGroupOffsetsResponse | Awaitable[DeleteShareGroupOffsetsResponse]]:
    """Delete the state; return an error code for the group, or one for each topic."""
    rights = rights_of(environment, context.client)
    if not environment.groups.share.are_on:
        return _refusal(ErrorCode.UNSUPPORTED_VERSION)
    if not rights.may(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        return _refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = [topic.topic_name for topic in request.topics]
    allowed = yield from in_steps(names, partial(rights.may, AclOperation.READ, ResourceType.TOPIC))
    asked = [name for name, is_allowed in zip(names, allowed, strict=True) if is_allowed]

    def answered(error: ErrorCode, errors: Mapping[str, ErrorCode]) -> DeleteShareGroupOffsetsResponse:
        if error:
            return _refusal(error)
        topics = [_topic(environment, name, errors.get(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)) for name in names]
        return DeleteShareGroupOffsetsResponse(error_message=None, responses=topics)

    delete = environment.groups.share.delete_offsets
    return answer_of(
        lambda respond: delete(request.group_id, asked, lambda error, errors: respond(answered(error, errors)))
    )


def _refusal(error: ErrorCode) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=None)


def _topic(environment: HandlerEnvironment, name: str, error: ErrorCode) -> Topic:
    document = environment.image.topics.get(name)
    topic_id = _NO_ID if document is None else document.topic_id
    return Topic(topic_name=name, topic_id=topic_id, error_code=error, error_message=None)

"""Remove from Metadata requests the topics that the client may not describe, or may not create."""

from typing import Final
from uuid import UUID

from barnabas_broker.handlers.encoded_topics import TopicResponse
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import MetadataRequest
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps

NO_ID: Final = UUID(int=0)
Wanted = MetadataRequest.MetadataRequestTopic


def narrow(environment: HandlerEnvironment, rights: Rights, request: MetadataRequest) -> InSteps[list[TopicResponse]]:
    """Remove from the request the topics that the client may not describe or create; return an error for each of them.

    If the request asks for all topics, change it to ask for the topics that the client may describe; return no errors.
    """
    if request.topics is None:
        names = [
            name for name in environment.image.topics if rights.may_see(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
        request.topics = [Wanted(name=name) for name in names]
        request.allow_auto_topic_creation = False
        return []
    creates = environment.config.auto_create_topics_enable and request.allow_auto_topic_creation

    def refusal(wanted: Wanted) -> TopicResponse | None:
        may = _may_describe(environment, rights, wanted) and (not creates or _may_create(environment, rights, wanted))
        return None if may else _refusal(wanted)

    refusals = yield from in_steps(request.topics, refusal)
    request.topics = [wanted for wanted, refused in zip(request.topics, refusals, strict=True) if refused is None]
    return [each for each in refusals if each is not None]


def _may_describe(environment: HandlerEnvironment, rights: Rights, wanted: Wanted) -> bool:
    """True if the client may describe the topic. An unknown topic id passes, and gets UNKNOWN_TOPIC_ID later."""
    name = environment.image.topic_name(wanted.topic_id) if wanted.name is None else wanted.name
    return name is None or rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _may_create(environment: HandlerEnvironment, rights: Rights, wanted: Wanted) -> bool:
    """True if the topic exists, or the client may create it."""
    if wanted.name is None or wanted.name in environment.image.topics:
        return True
    return rights.may_see(AclOperation.CREATE, ResourceType.CLUSTER) or rights.may(
        AclOperation.CREATE, ResourceType.TOPIC, wanted.name
    )


def _refusal(wanted: Wanted) -> TopicResponse:
    """Return an authorization error, which does not reveal whether the topic exists."""
    topic_id = wanted.topic_id if wanted.name is None else NO_ID
    return TopicResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=wanted.name, topic_id=topic_id)

"""Takes out of Metadata requests the topics that their clients may not see or create."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from barnabas_broker.handlers.encoded_topics import NOT_ASKED, TopicResponse
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import MetadataRequest
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode

NO_ID: Final = UUID(int=0)
Wanted = MetadataRequest.MetadataRequestTopic


def narrow(environment: HandlerEnvironment, rights: Rights, request: MetadataRequest) -> list[TopicResponse]:
    """Keep what the client may ask for in the request; return refusals of what it named besides."""
    if request.topics is None:
        names = [
            name for name in environment.image.topics if rights.may_see(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
        request.topics = [Wanted(name=name) for name in names]
        request.allow_auto_topic_creation = False
        return []
    creates = environment.config.auto_create_topics_enable and request.allow_auto_topic_creation
    allowed: list[Wanted] = []
    refused: list[Wanted] = []
    for wanted in request.topics:
        may = _may_describe(environment, rights, wanted) and (not creates or _may_create(environment, rights, wanted))
        (allowed if may else refused).append(wanted)
    request.topics = allowed
    return list(_refusals(refused))


def _may_describe(environment: HandlerEnvironment, rights: Rights, wanted: Wanted) -> bool:
    """Return True too for an id that nobody knows: the answer is that."""
    name = environment.image.topic_name(wanted.topic_id) if wanted.name is None else wanted.name
    return name is None or rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _may_create(environment: HandlerEnvironment, rights: Rights, wanted: Wanted) -> bool:
    """Return whether the topic is there, or the client may create it."""
    if wanted.name is None or wanted.name in environment.image.topics:
        return True
    return rights.may_see(AclOperation.CREATE, ResourceType.CLUSTER) or rights.may(
        AclOperation.CREATE, ResourceType.TOPIC, wanted.name
    )


def _refusals(refused: Iterable[Wanted]) -> Iterable[TopicResponse]:
    """A topic is refused in the same way whether it is there or not; the answer shows its name only to who knew it."""
    for wanted in refused:
        yield TopicResponse(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            name=wanted.name,
            topic_id=wanted.topic_id if wanted.name is None else NO_ID,
            is_internal=False,
            partitions=[],
            authorized_operations=set(NOT_ASKED),
        )

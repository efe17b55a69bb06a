"""OffsetFetch (9), v1 to v10: the committed offsets of groups; -1 means that no offset is committed.

From v2 on null topics mean all topics. v8 adds requests for several groups (KIP-709), v9 member epochs, which only
consumer groups of KIP-848 have, and v10 replaces topic names by topic ids. Offsets of a deleted topic with the same
name are ignored. From v7 on a request may require stable offsets: an offset that an open transaction may change has the
error UNSTABLE_OFFSET_COMMIT (KIP-447).
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, cast
from uuid import UUID

from barnabas_broker.coordinators.groups.records import CommittedOffset
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns, Path
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import OffsetFetchRequest, OffsetFetchResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

FIRST_WITH_GROUP_ERROR: Final = 2
FIRST_WITH_GROUPS: Final = 8
FIRST_WITH_TOPIC_IDS: Final = 10
NO_ID: Final = UUID(int=0)
NOTHING: Final = CommittedOffset(-1)

Committed = Mapping[TopicPartition, CommittedOffset]
GroupRequest = OffsetFetchRequest.OffsetFetchRequestGroup
GroupResponse = OffsetFetchResponse.OffsetFetchResponseGroup
TopicResponse = GroupResponse.OffsetFetchResponseTopics
PartitionResponse = TopicResponse.OffsetFetchResponsePartitions
TOPICS: Final[Path] = ("groups", "topics")
OLD_TOPICS: Final[Path] = ("topics",)
"""The array of topics in an OffsetFetch response before v8, as a path of field names."""


class _Topic(NamedTuple):
    """A topic of the request or the response; the name is None if the topic id is unknown.

    `offset_of` takes a partition index, and returns the committed offset, or None if an open transaction has an offset
    for the partition.
    """

    name: str | None
    partitions: list[int]
    topic_id: UUID = NO_ID
    error: ErrorCode = ErrorCode.NONE
    offset_of: Callable[[int], CommittedOffset | None] = lambda _: NOTHING


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Return the committed offset, leader epoch and metadata of each requested partition."""
    answer = AnswerInTurns(OffsetFetchResponse, context, environment.answers)
    if context.api_version >= FIRST_WITH_GROUPS:
        groups = [
            await _group(environment, context, answer, group, request.require_stable)
            async for group in answer.over(request.groups)
        ]
        return OffsetFetchResponse(groups=groups)
    wanted = None
    if request.topics is not None:
        wanted = [_Topic(each.name, each.partition_indexes) async for each in answer.over(request.topics)]
    error = ErrorCode.NONE
    try:
        committed = dict(environment.groups.committed(request.group_id))
        topics = await _read(environment, context, answer, request.group_id, committed, wanted, request.require_stable)
    except ApiError as refusal:
        error = refusal.code
        has_group_error = context.api_version >= FIRST_WITH_GROUP_ERROR
        topics = [] if has_group_error else [topic._replace(error=error) for topic in wanted or ()]
    encoded = [await _encoded(answer, OLD_TOPICS, topic) async for topic in answer.over(topics)]
    # The topics of responses before v8 have the same fields as the topics of later responses.
    old_topics = cast("list[OffsetFetchResponse.OffsetFetchResponseTopic]", encoded)
    return OffsetFetchResponse(error_code=error, topics=old_topics)


async def _group(
    environment: HandlerEnvironment,
    context: RequestContext,
    answer: AnswerInTurns,
    group: GroupRequest,
    require_stable: bool,
) -> GroupResponse:
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    wanted = None
    if group.topics is not None:
        wanted = [_wanted(environment, topic, by_id) async for topic in answer.over(group.topics)]
    error, topics = ErrorCode.NONE, []
    try:
        committed = dict(environment.groups.committed(group.group_id, group.member_id, group.member_epoch))
        topics = await _read(environment, context, answer, group.group_id, committed, wanted, require_stable)
    except ApiError as refusal:
        error = refusal.code
    encoded = [
        await _encoded(answer, TOPICS, topic)
        async for topic in answer.over(topics)
        if not by_id or topic.topic_id != NO_ID
    ]
    return answer.encoded(("groups",), GroupResponse(group_id=group.group_id, error_code=error, topics=encoded))


def _wanted(environment: HandlerEnvironment, topic: GroupRequest.OffsetFetchRequestTopics, by_id: bool) -> _Topic:
    if by_id:
        return _Topic(environment.image.topic_name(topic.topic_id), topic.partition_indexes, topic.topic_id)
    return _Topic(topic.name, topic.partition_indexes)


async def _read(
    environment: HandlerEnvironment,
    context: RequestContext,
    answer: AnswerInTurns,
    group_id: str,
    committed: Committed,
    wanted: list[_Topic] | None,
    require_stable: bool,
) -> list[_Topic]:
    """Return the requested topics, or all topics with committed offsets.

    Raises ApiError if this broker does not coordinate the group. `committed` is a copy of the group's offsets, because
    before a later turn of the event loop they may change, or another broker may become the coordinator.
    """
    rights = rights_of(environment, context.client)
    unstable = environment.groups.unstable(group_id) if require_stable else frozenset()
    if wanted is None:
        by_topic: dict[str, list[int]] = {}
        async for topic, partition in answer.over(committed):
            if rights.may_see(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
                by_topic.setdefault(topic, []).append(partition)
        wanted = [_Topic(name, partitions) for name, partitions in by_topic.items()]
    return [_look_up(environment, rights, committed, unstable, topic) async for topic in answer.over(wanted)]


def _look_up(
    environment: HandlerEnvironment,
    rights: Rights,
    committed: Committed,
    unstable: Collection[TopicPartition],
    wanted: _Topic,
) -> _Topic:
    name = wanted.name
    if name is None:
        return wanted._replace(error=ErrorCode.UNKNOWN_TOPIC_ID)
    if not rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return wanted._replace(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    document = environment.image.topics.get(name)
    topic_id = NO_ID if document is None else document.topic_id

    def offset_of(number: int) -> CommittedOffset | None:
        if TopicPartition(name, number) in unstable:
            return None
        offset = committed.get(TopicPartition(name, number), NOTHING)
        is_of_another_topic = document is not None and offset.topic_id not in (None, topic_id)
        return NOTHING if is_of_another_topic else offset

    return wanted._replace(topic_id=topic_id, offset_of=offset_of)


async def _encoded(answer: AnswerInTurns, topics: Path, topic: _Topic) -> TopicResponse:
    """Return a topic with its partitions, encoded as an element of the array `topics`."""

    def tell(number: int) -> PartitionResponse:
        found = topic.offset_of(number)
        committed = found or NOTHING
        return PartitionResponse(
            partition_index=number,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if found is None else topic.error,
        )

    partitions = await answer.elements((*topics, "partitions"), topic.partitions, tell)
    return answer.encoded(topics, TopicResponse(name=topic.name or "", topic_id=topic.topic_id, partitions=partitions))

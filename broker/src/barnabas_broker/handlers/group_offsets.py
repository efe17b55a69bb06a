"""The requests for the committed offsets of groups.

OffsetCommit (8), v2 to v10: commits the offsets of a group. The response is sent when the offsets are committed to
the log. v2 to v4 may have a retention time; v6 adds leader epochs, v7 static members, and v10 replaces topic names by
topic ids.

OffsetFetch (9), v1 to v10: the committed offsets of groups; -1 means that no offset is committed. From v2 on null
topics mean all topics. v8 adds requests for several groups (KIP-709), v9 member epochs, which only consumer groups of
KIP-848 have, and v10 replaces topic names by topic ids. Offsets of a deleted topic with the same name are ignored.
From v7 on a request may require stable offsets: an offset that an open transaction may change has the error
UNSTABLE_OFFSET_COMMIT (KIP-447).

OffsetDelete (47), v0: deletes a group's offsets of topics that none of its members consumes (KIP-496).
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Final, NamedTuple, cast
from uuid import UUID

from barnabas_broker.coordinators.groups.messages import CommitRequest, CommittedOffset
from barnabas_broker.handlers.channel import (
    AnswerInTurns,
    Path,
    RequestContext,
    answer_of,
    awaited,
    rights_of,
    stepwise,
)
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import COMMITTED_OFFSETS, THINGS_MAX, InSteps, flat_in_steps, in_steps, slices
from barnabas_core.topic_partition import TopicPartition

FIRST_WITH_TOPIC_IDS: Final = 10
DEFAULT_RETENTION: Final = -1
INT64_MAX: Final = 2**63 - 1

OffsetsToCommit = Sequence[tuple[TopicPartition, CommittedOffset]]
CommitTopicRequest = OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartitionRequest = CommitTopicRequest.OffsetCommitRequestPartition
CommitTopicResponse = OffsetCommitResponse.OffsetCommitResponseTopic
CommitPartitionResponse = CommitTopicResponse.OffsetCommitResponsePartition


def offset_commit(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit the offsets of all partitions that exist, and return an error code for each partition."""
    if context.turn is not None or sum(len(topic.partitions) for topic in request.topics) > THINGS_MAX:
        return _commit_many(environment, context, request)
    documents = [_document(environment, context, topic) for topic in request.topics]
    of_topic = _offsets_of(environment, request)
    offsets = [each for topic in zip(request.topics, documents, strict=True) for each in of_topic(topic)]
    commit = _commit_request(context, request, offsets)
    unknown = _unknown(context)
    return answer_of(
        lambda answer: environment.groups.commit(
            commit, lambda errors: answer(_commit_response(request, documents, iter(errors), unknown))
        )
    )


async def _commit_many(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    answer = AnswerInTurns(OffsetCommitResponse, context, environment.answers)
    documents = [_document(environment, context, topic) async for topic in answer.over(request.topics)]
    of_topic = _offsets_of(environment, request)
    offsets = await answer.turn.run(flat_in_steps(zip(request.topics, documents, strict=True), of_topic))
    errors: list[ErrorCode] = []
    for some in slices(offsets, lambda _: 1, COMMITTED_OFFSETS, COMMITTED_OFFSETS):
        await answer.turn.give_way()
        errors += await _commit_some(environment, context, request, some)
    return await _commit_response_in_turns(answer, context, request, documents, iter(errors))


async def _commit_some(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetCommitRequest, offsets: OffsetsToCommit
) -> list[ErrorCode]:
    """Commit offsets, except for topics that were deleted, whose offsets would never be removed."""
    there = [_is_there_still(environment, *each) for each in offsets]
    commit = _commit_request(context, request, list(compress(offsets, there)))
    committed: list[ErrorCode] = await awaited(lambda answer: environment.groups.commit(commit, answer))
    codes = iter(committed)
    return [next(codes) if is_there else _unknown(context) for is_there in there]


def _is_there_still(environment: HandlerEnvironment, partition: TopicPartition, offset: CommittedOffset) -> bool:
    topic = environment.image.topics.get(partition.topic)
    return topic is not None and topic.topic_id == offset.topic_id


async def _commit_response_in_turns(
    answer: AnswerInTurns,
    context: RequestContext,
    request: OffsetCommitRequest,
    documents: Iterable[TopicDocument | None],
    errors: Iterator[ErrorCode],
) -> OffsetCommitResponse:
    unknown, topics = _unknown(context), []
    async for topic, document in answer.along(zip(request.topics, documents, strict=True)):
        result_of = partial(_committed_partition, document, errors, unknown)
        partitions = await answer.elements(("topics", "partitions"), topic.partitions, result_of)
        response = CommitTopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        topics.append(answer.encoded(("topics",), response))
    return OffsetCommitResponse(topics=topics)


def _commit_request(
    context: RequestContext, request: OffsetCommitRequest, offsets: list[tuple[TopicPartition, CommittedOffset]]
) -> CommitRequest:
    return CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        api_version=context.api_version,
        offsets=offsets,
    )


def _unknown(context: RequestContext) -> ErrorCode:
    """Return the error for a topic that does not exist."""
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _document(
    environment: HandlerEnvironment, context: RequestContext, topic: CommitTopicRequest
) -> TopicDocument | None:
    """Return the topic, or None if it does not exist."""
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    name = environment.image.topic_name(topic.topic_id) if by_id else topic.name
    return None if name is None else environment.image.topics.get(name)


def _has_partition(document: TopicDocument, partition: CommitPartitionRequest) -> bool:
    return 0 <= partition.partition_index < len(document.partitions)


def _offsets_of(
    environment: HandlerEnvironment, request: OffsetCommitRequest
) -> Callable[[tuple[CommitTopicRequest, TopicDocument | None]], Iterator[tuple[TopicPartition, CommittedOffset]]]:
    """Return a function that yields the offsets of a topic's partitions that exist."""
    expire_timestamp_ms = None
    if request.retention_time_ms != DEFAULT_RETENTION:
        expire_timestamp_ms = min(environment.clock.now_ms() + request.retention_time_ms, INT64_MAX)

    def of_topic(
        asked: tuple[CommitTopicRequest, TopicDocument | None],
    ) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        topic, document = asked
        for partition in topic.partitions if document is not None else ():
            if document is not None and _has_partition(document, partition):
                committed = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    expire_timestamp_ms=expire_timestamp_ms,
                    topic_id=document.topic_id,
                )
                yield TopicPartition(document.name, partition.partition_index), committed

    return of_topic


def _commit_response(
    request: OffsetCommitRequest,
    documents: Iterable[TopicDocument | None],
    errors: Iterator[ErrorCode],
    unknown: ErrorCode,
) -> OffsetCommitResponse:
    topics = [
        CommitTopicResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[_committed_partition(document, errors, unknown, partition) for partition in topic.partitions],
        )
        for topic, document in zip(request.topics, documents, strict=True)
    ]
    return OffsetCommitResponse(topics=topics)


def _committed_partition(
    document: TopicDocument | None, errors: Iterator[ErrorCode], unknown: ErrorCode, partition: CommitPartitionRequest
) -> CommitPartitionResponse:
    error = unknown
    if document is not None:
        error = next(errors) if _has_partition(document, partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return CommitPartitionResponse(partition_index=partition.partition_index, error_code=error)


FIRST_WITH_GROUP_ERROR: Final = 2
FIRST_WITH_GROUPS: Final = 8
NO_ID: Final = UUID(int=0)
NOTHING: Final = CommittedOffset(-1)

Committed = Mapping[TopicPartition, CommittedOffset]
GroupRequest = OffsetFetchRequest.OffsetFetchRequestGroup
GroupResponse = OffsetFetchResponse.OffsetFetchResponseGroup
FetchTopicResponse = GroupResponse.OffsetFetchResponseTopics
FetchPartitionResponse = FetchTopicResponse.OffsetFetchResponsePartitions
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


async def offset_fetch(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Return the committed offset, leader epoch and metadata of each requested partition."""
    answer = AnswerInTurns(OffsetFetchResponse, context, environment.answers)
    if context.api_version >= FIRST_WITH_GROUPS:
        groups = [
            await _fetched_group(environment, context, answer, group, request.require_stable)
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
    encoded = [await _encoded_topic(answer, OLD_TOPICS, topic) async for topic in answer.over(topics)]
    # The topics of responses before v8 have the same fields as the topics of later responses.
    old_topics = cast("list[OffsetFetchResponse.OffsetFetchResponseTopic]", encoded)
    return OffsetFetchResponse(error_code=error, topics=old_topics)


async def _fetched_group(
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
        await _encoded_topic(answer, TOPICS, topic)
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
    return [_lookup(environment, rights, committed, unstable, topic) async for topic in answer.over(wanted)]


def _lookup(
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


async def _encoded_topic(answer: AnswerInTurns, topics: Path, topic: _Topic) -> FetchTopicResponse:
    """Return a topic with its partitions, encoded as an element of the array `topics`."""

    def result_of(number: int) -> FetchPartitionResponse:
        found = topic.offset_of(number)
        committed = found or NOTHING
        return FetchPartitionResponse(
            partition_index=number,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if found is None else topic.error,
        )

    partitions = await answer.elements((*topics, "partitions"), topic.partitions, result_of)
    return answer.encoded(
        topics, FetchTopicResponse(name=topic.name or "", topic_id=topic.topic_id, partitions=partitions)
    )


DeleteTopicResponse = OffsetDeleteResponse.OffsetDeleteResponseTopic
DeletePartitionResponse = DeleteTopicResponse.OffsetDeleteResponsePartition


@stepwise
def offset_delete(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetDeleteRequest
) -> InSteps[OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]]:
    """Delete committed offsets; return one error for the group, or an error code for each partition."""
    partitions = yield from flat_in_steps(request.topics, _named_partitions)
    there = yield from in_steps(partitions, partial(_exists, environment))
    return answer_of(
        lambda answer: environment.groups.delete_offsets(
            request.group_id,
            list(compress(partitions, there)),
            lambda error, errors: answer(_delete_response(request, there, error, errors)),
        )
    )


def _named_partitions(topic: OffsetDeleteRequest.OffsetDeleteRequestTopic) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, each.partition_index) for each in topic.partitions)


def _exists(environment: HandlerEnvironment, partition: TopicPartition) -> bool:
    document = environment.image.topics.get(partition.topic)
    return document is not None and 0 <= partition.partition < len(document.partitions)


def _delete_response(
    request: OffsetDeleteRequest, there: list[bool], error: ErrorCode, errors: list[ErrorCode]
) -> OffsetDeleteResponse:
    of_those = iter(errors)
    each = (next(of_those) if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for is_there in there)
    topics = [] if error else [_deleted_topic(topic, each) for topic in request.topics]
    return OffsetDeleteResponse(error_code=error, topics=topics)


def _deleted_topic(
    topic: OffsetDeleteRequest.OffsetDeleteRequestTopic, errors: Iterator[ErrorCode]
) -> DeleteTopicResponse:
    return DeleteTopicResponse(
        name=topic.name,
        partitions=[
            DeletePartitionResponse(partition_index=partition.partition_index, error_code=next(errors))
            for partition in topic.partitions
        ],
    )

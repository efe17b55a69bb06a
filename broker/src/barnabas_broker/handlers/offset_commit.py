"""OffsetCommit (8), v2 to v10: commits the offsets of a group.

The response is sent when the offsets are committed to the log. v2 to v4 may have a retention time; v6 adds leader
epochs, v7 static members, and v10 replaces topic names by topic ids.
"""

from collections.abc import Awaitable, Iterable, Iterator
from functools import partial
from inspect import isawaitable
from typing import Final

from barnabas_broker.coordinators.groups.messages import CommitRequest
from barnabas_broker.coordinators.groups.records import CommittedOffset
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.wire.messages import OffsetCommitRequest, OffsetCommitResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.fair_turns import THINGS_MAX
from barnabas_core.topic_partition import TopicPartition

FIRST_WITH_TOPIC_IDS: Final = 10
DEFAULT_RETENTION: Final = -1
INT64_MAX: Final = 2**63 - 1

TopicRequest = OffsetCommitRequest.OffsetCommitRequestTopic
PartitionRequest = TopicRequest.OffsetCommitRequestPartition
TopicResponse = OffsetCommitResponse.OffsetCommitResponseTopic
PartitionResponse = TopicResponse.OffsetCommitResponsePartition


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit the offsets of all partitions that exist, and return an error code for each partition."""
    if sum(len(topic.partitions) for topic in request.topics) > THINGS_MAX:
        return _commit_many(environment, context, request)
    documents = [_document(environment, context, topic) for topic in request.topics]
    commit = _commit(context, request, list(_offsets(environment, request, documents)))
    unknown = _unknown(context)
    return answer_of(
        lambda respond: environment.groups.commit(
            commit, lambda errors: respond(_response(request, documents, iter(errors), unknown))
        )
    )


async def _commit_many(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    documents = [_document(environment, context, topic) for topic in request.topics]
    offsets = await _offsets_in_turns(environment, request, documents)
    documents = [_unless_gone(environment, document) for document in documents]
    there = {document.name for document in documents if document is not None}
    commit = _commit(context, request, [each for each in offsets if each[0].topic in there])
    committed: list[ErrorCode] | Awaitable[list[ErrorCode]] = answer_of(
        lambda respond: environment.groups.commit(commit, respond)
    )
    errors = iter(await committed if isawaitable(committed) else committed)
    return await _response_in_turns(environment, context, request, documents, errors)


async def _offsets_in_turns(
    environment: HandlerEnvironment, request: OffsetCommitRequest, documents: Iterable[TopicDocument | None]
) -> list[tuple[TopicPartition, CommittedOffset]]:
    turn, offsets = environment.answers.turn(), []
    for each in _offsets(environment, request, documents):
        await turn.give_way()
        offsets.append(each)
    return offsets


def _unless_gone(environment: HandlerEnvironment, document: TopicDocument | None) -> TopicDocument | None:
    """Return the topic; None if it was deleted, because offsets committed after the deletion would never be removed."""
    now = None if document is None else environment.image.topics.get(document.name)
    return document if document is not None and now is not None and now.topic_id == document.topic_id else None


async def _response_in_turns(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: OffsetCommitRequest,
    documents: Iterable[TopicDocument | None],
    errors: Iterator[ErrorCode],
) -> OffsetCommitResponse:
    answer = AnswerInTurns(OffsetCommitResponse, context, environment.answers)
    unknown, topics = _unknown(context), []
    async for topic, document in answer.over(zip(request.topics, documents, strict=True)):
        tell = partial(_partition, document, errors, unknown)
        partitions = await answer.elements(("topics", "partitions"), topic.partitions, tell)
        response = TopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        topics.append(answer.encoded(("topics",), response))
    return OffsetCommitResponse(topics=topics)


def _commit(
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


def _document(environment: HandlerEnvironment, context: RequestContext, topic: TopicRequest) -> TopicDocument | None:
    """Return the topic, or None if it does not exist."""
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    name = environment.image.topic_name(topic.topic_id) if by_id else topic.name
    return None if name is None else environment.image.topics.get(name)


def _is_there(document: TopicDocument, partition: PartitionRequest) -> bool:
    return 0 <= partition.partition_index < len(document.partitions)


def _offsets(
    environment: HandlerEnvironment, request: OffsetCommitRequest, documents: Iterable[TopicDocument | None]
) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
    expire_timestamp_ms = None
    if request.retention_time_ms != DEFAULT_RETENTION:
        expire_timestamp_ms = min(environment.clock.now_ms() + request.retention_time_ms, INT64_MAX)
    for topic, document in zip(request.topics, documents, strict=True):
        if document is None:
            continue
        for partition in topic.partitions:
            if not _is_there(document, partition):
                continue
            yield (
                TopicPartition(document.name, partition.partition_index),
                CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    expire_timestamp_ms=expire_timestamp_ms,
                    topic_id=document.topic_id,
                ),
            )


def _response(
    request: OffsetCommitRequest,
    documents: Iterable[TopicDocument | None],
    errors: Iterator[ErrorCode],
    unknown: ErrorCode,
) -> OffsetCommitResponse:
    topics = [
        TopicResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[_partition(document, errors, unknown, partition) for partition in topic.partitions],
        )
        for topic, document in zip(request.topics, documents, strict=True)
    ]
    return OffsetCommitResponse(topics=topics)


def _partition(
    document: TopicDocument | None, errors: Iterator[ErrorCode], unknown: ErrorCode, partition: PartitionRequest
) -> PartitionResponse:
    error = unknown
    if document is not None:
        error = next(errors) if _is_there(document, partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return PartitionResponse(partition_index=partition.partition_index, error_code=error)

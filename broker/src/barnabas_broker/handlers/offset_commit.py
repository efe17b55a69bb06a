"""OffsetCommit (8), v2 to v10: commits the offsets of a group.

The response is sent when the offsets are committed to the log. v2 to v4 may have a retention time; v6 adds leader
epochs, v7 static members, and v10 replaces topic names by topic ids.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Final

from barnabas_broker.coordinators.groups.messages import CommitRequest
from barnabas_broker.coordinators.groups.records import CommittedOffset
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import answer_of, awaited
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.wire.messages import OffsetCommitRequest, OffsetCommitResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import COMMITTED_OFFSETS, THINGS_MAX, flat_in_steps, slices
from barnabas_core.topic_partition import TopicPartition

FIRST_WITH_TOPIC_IDS: Final = 10
DEFAULT_RETENTION: Final = -1
INT64_MAX: Final = 2**63 - 1

OffsetsToCommit = Sequence[tuple[TopicPartition, CommittedOffset]]
TopicRequest = OffsetCommitRequest.OffsetCommitRequestTopic
PartitionRequest = TopicRequest.OffsetCommitRequestPartition
TopicResponse = OffsetCommitResponse.OffsetCommitResponseTopic
PartitionResponse = TopicResponse.OffsetCommitResponsePartition


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit the offsets of all partitions that exist, and return an error code for each partition."""
    if context.turn is not None or sum(len(topic.partitions) for topic in request.topics) > THINGS_MAX:
        return _commit_many(environment, context, request)
    documents = [_document(environment, context, topic) for topic in request.topics]
    of_topic = _offsets_of(environment, request)
    offsets = [each for topic in zip(request.topics, documents, strict=True) for each in of_topic(topic)]
    commit = _commit(context, request, offsets)
    unknown = _unknown(context)
    return answer_of(
        lambda respond: environment.groups.commit(
            commit, lambda errors: respond(_response(request, documents, iter(errors), unknown))
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
    return await _response_in_turns(answer, context, request, documents, iter(errors))


async def _commit_some(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetCommitRequest, offsets: OffsetsToCommit
) -> list[ErrorCode]:
    """Commit offsets, except for topics that were deleted, whose offsets would never be removed."""
    there = [_is_there_still(environment, *each) for each in offsets]
    commit = _commit(context, request, list(compress(offsets, there)))
    committed: list[ErrorCode] = await awaited(lambda respond: environment.groups.commit(commit, respond))
    codes = iter(committed)
    return [next(codes) if is_there else _unknown(context) for is_there in there]


def _is_there_still(environment: HandlerEnvironment, partition: TopicPartition, offset: CommittedOffset) -> bool:
    topic = environment.image.topics.get(partition.topic)
    return topic is not None and topic.topic_id == offset.topic_id


async def _response_in_turns(
    answer: AnswerInTurns,
    context: RequestContext,
    request: OffsetCommitRequest,
    documents: Iterable[TopicDocument | None],
    errors: Iterator[ErrorCode],
) -> OffsetCommitResponse:
    unknown, topics = _unknown(context), []
    async for topic, document in answer.along(zip(request.topics, documents, strict=True)):
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


def _offsets_of(
    environment: HandlerEnvironment, request: OffsetCommitRequest
) -> Callable[[tuple[TopicRequest, TopicDocument | None]], Iterator[tuple[TopicPartition, CommittedOffset]]]:
    """Return a function that yields the offsets of a topic's partitions that exist."""
    expire_timestamp_ms = None
    if request.retention_time_ms != DEFAULT_RETENTION:
        expire_timestamp_ms = min(environment.clock.now_ms() + request.retention_time_ms, INT64_MAX)

    def of_topic(
        asked: tuple[TopicRequest, TopicDocument | None],
    ) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        topic, document = asked
        for partition in topic.partitions if document is not None else ():
            if document is not None and _is_there(document, partition):
                committed = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    expire_timestamp_ms=expire_timestamp_ms,
                    topic_id=document.topic_id,
                )
                yield TopicPartition(document.name, partition.partition_index), committed

    return of_topic


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

"""TxnOffsetCommit (28), v0 to v6: commits offsets of a group as part of a transaction.

From v3 on the request names a group member, and is refused if the member has left the group (KIP-447). v5 also adds the
group's partition of `__consumer_offsets` to the transaction, if the cluster's transaction.version is 2 (KIP-890). v6
replaces topic names by topic ids, and its clients know the errors of consumer groups with member epochs (KIP-1319).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_broker.coordinators.groups.messages import CommitRequest
from barnabas_broker.coordinators.groups.records import CommittedOffset
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import awaited
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.storage.producer_state.producers import Verification
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_broker.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.java_hash import coordinator_partition
from barnabas_core.loop_turns import flat_in_steps
from barnabas_core.topic_name import CONSUMER_OFFSETS
from barnabas_core.topic_partition import TopicPartition

ABORTABLE_SINCE: Final = 4
ADDS_SINCE: Final = 5
LOADING_SINCE: Final = 2
TOPIC_IDS_SINCE: Final = 6

TopicRequest = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
TopicResponse = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionResponse = TopicResponse.TxnOffsetCommitResponsePartition


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Store offsets that take effect if the transaction is committed, and return an error code for each partition."""
    answer = AnswerInTurns(TxnOffsetCommitResponse, context, environment.answers)
    documents = [_document(environment, context, topic) async for topic in answer.over(request.topics)]
    offsets = dict(await answer.turn.run(flat_in_steps(zip(request.topics, documents, strict=True), _offsets)))
    try:
        errors = await _commit(environment, context, request, offsets)
    except ApiError as error:
        errors = dict.fromkeys(offsets, _known_error(error.code, context.api_version))
    topics = [
        _answered(context, topic, document, errors)
        async for topic, document in answer.along(zip(request.topics, documents, strict=True))
    ]
    return TxnOffsetCommitResponse(topics=topics)


def _document(environment: HandlerEnvironment, context: RequestContext, topic: TopicRequest) -> TopicDocument | None:
    """Return the topic, or None if it does not exist."""
    by_id = context.api_version >= TOPIC_IDS_SINCE
    name = topic.name
    if by_id:
        name = "" if topic.topic_id is None else environment.image.topic_name(topic.topic_id) or ""
    return environment.image.topics.get(name)


def _answered(
    context: RequestContext,
    topic: TopicRequest,
    document: TopicDocument | None,
    errors: Mapping[TopicPartition, ErrorCode],
) -> TopicResponse:
    by_id = context.api_version >= TOPIC_IDS_SINCE
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and document is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name = topic.name if document is None else document.name
    partitions = [
        PartitionResponse(
            partition_index=each.partition_index,
            error_code=errors.get(TopicPartition(name, each.partition_index), unknown),
        )
        for each in topic.partitions
    ]
    return TopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def offsets_partition(environment: HandlerEnvironment, group_id: str) -> TopicPartition:
    """Return the partition of `__consumer_offsets` that holds the offsets of a group."""
    return TopicPartition(CONSUMER_OFFSETS, coordinator_partition(group_id, environment.groups.runtime.partition_count))


async def _commit(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, ErrorCode]:
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    verification = await _verify(environment, context, request, producer)
    commit = CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        api_version=context.api_version,
        offsets=list(offsets.items()),
        producer=producer,
    )
    errors: list[ErrorCode] = await awaited(lambda answer: environment.groups.commit(commit, answer))
    del verification  # It was held until here because the append requires it.
    known = [_known_error(error, context.api_version) for error in errors]
    return dict(zip(offsets, known, strict=True))


async def _verify(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    producer: ProducerEpoch,
) -> Verification:
    """Verify that the group's `__consumer_offsets` partition is in the open transaction of the producer.

    From v5 and transaction.version 2 on, the partition is first added to the transaction. The caller must submit
    the offsets in the same turn of the event loop, so that no transaction marker can be appended before them, and hold
    the verification until they are appended. Raises ApiError if the partition is not in the transaction.
    """
    partition = offsets_partition(environment, request.group_id)
    hosted = environment.replicas.lookup.find(partition.topic, None, partition.partition)
    producers, adds = hosted.log.producers, context.api_version >= ADDS_SINCE and environment.gate.takes_in
    verification = producers.verifications.begin(producer.producer_id, producer.epoch, has_own_epoch=adds)
    code = await environment.gate.ask(request.transactional_id, producer, partition, adds=adds)
    is_current = producers.verifications.current(producer.producer_id) is verification
    if code is ErrorCode.NONE and not is_current and not producers.is_in_transaction(*producer):
        code = ErrorCode.INVALID_TXN_STATE
    if code is not ErrorCode.NONE:
        raise ApiError(
            code, f"the coordinator of {request.transactional_id} refused the offsets of group {request.group_id}"
        )
    return verification


def _offsets(asked: tuple[TopicRequest, TopicDocument | None]) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
    """Yield the offsets of a topic's partitions that exist."""
    topic, document = asked
    for each in topic.partitions:
        if document is not None and 0 <= each.partition_index < len(document.partitions):
            committed = CommittedOffset(
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata or "",
                topic_id=document.topic_id,
            )
            yield TopicPartition(document.name, each.partition_index), committed


def _known_error(code: ErrorCode, version: int) -> ErrorCode:
    """Convert an error code to a code that clients of the given version know."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.NETWORK_EXCEPTION:  # Clients then try again without looking up the group's coordinator.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    is_unknown = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE
    if is_unknown or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    return code

"""OffsetForLeaderEpoch (23), v2 to v4: the end of a leader epoch, by which clients detect truncation (KIP-320)."""

from functools import partial

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from barnabas_core.errors import ApiError, ErrorCode

TopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EpochEndOffset = TopicResult.EpochEndOffset


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return for each partition the largest known epoch that is at most the requested epoch, and its end offset.

    Both are -1 if the requested epoch is above the latest epoch. If all known epochs are above the requested epoch, the
    result is the requested epoch, with the start offset of the first known epoch. If compaction has removed the records
    at the end offset, the result has the offset of the next remaining record instead.
    """
    answer = AnswerInTurns(OffsetForLeaderEpochResponse, context, environment.answers)
    topics = []
    async for topic in answer.over(request.topics):
        look_up = partial(_answer, environment, topic.topic)
        results = await answer.elements(("topics", "partitions"), topic.partitions, look_up)
        topics.append(answer.encoded(("topics",), TopicResult(topic=topic.topic, partitions=results)))
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(
    environment: HandlerEnvironment,
    name: str,
    wanted: OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition,
) -> EpochEndOffset:
    error, epoch, end_offset = ErrorCode.NONE, -1, -1
    try:
        with environment.replicas.failures.using(name, wanted.partition) as partition:
            partition.check_readable(wanted.current_leader_epoch)
            epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
            end_offset = partition.log.first_left_from(end_offset)
    except ApiError as refusal:
        error = refusal.code
    return EpochEndOffset(error_code=error, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)

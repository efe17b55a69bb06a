"""ListOffsets (2), v1 to v11: offsets by timestamp, and by special timestamps.

The special timestamps are -1 (latest), -2 (earliest), -3 (the record with the largest timestamp, v7), -4 (earliest
local, v8), -5 (last tiered, v9) and -6 (earliest pending upload, v11). Without tiered storage all records are local. A
new leader answers OFFSET_NOT_AVAILABLE (v5) while its high watermark may be too low.
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Final

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.stable_offset import last_stable_offset
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.timestamp_lookup import TimestampOffset, max_timestamp, offset_for_timestamp
from barnabas_broker.wire.messages import ListOffsetsRequest, ListOffsetsResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn

READ_COMMITTED: Final = 1
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
UNKNOWN: Final = -1
LARGEST_TIMESTAMP: Final = -3

PartitionResponse = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
TopicResponse = ListOffsetsResponse.ListOffsetsTopicResponse


NOTHING: Final = TimestampOffset(UNKNOWN, UNKNOWN, UNKNOWN)


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Return the requested offset of each partition, or an error."""
    answer = AnswerInTurns(ListOffsetsResponse, context, environment.answers)
    limit = last_stable_offset if request.isolation_level == READ_COMMITTED else attrgetter("high_watermark")
    topics = []
    async for topic in answer.over(request.topics):
        look_up = partial(_look_up, environment, topic.name, limit, context.api_version, answer.turn)
        results = [answer.encoded(("topics", "partitions"), await look_up(wanted)) for wanted in topic.partitions]
        topics.append(answer.encoded(("topics",), TopicResponse(name=topic.name, partitions=results)))
    return ListOffsetsResponse(topics=topics)


async def _look_up(
    environment: HandlerEnvironment,
    name: str,
    limit: Callable[[Log], int],
    version: int,
    turn: FairTurn,
    wanted: ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
) -> PartitionResponse:
    error, found = ErrorCode.NONE, NOTHING
    await turn.give_way()
    try:
        with environment.replicas.failures.using(name, wanted.partition_index) as partition:
            partition.check_readable(wanted.current_leader_epoch)
            found = await find_offset(partition, wanted.timestamp, limit(partition.log), turn)
            partition.check_readable(wanted.current_leader_epoch)
    except ApiError as refusal:
        error = refusal.code
        if error is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_SINCE:
            error = ErrorCode.LEADER_NOT_AVAILABLE
    return PartitionResponse(
        partition_index=wanted.partition_index,
        error_code=error,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


async def find_offset(partition: Partition, timestamp_ms: int, offset_max: int, turn: FairTurn) -> TimestampOffset:
    """Return the first record below `offset_max` that is not older than the timestamp, or NOTHING if all are older.

    Special timestamps, such as -1 (latest), select an offset directly. Raises ApiError for an undefined special
    timestamp, and while the high watermark of a new leader may be too low.
    """
    special = SPECIAL_TIMESTAMPS.get(timestamp_ms)
    if special is not None:
        return special(partition, offset_max)
    if timestamp_ms == LARGEST_TIMESTAMP:
        return await _largest_timestamp(partition, offset_max, turn)
    if timestamp_ms < 0:
        allowed = ", ".join(str(each) for each in sorted((LARGEST_TIMESTAMP, *SPECIAL_TIMESTAMPS), reverse=True))
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp_ms} is invalid; allowed are {allowed}, and 0 or more"
        )
    found = await offset_for_timestamp(partition.log, timestamp_ms, offset_max, turn)
    if found is None:
        partition.check_caught_up()
    return found or NOTHING


def _latest(partition: Partition, offset_max: int) -> TimestampOffset:
    partition.check_caught_up()
    return TimestampOffset(UNKNOWN, offset_max, partition.leader_epoch)


def _earliest(partition: Partition, offset_max: int) -> TimestampOffset:
    start = partition.log.log_start_offset
    return TimestampOffset(UNKNOWN, start, partition.log.epochs.epoch_for_offset(start))


async def _largest_timestamp(partition: Partition, offset_max: int, turn: FairTurn) -> TimestampOffset:
    """Return the record with the largest timestamp, or NOTHING until the record is committed, as in Kafka."""
    found = await max_timestamp(partition.log, turn)
    if found is None or found.offset >= offset_max:
        partition.check_caught_up()
        return NOTHING
    return found


def _nothing(partition: Partition, offset_max: int) -> TimestampOffset:
    return NOTHING


SPECIAL_TIMESTAMPS: Final[dict[int, Callable[[Partition, int], TimestampOffset]]] = {
    -1: _latest,
    -2: _earliest,
    -4: _earliest,
    -5: _nothing,
    -6: _nothing,
}

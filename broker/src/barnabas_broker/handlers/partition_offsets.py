"""The requests for offsets of partitions by time and by leader epoch, and for the deletion of records.

ListOffsets (2), v1 to v11: offsets by timestamp, and by special timestamps. The special timestamps are -1 (latest),
-2 (earliest), -3 (the record with the largest timestamp, v7), -4 (earliest local, v8), -5 (last tiered, v9) and -6
(earliest pending upload, v11). Without tiered storage all records are local. A new leader answers
OFFSET_NOT_AVAILABLE (v5) while its high watermark may be too low.

OffsetForLeaderEpoch (23), v2 to v4: the end of a leader epoch, by which clients detect truncation (KIP-320).

DeleteRecords (21), v0 to v2: raises the log start offset, so that earlier records cannot be read any more. The
response is sent when the replicas on all live brokers have raised their log start offset, so that no later leader
brings the records back. Followers send their log start offset when they fetch.
"""

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Final

from barnabas_broker.handlers.channel import AnswerInTurns, RequestContext, awaited
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.leader_replica import WaitList
from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.offset_lookup import (
    TimestampOffset,
    last_stable_offset,
    max_timestamp,
    offset_for_timestamp,
)
from barnabas_broker.wire.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from barnabas_core.config.log_config import CleanupPolicy
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn

READ_COMMITTED: Final = 1
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
UNKNOWN: Final = -1
LARGEST_TIMESTAMP: Final = -3

ListedPartition = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
ListedTopic = ListOffsetsResponse.ListOffsetsTopicResponse


NOTHING: Final = TimestampOffset(UNKNOWN, UNKNOWN, UNKNOWN)


async def list_offsets(
    environment: HandlerEnvironment, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Return the requested offset of each partition, or an error."""
    answer = AnswerInTurns(ListOffsetsResponse, context, environment.answers)
    limit = last_stable_offset if request.isolation_level == READ_COMMITTED else attrgetter("high_watermark")
    topics = []
    async for topic in answer.over(request.topics):
        lookup = partial(_lookup, environment, topic.name, limit, context.api_version, answer.turn)
        results = [answer.encoded(("topics", "partitions"), await lookup(wanted)) for wanted in topic.partitions]
        topics.append(answer.encoded(("topics",), ListedTopic(name=topic.name, partitions=results)))
    return ListOffsetsResponse(topics=topics)


async def _lookup(
    environment: HandlerEnvironment,
    name: str,
    limit: Callable[[Log], int],
    version: int,
    turn: FairTurn,
    wanted: ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
) -> ListedPartition:
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
    return ListedPartition(
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


EpochTopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EpochEndOffset = EpochTopicResult.EpochEndOffset


async def offset_for_leader_epoch(
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
        lookup = partial(_epoch_end, environment, topic.topic)
        results = await answer.elements(("topics", "partitions"), topic.partitions, lookup)
        topics.append(answer.encoded(("topics",), EpochTopicResult(topic=topic.topic, partitions=results)))
    return OffsetForLeaderEpochResponse(topics=topics)


def _epoch_end(
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


HIGH_WATERMARK: Final = -1
NO_WATERMARK: Final = -1

DeletedTopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
DeletedPartitionResult = DeletedTopicResult.DeleteRecordsPartitionResult


async def delete_records(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete records, and return the new low watermark or an error for each partition.

    REQUEST_TIMED_OUT means that the leader has deleted the records, but some followers may still have them.
    """
    topics = await _delete_in_turns(environment, request)
    answer = AnswerInTurns(DeleteRecordsResponse, context, environment.answers)
    begun = (each for _, deletions in topics for each in deletions)
    unknown = [each async for each in answer.along(begun) if not each.check()]
    if unknown:
        await _followers(environment, unknown, request.timeout_ms / 1000)
    results = [await _deleted_topic_result(answer, name, deletions) async for name, deletions in answer.along(topics)]
    for _, deletions in topics:
        answer.turn.kept += deletions
        deletions.clear()
    return DeleteRecordsResponse(topics=results)


class _PartitionDeletion:
    """The deletion of records in one partition; the constructor deletes the records on this broker, the leader."""

    __slots__ = ("_environment", "_result", "_target", "index", "partition")

    def __init__(self, environment: HandlerEnvironment, name: str, index: int, offset: int) -> None:
        self.index = index
        self.partition: Partition | None = None
        self._result: DeletedPartitionResult | None = None
        self._environment = environment
        self._target = offset
        try:
            with environment.replicas.failures.using(name, index) as partition:
                self._target = _delete(partition, offset)
                self.partition = partition
        except ApiError as refusal:
            self.end(refusal.code)
        self.check()

    @property
    def known(self) -> DeletedPartitionResult:
        assert self._result is not None
        return self._result

    def end(self, error: ErrorCode, low_watermark: int = NO_WATERMARK) -> None:
        """Store the result of the partition."""
        self._result = DeletedPartitionResult(partition_index=self.index, low_watermark=low_watermark, error_code=error)

    def check(self) -> bool:
        """Check whether all live replicas have raised their log start offset; return True if the result is known."""
        if self._result is None:
            assert self.partition is not None
            try:
                self._compare(self.partition)
            except ApiError as refusal:
                self.end(refusal.code)
        return self._result is not None

    def _compare(self, partition: Partition) -> None:
        partition.check_writable(all_replicas=False)
        assert partition.leader is not None
        low_watermark = partition.leader.low_watermark(partition.log.log_start_offset, self._environment.image.live)
        if low_watermark >= self._target:
            self.end(ErrorCode.NONE, low_watermark)


def _delete(partition: Partition, offset: int) -> int:
    """Delete records on the leader; return the log start offset that all replicas must reach.

    Raises ApiError if the offset is out of range, or if the records of the partition cannot be deleted.
    """
    partition.check_writable(all_replicas=False)
    if CleanupPolicy.DELETE not in partition.log.config.cleanup_policies:
        topic = partition.topic_partition.topic
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"topic {topic} does not have cleanup.policy=delete")
    target = partition.log.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= partition.log.high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is out of range; allowed are 0 to {partition.log.high_watermark}",
        )
    partition.delete_records_before(target)
    return target


class _Wait:
    """A DelayedOperation that waits for the followers, and calls the callback `over` when all results are known."""

    def __init__(self, deletions: Iterable[_PartitionDeletion], over: Callable[[], object]) -> None:
        self._over = over
        self._unknown: dict[WaitList, list[_PartitionDeletion]] = {}
        for each in deletions:
            assert each.partition is not None
            self._unknown.setdefault(each.partition.waiters, []).append(each)

    @property
    def lists(self) -> list[WaitList]:
        """The WaitList of each partition for which the request still waits."""
        return list(self._unknown)

    def try_complete(self, changed: WaitList) -> bool:
        """Check whether the followers of the changed partition have deleted the records.

        If the results of all partitions are known, call the callback `over`, and return True.
        """
        unknown = [each for each in self._unknown.pop(changed, ()) if not each.check()]
        if unknown:
            self._unknown[changed] = unknown
        if not self._unknown:
            self._over()
        return not self._unknown

    def expire(self) -> None:
        """End the wait with REQUEST_TIMED_OUT for partitions whose followers may still have the records."""
        for deletions in self._unknown.values():
            for each in deletions:
                if not each.check():
                    each.end(ErrorCode.REQUEST_TIMED_OUT)
        self._over()


async def _delete_in_turns(
    environment: HandlerEnvironment, request: DeleteRecordsRequest
) -> list[tuple[str, list[_PartitionDeletion]]]:
    """Delete the records on this broker, even if the client disconnects; return the deletions by topic."""
    turn = environment.answers.turn()
    return [
        (
            topic.name,
            [
                _PartitionDeletion(environment, topic.name, each.partition_index, each.offset)
                async for each in turn.along(topic.partitions)
            ],
        )
        async for topic in turn.along(request.topics)
    ]


async def _followers(environment: HandlerEnvironment, deletions: list[_PartitionDeletion], timeout_s: float) -> None:
    """Wait until all followers have deleted the records, or the timeout is over."""

    def start(over: Callable[[None], object]) -> None:
        wait = _Wait(deletions, partial(over, None))
        environment.purgatory.watch(wait, wait.lists, timeout_s)

    await awaited(start)


async def _deleted_topic_result(
    answer: AnswerInTurns, name: str, deletions: list[_PartitionDeletion]
) -> DeletedTopicResult:
    results = await answer.elements(("topics", "partitions"), deletions, lambda each: each.known)
    return answer.encoded(("topics",), DeletedTopicResult(name=name, partitions=results))

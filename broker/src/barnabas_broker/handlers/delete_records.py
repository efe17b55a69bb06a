"""DeleteRecords (21), v0 to v2: raises the log start offset, so that earlier records cannot be read any more.

The response is sent when the replicas on all live brokers have raised their log start offset, so that no later leader
brings the records back. Followers send their log start offset when they fetch.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import awaited
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.purgatory import WaitList
from barnabas_broker.wire.messages import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas_core.config.log_config import CleanupPolicy
from barnabas_core.errors import ApiError, ErrorCode

HIGH_WATERMARK: Final = -1
NO_WATERMARK: Final = -1

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = TopicResult.DeleteRecordsPartitionResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete records, and return the new low watermark or an error for each partition.

    REQUEST_TIMED_OUT means that the leader has deleted the records, but some followers may still have them.
    """
    topics = await _delete_in_turns(environment, request)
    answer = AnswerInTurns(DeleteRecordsResponse, context, environment.answers)
    begun = [each for _, deletions in topics for each in deletions]
    unknown = [each async for each in answer.over(begun) if not each.look()]
    if unknown:
        await _followers(environment, unknown, request.timeout_ms / 1000)
    results = [await _told(answer, name, deletions) async for name, deletions in answer.over(topics)]
    return DeleteRecordsResponse(topics=results)


class _PartitionDeletion:
    """The deletion of records in one partition; the constructor deletes the records on this broker, the leader."""

    def __init__(self, environment: HandlerEnvironment, name: str, index: int, offset: int) -> None:
        self.index = index
        self.partition: Partition | None = None
        self._result: PartitionResult | None = None
        self._environment = environment
        self._target = offset
        try:
            with environment.replicas.failures.using(name, index) as partition:
                self._target = _delete(partition, offset)
                self.partition = partition
        except ApiError as refusal:
            self.end(refusal.code)
        self.look()

    @property
    def known(self) -> PartitionResult:
        assert self._result is not None
        return self._result

    def end(self, error: ErrorCode, low_watermark: int = NO_WATERMARK) -> None:
        """Store the result of the partition."""
        self._result = PartitionResult(partition_index=self.index, low_watermark=low_watermark, error_code=error)

    def look(self) -> bool:
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
        unknown = [each for each in self._unknown.pop(changed, ()) if not each.look()]
        if unknown:
            self._unknown[changed] = unknown
        if not self._unknown:
            self._over()
        return not self._unknown

    def expire(self) -> None:
        """End the wait with REQUEST_TIMED_OUT for partitions whose followers may still have the records."""
        for deletions in self._unknown.values():
            for each in deletions:
                if not each.look():
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
                async for each in turn.over(topic.partitions)
            ],
        )
        async for topic in turn.over(request.topics)
    ]


async def _followers(environment: HandlerEnvironment, deletions: list[_PartitionDeletion], timeout_s: float) -> None:
    """Wait until all followers have deleted the records, or the timeout is over."""

    def start(over: Callable[[None], object]) -> None:
        wait = _Wait(deletions, partial(over, None))
        environment.purgatory.watch(wait, wait.lists, timeout_s)

    await awaited(start)


async def _told(answer: AnswerInTurns, name: str, deletions: list[_PartitionDeletion]) -> TopicResult:
    results = await answer.elements(("topics", "partitions"), deletions, lambda each: each.known)
    return answer.encoded(("topics",), TopicResult(name=name, partitions=results))

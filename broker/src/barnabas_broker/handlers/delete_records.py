"""DeleteRecords (21), v0 to v2: raise the log start offset; below it nothing is read again.

Answered once all replicas on brokers that are alive have done so, too: whichever leads next does not bring the records
back. They tell it in their fetches.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import answer_of
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
NowOrLater = DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]


def handle(environment: HandlerEnvironment, context: RequestContext, request: DeleteRecordsRequest) -> NowOrLater:
    """For each partition the new low watermark, or an error: then nothing changed, unless its time was up."""

    def start(answer: Callable[[DeleteRecordsResponse], object]) -> None:
        deletion = _Deletion(environment, request, answer)
        if not deletion.complete():
            lists = [partition.waiters for partition in deletion.partitions]
            environment.purgatory.watch(deletion, lists, request.timeout_ms / 1000)

    return answer_of(start)


class _PartitionDeletion:
    """What is deleted of one partition: `result` once that is known."""

    def __init__(self, environment: HandlerEnvironment, name: str, index: int, offset: int) -> None:
        self.index = index
        self.partition: Partition | None = None
        self.result: PartitionResult | None = None
        self._environment = environment
        self._target = offset
        try:
            with environment.replicas.failures.using(name, index) as partition:
                self._target = _delete(partition, offset)
                self.partition = partition
        except ApiError as refusal:
            self.end(refusal.code)

    def end(self, error: ErrorCode, low_watermark: int = NO_WATERMARK) -> None:
        """Keeps the partition's result for the answer."""
        self.result = PartitionResult(partition_index=self.index, low_watermark=low_watermark, error_code=error)

    def look(self) -> bool:
        """Whether the result is known by now."""
        if self.result is None:
            assert self.partition is not None
            try:
                self._compare(self.partition)
            except ApiError as refusal:
                self.end(refusal.code)
        return self.result is not None

    def _compare(self, partition: Partition) -> None:
        partition.check_writable(all_replicas=False)
        assert partition.leadership is not None
        low_watermark = partition.leadership.low_watermark(partition.log_start_offset, self._environment.image.live)
        if low_watermark >= self._target:
            self.end(ErrorCode.NONE, low_watermark)


def _delete(partition: Partition, offset: int) -> int:
    """The log start offset that all replicas are to have. ApiError."""
    partition.check_writable(all_replicas=False)
    if CleanupPolicy.DELETE not in partition.log.config.cleanup_policies:
        topic = partition.topic_partition.topic
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"{topic} has no cleanup.policy=delete")
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= partition.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}; 0 to {partition.high_watermark}")
    partition.delete_records_before(target)
    return target


class _Deletion:
    """One request. A DelayedOperation while it waits for followers."""

    def __init__(
        self,
        environment: HandlerEnvironment,
        request: DeleteRecordsRequest,
        answer: Callable[[DeleteRecordsResponse], object],
    ) -> None:
        self._answer = answer
        self._topics = [
            (
                topic.name,
                [
                    _PartitionDeletion(environment, topic.name, each.partition_index, each.offset)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]

    @property
    def partitions(self) -> list[Partition]:
        """Those that followers are waited for."""
        return [each.partition for _, deletions in self._topics for each in deletions if each.partition is not None]

    def try_complete(self, changed: WaitList) -> bool:  # noqa: ARG002  # few partitions: all are looked at
        """Called by the purgatory after a change."""
        return self.complete()

    def complete(self) -> bool:
        """Answer if all results are known."""
        is_known = [each.look() for _, deletions in self._topics for each in deletions]
        if all(is_known):
            self._finish()
        return all(is_known)

    def expire(self) -> None:
        """The time is up: some followers may still have the records."""
        for _, deletions in self._topics:
            for each in deletions:
                if not each.look():
                    each.end(ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _finish(self) -> None:
        topics = [
            TopicResult(name=name, partitions=[each.result for each in deletions if each.result is not None])
            for name, deletions in self._topics
        ]
        self._answer(DeleteRecordsResponse(throttle_time_ms=0, topics=topics))

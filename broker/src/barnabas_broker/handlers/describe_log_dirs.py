"""DescribeLogDirs (35), v1 to v5: the log dirs, their space, and the sizes of their partitions (KIP-113, KIP-827)."""

from collections import defaultdict

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.replica_moves import ReplicaMoves
from barnabas_broker.wire.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

DirResult = DescribeLogDirsResponse.DescribeLogDirsResult
TopicResult = DirResult.DescribeLogDirsTopic
PartitionResult = TopicResult.DescribeLogDirsPartition


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Return all log dirs with the requested partitions; null topics mean all partitions.

    An offline log dir has the error KAFKA_STORAGE_ERROR.
    """
    answer = AnswerInTurns(DescribeLogDirsResponse, context, environment.answers)
    sizes = await _sizes(environment, answer, request)
    results = []
    for log_dir in environment.logs.log_dirs:
        of_dir = sizes.by_dir[log_dir.path].items()
        topics = await answer.elements(
            ("results", "topics"), of_dir, lambda topic: TopicResult(name=topic[0], partitions=topic[1])
        )
        results.append(_describe(log_dir, topics))
    return DescribeLogDirsResponse(results=results)


async def _sizes(environment: HandlerEnvironment, answer: AnswerInTurns, request: DescribeLogDirsRequest) -> "_Sizes":
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index)
            async for topic in answer.over(request.topics)
            async for index in answer.over(topic.partitions)
        }
    sizes, reported, lookup = _Sizes(environment.logs.moves, answer), set(), environment.replicas.lookup
    async for hosted in answer.over(lookup.partitions()):
        which = hosted.topic_partition
        if (wanted is None or which in wanted) and lookup.hosted(which) is hosted:
            sizes.report(hosted.log.log_dir, which, hosted.log.segments.size_bytes)
            sizes.report_move(which)
            reported.add(which)
    for which in environment.logs.moves.under_way:
        if which not in reported and (wanted is None or which in wanted):
            sizes.report_move(which)
    return sizes


class _Sizes:
    """The partitions with their sizes, encoded for the response, by log dir and topic.

    A partition that moves to another log dir is listed in both log dirs.
    """

    def __init__(self, moves: ReplicaMoves, answer: AnswerInTurns) -> None:
        self.by_dir: dict[str, dict[str, list[PartitionResult]]] = defaultdict(lambda: defaultdict(list))
        self._moves = moves
        self._answer = answer

    def report(self, log_dir: str, which: TopicPartition, size_bytes: int, lag_bytes: int | None = None) -> None:
        """Add a partition's log to `by_dir`; `lag_bytes` is set only for an unfinished copy, Kafka's future log."""
        result = PartitionResult(
            partition_index=which.partition,
            partition_size=size_bytes,
            offset_lag=lag_bytes or 0,
            is_future_key=lag_bytes is not None,
        )
        self.by_dir[log_dir][which.topic].append(self._answer.encoded(("results", "topics", "partitions"), result))

    def report_move(self, which: TopicPartition) -> None:
        """Add the unfinished copy of a partition to `by_dir`, if the partition moves to another log dir."""
        move = self._moves.under_way.get(which)
        if move is not None:  # An unfinished copy has no log end offset, so its lag is in bytes.
            self.report(move.log_dir, which, move.log.segments.size_bytes - move.lag_bytes, move.lag_bytes)


def _describe(log_dir: LogDir, topics: list[TopicResult]) -> DirResult:
    try:
        usage = log_dir.usage() if log_dir.is_online else None
    except StorageError:  # The disk has failed since the last check.
        usage = None
    if usage is None:
        return DirResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir.path)
    return DirResult(
        log_dir=log_dir.path,
        topics=topics,
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
    )

"""DescribeLogDirs (35), v1 to v5: log directories, their space and their partitions' sizes (KIP-113, KIP-827)."""

from collections import defaultdict
from typing import Final

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.wire.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

UNKNOWN_BYTES: Final = -1

DirResult = DescribeLogDirsResponse.DescribeLogDirsResult
TopicResult = DirResult.DescribeLogDirsTopic
PartitionResult = TopicResult.DescribeLogDirsPartition


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Every directory, an offline one with KAFKA_STORAGE_ERROR; of the partitions those asked for, null meaning all."""
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = [_describe(environment, log_dir, wanted) for log_dir in environment.logs.log_dirs]
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, results=results)


def _describe(environment: HandlerEnvironment, log_dir: LogDir, wanted: set[TopicPartition] | None) -> DirResult:
    if not log_dir.is_online:
        return _offline(log_dir)
    try:
        usage = log_dir.usage()
    except StorageError:  # It has failed since somebody looked at the disks.
        return _offline(log_dir)
    topics: dict[str, list[PartitionResult]] = defaultdict(list)
    for hosted in environment.replicas.lookup.partitions():
        name, index = hosted.topic_partition
        if hosted.log.log_dir == log_dir.path and (wanted is None or hosted.topic_partition in wanted):
            topics[name].append(
                PartitionResult(
                    partition_index=index, partition_size=hosted.log.size_bytes, offset_lag=0, is_future_key=False
                )
            )
    for (name, index), move in environment.logs.moves.under_way.items():
        if move.log_dir == log_dir.path and (wanted is None or (name, index) in wanted):
            # The lag is in bytes: a copy that is not whole has no end offset.
            copied_bytes = move.log.size_bytes - move.lag_bytes
            topics[name].append(
                PartitionResult(
                    partition_index=index, partition_size=copied_bytes, offset_lag=move.lag_bytes, is_future_key=True
                )
            )
    return DirResult(
        error_code=ErrorCode.NONE,
        log_dir=log_dir.path,
        topics=[TopicResult(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
        is_cordoned=False,
    )


def _offline(log_dir: LogDir) -> DirResult:
    return DirResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=log_dir.path,
        topics=[],
        total_bytes=UNKNOWN_BYTES,
        usable_bytes=UNKNOWN_BYTES,
        is_cordoned=False,
    )

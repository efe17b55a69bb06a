"""DeleteRecords (21), v0 to v2: raise the log start offset; below it nothing is read again."""

from typing import Final

from barnabas_broker.handlers.exchange import Context
from barnabas_broker.handlers.services import Services
from barnabas_broker.wire.messages import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas_core.config.log_config import CleanupPolicy
from barnabas_core.errors import ApiError, ErrorCode

HIGH_WATERMARK: Final = -1

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = TopicResult.DeleteRecordsPartitionResult


def handle(services: Services, context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """For each partition the new low watermark, or an error and nothing changed."""
    topics = []
    for topic in request.topics:
        results = [_answer(services, topic.name, each.partition_index, each.offset) for each in topic.partitions]
        topics.append(TopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _answer(services: Services, name: str, index: int, offset: int) -> PartitionResult:
    error, low_watermark = ErrorCode.NONE, -1
    try:
        with services.replicas.using(name, index) as partition:
            partition.check_writable(all_replicas=False)
            if CleanupPolicy.DELETE not in partition.log.config.cleanup_policies:
                raise ApiError(ErrorCode.POLICY_VIOLATION, f"{name} has no cleanup.policy=delete")
            target = partition.high_watermark if offset == HIGH_WATERMARK else offset
            if not 0 <= target <= partition.high_watermark:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}; 0 to {partition.high_watermark}")
            partition.log.increment_log_start_offset(target)
            low_watermark = partition.log_start_offset
    except ApiError as refusal:
        error = refusal.code
    return PartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error)

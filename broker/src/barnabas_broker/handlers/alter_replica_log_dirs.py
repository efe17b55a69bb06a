"""AlterReplicaLogDirs (34), v1 to v2: moves replicas in use to other log dirs of this broker (KIP-113)."""

from typing import Final

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

TopicResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
PartitionResult = TopicResult.AlterReplicaLogDirPartitionResult

NOT_HERE: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.REPLICA_NOT_AVAILABLE}


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin to move replicas to other log dirs; DescribeLogDirs shows the progress.

    A replica that this broker does not have yet gets the error REPLICA_NOT_AVAILABLE, as in Kafka. The broker still
    remembers the requested log dir, and creates the replica there later.
    """
    topics: dict[str, list[PartitionResult]] = {}
    for log_dir in request.dirs:
        for topic in log_dir.topics:
            results = [
                _move(environment, TopicPartition(topic.name, index), log_dir.path) for index in topic.partitions
            ]
            topics.setdefault(topic.name, []).extend(results)
    by_topic = [TopicResult(topic_name=name, partitions=partitions) for name, partitions in topics.items()]
    return AlterReplicaLogDirsResponse(results=by_topic)


def _move(environment: HandlerEnvironment, topic_partition: TopicPartition, log_dir: str) -> PartitionResult:
    error = ErrorCode.NONE
    try:
        environment.mover.move(topic_partition, log_dir)
    except ApiError as refusal:
        error = NOT_HERE.get(refusal.code, refusal.code)
    return PartitionResult(partition_index=topic_partition.partition, error_code=error)

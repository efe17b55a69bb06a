"""AlterReplicaLogDirs (34), v1 to v2: moves replicas in use to other log dirs of this broker (KIP-113)."""

from functools import partial
from typing import Final

from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.fair_turns import InSteps, in_steps
from barnabas_core.topic_partition import TopicPartition

TopicResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
PartitionResult = TopicResult.AlterReplicaLogDirPartitionResult

NOT_HERE: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.REPLICA_NOT_AVAILABLE}


@stepwise
def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> InSteps[AlterReplicaLogDirsResponse]:
    """Begin to move replicas to other log dirs; DescribeLogDirs shows the progress.

    A replica that this broker does not have yet gets the error REPLICA_NOT_AVAILABLE, as in Kafka. The broker still
    remembers the requested log dir, and creates the replica there later.
    """
    topics: dict[str, list[PartitionResult]] = {}
    for log_dir in request.dirs:
        for topic in log_dir.topics:
            move = partial(_move, environment, log_dir.path, topic.name)
            topics.setdefault(topic.name, []).extend((yield from in_steps(topic.partitions, move)))
    by_topic = yield from in_steps(topics.items(), lambda each: TopicResult(topic_name=each[0], partitions=each[1]))
    return AlterReplicaLogDirsResponse(results=by_topic)


def _move(environment: HandlerEnvironment, log_dir: str, topic: str, number: int) -> PartitionResult:
    error = ErrorCode.NONE
    try:
        environment.mover.move(TopicPartition(topic, number), log_dir)
    except ApiError as refusal:
        error = NOT_HERE.get(refusal.code, refusal.code)
    return PartitionResult(partition_index=number, error_code=error)

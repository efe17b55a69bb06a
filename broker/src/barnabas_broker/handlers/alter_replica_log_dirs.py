"""AlterReplicaLogDirs (34), v1 to v2: moves replicas in use to other log dirs of this broker (KIP-113)."""

from collections.abc import Iterator
from typing import Final

from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps, flat_in_steps, in_steps
from barnabas_core.topic_partition import TopicPartition

Topic = AlterReplicaLogDirsRequest.AlterReplicaLogDir.AlterReplicaLogDirTopic
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
    named = yield from flat_in_steps(request.dirs, lambda each: ((each.path, topic) for topic in each.topics))
    topics: dict[str, list[PartitionResult]] = {}
    yield from in_steps(named, lambda each: topics.setdefault(each[1].name, []))
    results = yield from flat_in_steps(named, lambda each: _moves(environment, *each))
    yield from in_steps(results, lambda each: topics[each[0]].append(each[1]))
    by_topic = yield from in_steps(topics.items(), lambda each: TopicResult(topic_name=each[0], partitions=each[1]))
    return AlterReplicaLogDirsResponse(results=by_topic)


def _moves(environment: HandlerEnvironment, log_dir: str, topic: Topic) -> Iterator[tuple[str, PartitionResult]]:
    return ((topic.name, _move(environment, log_dir, topic.name, number)) for number in topic.partitions)


def _move(environment: HandlerEnvironment, log_dir: str, topic: str, number: int) -> PartitionResult:
    error = ErrorCode.NONE
    try:
        environment.mover.move(TopicPartition(topic, number), log_dir)
    except ApiError as refusal:
        error = NOT_HERE.get(refusal.code, refusal.code)
    return PartitionResult(partition_index=number, error_code=error)

"""ListPartitionReassignments (46), v0: which partitions get other replicas just now (KIP-455). Null means all."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.partition_results import by_topic
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.wire.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

TopicResult = ListPartitionReassignmentsResponse.OngoingTopicReassignment
PartitionResult = TopicResult.OngoingPartitionReassignment


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Those of the partitions asked for that are being reassigned; nothing of all others, known or not."""
    partitions = None
    if request.topics is not None:
        partitions = [TopicPartition(each.name, number) for each in request.topics for number in each.partition_indexes]
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[
            TopicResult(name=topic, partitions=[_ongoing(number, state) for number, state in found])
            for topic, found in by_topic(environment.metadata_writer.reassignments(partitions))
        ],
    )


def _ongoing(number: int, state: PartitionState) -> PartitionResult:
    return PartitionResult(
        partition_index=number,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
    )

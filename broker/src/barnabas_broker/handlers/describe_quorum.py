"""DescribeQuorum (55), v0 to v2: the controller as the leader and only voter, and the other live brokers as observers.

There is no Raft quorum: the metadata is in a store, and the controller is the broker that holds a lease. Offsets are
revisions of the store. The offsets of observers are not reported (docs/decisions/replication.md).
"""

from functools import partial
from typing import Final

from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.image.shown_documents import NO_CONTROLLER
from barnabas_broker.wire.messages import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps

METADATA_TOPIC: Final = "__cluster_metadata"
EPOCH_MAX: Final = 2**31 - 1
UNKNOWN: Final = -1
AskedPartition = DescribeQuorumRequest.TopicData.PartitionData
Topic = DescribeQuorumResponse.TopicData
PartitionData = Topic.PartitionData
ReplicaState = PartitionData.ReplicaState
Node = DescribeQuorumResponse.Node


@stepwise
def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeQuorumRequest
) -> InSteps[DescribeQuorumResponse]:
    """Describe partition 0 of `__cluster_metadata`; other partitions have the error UNKNOWN_TOPIC_OR_PARTITION."""
    topics = []
    for topic in request.topics:
        partitions = yield from in_steps(topic.partitions, partial(_partition, environment, topic.topic_name))
        topics.append(Topic(topic_name=topic.topic_name, partitions=partitions))
    return DescribeQuorumResponse(error_message=None, topics=topics, nodes=_nodes(environment, context))


def _partition(environment: HandlerEnvironment, topic: str, asked: AskedPartition) -> PartitionData:
    number = asked.partition_index
    if (topic, number) != (METADATA_TOPIC, 0):
        message = f"{topic}-{number} has no quorum; only {METADATA_TOPIC}-0 has one"
        return PartitionData(
            partition_index=number,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=message,
            leader_id=NO_CONTROLLER,
        )
    image, controller = environment.image, environment.image.controller_id
    return PartitionData(
        partition_index=number,
        error_message=None,
        leader_id=controller,
        leader_epoch=image.controller_epoch & EPOCH_MAX,  # The controller epoch may exceed Kafka's 31 bits.
        high_watermark=image.revision,
        current_voters=[_leader(environment)] if controller != NO_CONTROLLER else [],
        observers=[
            ReplicaState(replica_id=broker_id, log_end_offset=UNKNOWN)
            for broker_id in image.live_brokers()
            if broker_id != controller
        ],
    )


def _leader(environment: HandlerEnvironment) -> ReplicaState:
    return ReplicaState(
        replica_id=environment.image.controller_id,
        log_end_offset=environment.image.revision,
        last_caught_up_timestamp=environment.clock.now_ms(),
    )


def _nodes(environment: HandlerEnvironment, context: RequestContext) -> list[Node]:
    """Return the controller's address on the listener of the client."""
    return [
        Node(
            node_id=node.broker_id,
            listeners=[Node.Listener(name=address.name, host=address.host, port=address.port)],
        )
        for node, address in environment.nodes(context.client.listener_name, with_fenced=True)
        if node.broker_id == environment.image.controller_id
    ]

"""DescribeProducers (61), v0: the idempotent producers that a partition knows, reported by its leader (KIP-664)."""

from functools import partial

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DescribeProducersRequest, DescribeProducersResponse
from barnabas_core.errors import ApiError, ErrorCode

Topic = DescribeProducersResponse.TopicResponse
PartitionResponse = Topic.PartitionResponse
ProducerState = PartitionResponse.ProducerState


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Answer for each partition with its producers, or why they are not known.

    Many partitions take several turns of the loop.
    """
    answer = AnswerInTurns(DescribeProducersResponse, context, environment.answers)
    topics = []
    async for topic in answer.over(request.topics):
        describe = partial(_partition, environment, topic.name)
        partitions = await answer.elements(("topics", "partitions"), topic.partition_indexes, describe)
        topics.append(answer.encoded(("topics",), Topic(name=topic.name, partitions=partitions)))
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _partition(environment: HandlerEnvironment, topic: str, number: int) -> PartitionResponse:
    try:
        partition = environment.replicas.lookup.find(topic, None, number)
        partition.check_readable(-1)
    except ApiError as error:
        return PartitionResponse(partition_index=number, error_code=error.code, error_message=error.message)
    newest = {each.producer_id: each for each in partition.log.producers.snapshot()}  # The newest batch comes last.
    return PartitionResponse(
        partition_index=number,
        error_code=ErrorCode.NONE,
        error_message=None,
        active_producers=[
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.timestamp_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.transaction_first_offset,
            )
            for each in newest.values()
        ],
    )

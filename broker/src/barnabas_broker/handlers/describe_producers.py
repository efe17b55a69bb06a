"""DescribeProducers (61), v0: the idempotent producers of a partition, as any of its replicas knows them (KIP-664)."""

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
    """Return the active producers of each partition, or an error."""
    answer = AnswerInTurns(DescribeProducersResponse, context, environment.answers)
    topics = []
    async for topic in answer.over(request.topics):
        describe = partial(_partition, environment, topic.name)
        partitions = await answer.elements(("topics", "partitions"), topic.partition_indexes, describe)
        topics.append(answer.encoded(("topics",), Topic(name=topic.name, partitions=partitions)))
    return DescribeProducersResponse(topics=topics)


def _partition(environment: HandlerEnvironment, topic: str, number: int) -> PartitionResponse:
    try:
        with environment.replicas.failures.using(topic, number) as partition:
            if partition.failure is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(partition.failure))
            # The snapshot has an entry for each known batch of a producer, and the newest entry comes last.
            newest = {each.producer_id: each for each in partition.log.producers.snapshot()}
    except ApiError as error:
        return PartitionResponse(partition_index=number, error_code=error.code, error_message=error.message)
    return PartitionResponse(
        partition_index=number,
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

"""ElectLeaders (43), v0 to v2: leadership to the preferred replicas, or to any that is alive (KIP-183, KIP-460).

v0 knows preferred leaders only; from v1 on the request says which election. Null instead of partitions means all, and
then the answer has only those that an election was for.
"""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.partition_results import by_topic, error_fields
from barnabas_broker.metadata.controller.decisions.elections import ElectionType
from barnabas_broker.wire.messages import ElectLeadersRequest, ElectLeadersResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

TopicResult = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = TopicResult.PartitionResult
ELECTIONS = {election.value: election for election in ElectionType}


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """For each partition whether a leader was elected, or why not."""
    election = ElectionType.PREFERRED if context.api_version == 0 else ELECTIONS.get(request.election_type)
    if election is None:
        return _answer(ErrorCode.INVALID_REQUEST, [])
    partitions = None
    if request.topic_partitions is not None:
        partitions = [
            TopicPartition(each.topic, number) for each in request.topic_partitions for number in each.partitions
        ]
    outcomes = await environment.metadata_writer.elect_leaders(election, partitions)
    results = [
        TopicResult(
            topic=topic,
            partition_result=[PartitionResult(partition_id=number, **error_fields(error)) for number, error in found],
        )
        for topic, found in by_topic(outcomes)
    ]
    return _answer(ErrorCode.NONE, results)


def _answer(error: ErrorCode, results: list[TopicResult]) -> ElectLeadersResponse:
    return ElectLeadersResponse(throttle_time_ms=0, error_code=error, replica_election_results=results)

"""ElectLeaders (43), v0 to v2: elects preferred leaders, or any live replica (KIP-183, KIP-460).

v0 elects preferred leaders; from v1 on the request has an election type. Null partitions mean all partitions; the
response then lists only the partitions with an election.
"""

from typing import Final

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import by_topic, error_fields
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.elections import ElectionType
from barnabas_broker.wire.messages import ElectLeadersRequest, ElectLeadersResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

TopicResult = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = TopicResult.PartitionResult
RESULTS: Final = "replica_election_results"
ELECTIONS = {election.value: election for election in ElectionType}


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Elect leaders, and return an error code for each partition."""
    election = ElectionType.PREFERRED if context.api_version == 0 else ELECTIONS.get(request.election_type)
    if election is None:
        return _answer(ErrorCode.INVALID_REQUEST, [])
    answer = AnswerInTurns(ElectLeadersResponse, context, environment.answers)
    partitions = None
    if request.topic_partitions is not None:
        partitions = [
            TopicPartition(each.topic, number)
            async for each in answer.over(request.topic_partitions)
            async for number in answer.over(each.partitions)
        ]
    outcomes = await environment.metadata_writer.elect_leaders(election, partitions)
    answer.turn.keep_outcomes(outcomes)
    results = []
    async for topic, found in answer.along(await answer.turn.run(by_topic(outcomes))):
        partition_results = await answer.elements((RESULTS, "partition_result"), found, lambda each: _result(*each))
        results.append(answer.encoded((RESULTS,), TopicResult(topic=topic, partition_result=partition_results)))
    return _answer(ErrorCode.NONE, results)


def _result(number: int, error: ApiError | None) -> PartitionResult:
    return PartitionResult(partition_id=number, **error_fields(error))


def _answer(error: ErrorCode, results: list[TopicResult]) -> ElectLeadersResponse:
    return ElectLeadersResponse(error_code=error, replica_election_results=results)

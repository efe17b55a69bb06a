"""ListPartitionReassignments (46), v0: the ongoing reassignments (KIP-455); null topics mean all."""

from collections.abc import Iterable

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.wire.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

TopicResult = ListPartitionReassignmentsResponse.OngoingTopicReassignment
PartitionResult = TopicResult.OngoingPartitionReassignment


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the ongoing reassignments of the requested partitions; partitions without one are left out."""
    answer = AnswerInTurns(ListPartitionReassignmentsResponse, context, environment.answers)
    topics = []
    async for name, numbers in answer.along((await _asked(environment, answer, request)).items()):
        partitions = [
            answer.encoded(("topics", "partitions"), _ongoing(number, state))
            async for number in answer.over(numbers)
            if (state := environment.metadata_writer.reassignment(name, number)) is not None
        ]
        if partitions:
            topics.append(answer.encoded(("topics",), TopicResult(name=name, partitions=partitions)))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


async def _asked(
    environment: HandlerEnvironment, answer: AnswerInTurns, request: ListPartitionReassignmentsRequest
) -> dict[str, Iterable[int]]:
    """Return the requested partitions of each topic without duplicates, or all partitions if the topics are null."""
    if request.topics is None:
        return {name: range(len(topic.partitions)) for name, topic in environment.image.topics.items()}
    asked: dict[str, dict[int, None]] = {}
    async for each in answer.over(request.topics):
        asked.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    return {**asked}


def _ongoing(number: int, state: PartitionState) -> PartitionResult:
    return PartitionResult(
        partition_index=number,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
    )

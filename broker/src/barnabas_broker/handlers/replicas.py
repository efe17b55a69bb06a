"""The requests about the replicas of partitions: reassignments, elections and log dirs.

AlterPartitionReassignments (45), v0 to v1: reassigns replicas, or cancels reassignments (KIP-455). A v1 request may
forbid that the replication factor changes (KIP-860).

ListPartitionReassignments (46), v0: the ongoing reassignments (KIP-455); null topics mean all.

ElectLeaders (43), v0 to v2: elects preferred leaders, or any live replica (KIP-183, KIP-460). v0 elects preferred
leaders; from v1 on the request has an election type. Null partitions mean all partitions; the response then lists
only the partitions with an election.

AlterReplicaLogDirs (34), v1 to v2: moves replicas in use to other log dirs of this broker (KIP-113).

DescribeLogDirs (35), v1 to v5: the log dirs, their space, and the sizes of their partitions (KIP-113, KIP-827).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from barnabas_broker.handlers.channel import AnswerInTurns, RequestContext, by_topic, error_fields, stepwise
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.elections import ElectionType
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.replica_moves import ReplicaMoves
from barnabas_broker.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps, flat_in_steps, in_steps
from barnabas_core.topic_partition import TopicPartition

ReassignedTopic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
ReassignedPartition = ReassignedTopic.ReassignablePartitionResponse


async def alter_partition_reassignments(
    environment: HandlerEnvironment, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin or cancel the reassignment of each partition, and return an error code for each."""
    may_change_factor = context.api_version == 0 or request.allow_replication_factor_change
    answer = AnswerInTurns(AlterPartitionReassignmentsResponse, context, environment.answers)
    wanted = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        async for topic in answer.over(request.topics)
        async for partition in answer.over(topic.partitions)
    }
    outcomes = await environment.metadata_writer.alter_reassignments(wanted, may_change_factor=may_change_factor)
    answer.turn.keep_outcomes(outcomes)
    results = []
    async for topic, found in answer.along(await answer.turn.run(by_topic(outcomes))):
        partitions = await answer.elements(
            ("responses", "partitions"), found, lambda each: _reassigned_partition(*each)
        )
        results.append(answer.encoded(("responses",), ReassignedTopic(name=topic, partitions=partitions)))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor, error_message=None, responses=results
    )


def _reassigned_partition(number: int, error: ApiError | None) -> ReassignedPartition:
    return ReassignedPartition(partition_index=number, **error_fields(error))


OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
OngoingPartition = OngoingTopic.OngoingPartitionReassignment


async def list_partition_reassignments(
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
            topics.append(answer.encoded(("topics",), OngoingTopic(name=name, partitions=partitions)))
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


def _ongoing(number: int, state: PartitionState) -> OngoingPartition:
    return OngoingPartition(
        partition_index=number,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
    )


ElectedTopic = ElectLeadersResponse.ReplicaElectionResult
ElectedPartition = ElectedTopic.PartitionResult
ELECTION_RESULTS: Final = "replica_election_results"
ELECTIONS = {election.value: election for election in ElectionType}


async def elect_leaders(
    environment: HandlerEnvironment, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Elect leaders, and return an error code for each partition."""
    election = ElectionType.PREFERRED if context.api_version == 0 else ELECTIONS.get(request.election_type)
    if election is None:
        return _elect_response(ErrorCode.INVALID_REQUEST, [])
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
        partition_results = await answer.elements(
            (ELECTION_RESULTS, "partition_result"), found, lambda each: _elected_partition(*each)
        )
        results.append(
            answer.encoded((ELECTION_RESULTS,), ElectedTopic(topic=topic, partition_result=partition_results))
        )
    return _elect_response(ErrorCode.NONE, results)


def _elected_partition(number: int, error: ApiError | None) -> ElectedPartition:
    return ElectedPartition(partition_id=number, **error_fields(error))


def _elect_response(error: ErrorCode, results: list[ElectedTopic]) -> ElectLeadersResponse:
    return ElectLeadersResponse(error_code=error, replica_election_results=results)


TopicToMove = AlterReplicaLogDirsRequest.AlterReplicaLogDir.AlterReplicaLogDirTopic
MovedTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
MovedPartition = MovedTopic.AlterReplicaLogDirPartitionResult

NOT_HERE: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.REPLICA_NOT_AVAILABLE}


@stepwise
def alter_replica_log_dirs(
    environment: HandlerEnvironment, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> InSteps[AlterReplicaLogDirsResponse]:
    """Begin to move replicas to other log dirs; DescribeLogDirs shows the progress.

    A replica that this broker does not have yet gets the error REPLICA_NOT_AVAILABLE, as in Kafka. The broker still
    remembers the requested log dir, and creates the replica there later.
    """
    named = yield from flat_in_steps(request.dirs, lambda each: ((each.path, topic) for topic in each.topics))
    topics: dict[str, list[MovedPartition]] = {}
    yield from in_steps(named, lambda each: topics.setdefault(each[1].name, []))
    results = yield from flat_in_steps(named, lambda each: _moves(environment, *each))
    yield from in_steps(results, lambda each: topics[each[0]].append(each[1]))
    by_topic = yield from in_steps(topics.items(), lambda each: MovedTopic(topic_name=each[0], partitions=each[1]))
    return AlterReplicaLogDirsResponse(results=by_topic)


def _moves(environment: HandlerEnvironment, log_dir: str, topic: TopicToMove) -> Iterator[tuple[str, MovedPartition]]:
    return ((topic.name, _move(environment, log_dir, topic.name, number)) for number in topic.partitions)


def _move(environment: HandlerEnvironment, log_dir: str, topic: str, number: int) -> MovedPartition:
    error = ErrorCode.NONE
    try:
        environment.mover.move(TopicPartition(topic, number), log_dir)
    except ApiError as refusal:
        error = NOT_HERE.get(refusal.code, refusal.code)
    return MovedPartition(partition_index=number, error_code=error)


DirResult = DescribeLogDirsResponse.DescribeLogDirsResult
DirTopic = DirResult.DescribeLogDirsTopic
DirPartition = DirTopic.DescribeLogDirsPartition


async def describe_log_dirs(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Return all log dirs with the requested partitions; null topics mean all partitions.

    An offline log dir has the error KAFKA_STORAGE_ERROR.
    """
    answer = AnswerInTurns(DescribeLogDirsResponse, context, environment.answers)
    sizes = await _sizes(environment, answer, request)
    results = []
    for log_dir in environment.logs.log_dirs:
        of_dir = sizes.by_dir[log_dir.path].items()
        topics = await answer.elements(
            ("results", "topics"), of_dir, lambda topic: DirTopic(name=topic[0], partitions=topic[1])
        )
        results.append(_described_dir(log_dir, topics))
    return DescribeLogDirsResponse(results=results)


async def _sizes(environment: HandlerEnvironment, answer: AnswerInTurns, request: DescribeLogDirsRequest) -> "_Sizes":
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index)
            async for topic in answer.over(request.topics)
            async for index in answer.over(topic.partitions)
        }
    sizes, reported, lookup = _Sizes(environment.logs.moves, answer), set(), environment.replicas.lookup
    async for hosted in answer.over(lookup.partitions()):
        which = hosted.topic_partition
        if (wanted is None or which in wanted) and lookup.hosted(which) is hosted:
            sizes.report(hosted.log.log_dir, which, hosted.log.segments.size_bytes)
            sizes.report_move(which)
            reported.add(which)
    for which in environment.logs.moves.under_way:
        if which not in reported and (wanted is None or which in wanted):
            sizes.report_move(which)
    return sizes


class _Sizes:
    """The partitions with their sizes, encoded for the response, by log dir and topic.

    A partition that moves to another log dir is listed in both log dirs.
    """

    def __init__(self, moves: ReplicaMoves, answer: AnswerInTurns) -> None:
        self.by_dir: dict[str, dict[str, list[DirPartition]]] = defaultdict(lambda: defaultdict(list))
        self._moves = moves
        self._answer = answer

    def report(self, log_dir: str, which: TopicPartition, size_bytes: int, lag_bytes: int | None = None) -> None:
        """Add a partition's log to `by_dir`; `lag_bytes` is set only for an unfinished copy, Kafka's future log."""
        result = DirPartition(
            partition_index=which.partition,
            partition_size=size_bytes,
            offset_lag=lag_bytes or 0,
            is_future_key=lag_bytes is not None,
        )
        self.by_dir[log_dir][which.topic].append(self._answer.encoded(("results", "topics", "partitions"), result))

    def report_move(self, which: TopicPartition) -> None:
        """Add the unfinished copy of a partition to `by_dir`, if the partition moves to another log dir."""
        move = self._moves.under_way.get(which)
        if move is not None:  # An unfinished copy has no log end offset, so its lag is in bytes.
            self.report(move.log_dir, which, move.log.segments.size_bytes - move.lag_bytes, move.lag_bytes)


def _described_dir(log_dir: LogDir, topics: list[DirTopic]) -> DirResult:
    try:
        usage = log_dir.usage() if log_dir.is_online else None
    except StorageError:  # The disk has failed since the last check.
        usage = None
    if usage is None:
        return DirResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir.path)
    return DirResult(
        log_dir=log_dir.path,
        topics=topics,
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
    )

"""The share state of groups: the requests of clients for start offsets, and those of brokers to share coordinators.

DescribeShareGroupOffsets (90), v0 and v1: the start offsets of share groups by partition, and v1 also their lag. The
lag is the number of records that are not finished (KIP-1226): the end offset minus the start offset and minus the
records behind it that are finished. It is -1 where it is not known.

AlterShareGroupOffsets (91), v0: sets the start offsets of a share group without members (KIP-932).

DeleteShareGroupOffsets (92), v0: deletes the share state of topics of a share group without members (KIP-932).

InitializeShareGroupState and the four that follow (83 to 87), from brokers: the response is sent when all that the
request changes is committed, with an error code for each share-partition.
"""

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from barnabas_broker.coordinators.share_state.persister import (
    STATE_APIS,
    WRITE,
    Entry,
    ShareCoordinator,
    StateApi,
    state_batch,
)
from barnabas_broker.coordinators.share_state.share_state import UNKNOWN_COUNT, UNKNOWN_OFFSET, ReadEntry, ShareOutcome
from barnabas_broker.handlers.channel import AnswerInTurns, RequestContext, answer_of, awaited, rights_of, stepwise
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.storage.logs.offset_lookup import last_stable_offset
from barnabas_broker.wire.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    message_class,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import OUTCOMES, InSteps, in_steps, slices
from barnabas_core.topic_partition import TopicIdPartition, TopicPartition

RequestGroup: TypeAlias = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
RequestTopic: TypeAlias = RequestGroup.DescribeShareGroupOffsetsRequestTopic
Group: TypeAlias = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
DescribedTopic: TypeAlias = Group.DescribeShareGroupOffsetsResponseTopic
DescribedPartition: TypeAlias = DescribedTopic.DescribeShareGroupOffsetsResponsePartition
_NO_ID: Final = UUID(int=0)
_ANY_LEADER: Final = -1
_UNKNOWN_LAG: Final = -1


class _Asked(NamedTuple):
    """A topic that a request names, or that a group has, with its partitions."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[int]
    partition_count: int
    """The number of partitions that the topic has."""


async def describe_share_group_offsets(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Return the offsets of each group."""
    rights = rights_of(environment, context.client)
    answer = AnswerInTurns(DescribeShareGroupOffsetsResponse, context, environment.answers)
    groups = [await _described_group(environment, answer, rights, asked) async for asked in answer.over(request.groups)]
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _described_group(
    environment: HandlerEnvironment, answer: AnswerInTurns, rights: Rights, asked: RequestGroup
) -> Group:
    try:
        if not environment.groups.share.are_on:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if not rights.may(AclOperation.DESCRIBE, ResourceType.GROUP, asked.group_id):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        topics = await _asked(environment, answer, asked)
    except ApiError as error:
        refusal = Group(group_id=asked.group_id, error_code=error.code, error_message=error.message)
        return answer.encoded(("groups",), refusal)
    may = [rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, each.name) async for each in answer.along(topics)]
    seen = [each for each, is_allowed in zip(topics, may, strict=True) if is_allowed]
    answered = [await _described_topic(environment, answer, asked.group_id, each) async for each in answer.over(seen)]
    if asked.topics is not None:
        hidden = [each for each, is_allowed in zip(topics, may, strict=True) if not is_allowed]
        answered += await answer.elements(("groups", "topics"), hidden, _hidden)
    return answer.encoded(("groups",), Group(group_id=asked.group_id, topics=answered, error_message=None))


async def _asked(environment: HandlerEnvironment, answer: AnswerInTurns, asked: RequestGroup) -> list[_Asked]:
    """Return the topics of a request, or all topics where the group has share state. Raises ApiError."""
    image = environment.image
    if asked.topics is not None:
        return [_named(environment, each) async for each in answer.over(asked.topics)]
    group = environment.groups.share.group(asked.group_id)
    return [
        _Asked(each.name, topic_id, sorted(each.partitions), max(each.partitions, default=0) + 1)
        async for topic_id, each in answer.over(group.topics.initialized.items())
        if image.topic_name(topic_id) is not None
    ]


def _named(environment: HandlerEnvironment, asked: RequestTopic) -> _Asked:
    document = environment.image.topics.get(asked.topic_name)
    if document is None:
        return _Asked(asked.topic_name, None, asked.partitions, 0)
    return _Asked(asked.topic_name, document.topic_id, asked.partitions, len(document.partitions))


def _hidden(asked: _Asked) -> DescribedTopic:
    """Return the answer for a topic that the client may not describe."""
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [
        DescribedPartition(partition_index=number, error_code=error, error_message=None) for number in asked.partitions
    ]
    return DescribedTopic(topic_name=asked.name, topic_id=_NO_ID, partitions=partitions)


async def _described_topic(
    environment: HandlerEnvironment, answer: AnswerInTurns, group_id: str, asked: _Asked
) -> DescribedTopic:
    partitions = list[DescribedPartition]()
    for numbers in slices(asked.partitions, lambda _: 1, OUTCOMES, OUTCOMES):
        partitions += await _described_partitions(environment, answer, group_id, asked._replace(partitions=numbers))
    return answer.encoded(
        ("groups", "topics"),
        DescribedTopic(topic_name=asked.name, topic_id=asked.topic_id or _NO_ID, partitions=partitions),
    )


async def _described_partitions(
    environment: HandlerEnvironment, answer: AnswerInTurns, group_id: str, asked: _Asked
) -> list[DescribedPartition]:
    """Return the answers for a few partitions of a topic; those that it does not have are asked of nobody."""
    outcomes: Mapping[TopicIdPartition, ShareOutcome] = {}
    topic_id, ends = asked.topic_id, dict[TopicPartition, int]()
    if topic_id is not None:
        existing = range(asked.partition_count)
        entries = [
            ReadEntry(TopicIdPartition(topic_id, number), _ANY_LEADER)
            for number in asked.partitions
            if number in existing
        ]
        outcomes = await awaited(partial(environment.groups.share.read_summary, group_id, entries))
        known = [TopicPartition(asked.name, each.partition) for each, outcome in outcomes.items() if _has_lag(outcome)]
        ends = await _ends(environment, known, environment.groups.share.is_read_committed(group_id))

    def answered(number: int) -> DescribedPartition:
        outcome = None if topic_id is None else outcomes.get(TopicIdPartition(topic_id, number))
        return _described_partition(number, outcome, ends.get(TopicPartition(asked.name, number)))

    return await answer.elements(("groups", "topics", "partitions"), asked.partitions, answered)


async def _ends(
    environment: HandlerEnvironment, partitions: Sequence[TopicPartition], is_read_committed: bool
) -> dict[TopicPartition, int]:
    """Return the end offsets up to which a group reads; those of leaders that do not answer are missing."""
    ends = await environment.end_offsets.ask(partitions, is_read_committed=is_read_committed)
    limit = last_stable_offset if is_read_committed else attrgetter("high_watermark")
    for topic_partition in partitions:
        if topic_partition not in ends:
            with suppress(ApiError), environment.replicas.failures.using(*topic_partition) as partition:
                partition.check_readable(_ANY_LEADER)
                ends[topic_partition] = limit(partition.log)
    return ends


def _has_lag(outcome: ShareOutcome) -> bool:
    is_known = outcome.start_offset != UNKNOWN_OFFSET and outcome.delivery_complete_count != UNKNOWN_COUNT
    return outcome.error is ErrorCode.NONE and is_known


def _described_partition(number: int, outcome: ShareOutcome | None, end: int | None) -> DescribedPartition:
    """Return the answer for a partition; a group that never read it has neither a start offset nor a lag."""
    if outcome is None or outcome.error is not ErrorCode.NONE:
        return DescribedPartition(
            partition_index=number, start_offset=UNKNOWN_OFFSET, lag=_UNKNOWN_LAG, error_message=None
        )
    lag = _UNKNOWN_LAG
    if end is not None and _has_lag(outcome):
        lag = max(0, end - outcome.start_offset - outcome.delivery_complete_count)
    return DescribedPartition(
        partition_index=number,
        start_offset=outcome.start_offset,
        leader_epoch=outcome.leader_epoch,
        lag=lag,
        error_message=None,
    )


AskedTopic: TypeAlias = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
AskedPartition: TypeAlias = AskedTopic.AlterShareGroupOffsetsRequestPartition
AlteredTopic: TypeAlias = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
AlteredPartition: TypeAlias = AlteredTopic.AlterShareGroupOffsetsResponsePartition
Answered: TypeAlias = tuple[ErrorCode, Mapping[TopicPartition, ErrorCode]]


async def alter_share_group_offsets(
    environment: HandlerEnvironment, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Set the offsets; return an error code for the group, or one for each partition."""
    rights, shares = rights_of(environment, context.client), environment.groups.share
    if not shares.are_on:
        return _refused_alteration(ErrorCode.UNSUPPORTED_VERSION)
    if not rights.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _refused_alteration(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answer = AnswerInTurns(AlterShareGroupOffsetsResponse, context, environment.answers)
    refused, offsets = set[str](), dict[TopicPartition, int]()
    async for topic in answer.over(request.topics):
        if not rights.may(AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
            refused.add(topic.topic_name)
            continue
        async for each in answer.over(topic.partitions):
            offsets[TopicPartition(topic.topic_name, each.partition_index)] = each.start_offset
    answered: Answered = await awaited(
        lambda take: shares.alter_offsets(request.group_id, offsets, lambda *found: take(found))
    )
    error, errors = answered
    if error:
        return _refused_alteration(error)
    topics = [
        await _altered_topic(environment, answer, topic, errors, is_refused=topic.topic_name in refused)
        async for topic in answer.over(request.topics)
    ]
    return AlterShareGroupOffsetsResponse(error_message=None, responses=topics)


def _refused_alteration(error: ErrorCode) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=None)


async def _altered_topic(
    environment: HandlerEnvironment,
    answer: AnswerInTurns,
    topic: AskedTopic,
    errors: Mapping[TopicPartition, ErrorCode],
    *,
    is_refused: bool,
) -> AlteredTopic:
    name, document = topic.topic_name, environment.image.topics.get(topic.topic_name)

    def answered(each: AskedPartition) -> AlteredPartition:
        error = errors.get(TopicPartition(name, each.partition_index), ErrorCode.NONE)
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_refused else error
        return AlteredPartition(partition_index=each.partition_index, error_code=code, error_message=None)

    partitions = await answer.elements(("responses", "partitions"), topic.partitions, answered)
    topic_id = _NO_ID if document is None else document.topic_id
    return answer.encoded(("responses",), AlteredTopic(topic_name=name, topic_id=topic_id, partitions=partitions))


DeletedTopic: TypeAlias = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


@stepwise
def delete_share_group_offsets(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> InSteps[DeleteShareGroupOffsetsResponse | Awaitable[DeleteShareGroupOffsetsResponse]]:
    """Delete the state; return an error code for the group, or one for each topic."""
    rights = rights_of(environment, context.client)
    if not environment.groups.share.are_on:
        return _refused_deletion(ErrorCode.UNSUPPORTED_VERSION)
    if not rights.may(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        return _refused_deletion(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = [topic.topic_name for topic in request.topics]
    allowed = yield from in_steps(names, partial(rights.may, AclOperation.READ, ResourceType.TOPIC))
    asked = [name for name, is_allowed in zip(names, allowed, strict=True) if is_allowed]

    def answered(error: ErrorCode, errors: Mapping[str, ErrorCode]) -> DeleteShareGroupOffsetsResponse:
        if error:
            return _refused_deletion(error)
        topics = [
            _deleted_topic(environment, name, errors.get(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)) for name in names
        ]
        return DeleteShareGroupOffsetsResponse(error_message=None, responses=topics)

    delete = environment.groups.share.delete_offsets
    return answer_of(
        lambda answer: delete(request.group_id, asked, lambda error, errors: answer(answered(error, errors)))
    )


def _refused_deletion(error: ErrorCode) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=None)


def _deleted_topic(environment: HandlerEnvironment, name: str, error: ErrorCode) -> DeletedTopic:
    document = environment.image.topics.get(name)
    topic_id = _NO_ID if document is None else document.topic_id
    return DeletedTopic(topic_name=name, topic_id=topic_id, error_code=error, error_message=None)


async def share_group_state(environment: HandlerEnvironment, context: RequestContext, request: Any) -> Any:
    """Ask the share coordinator about each share-partition; as in Kafka, a group without a name has no results."""
    api = STATE_APIS[type(request).__name__.removesuffix("Request")]
    answer = AnswerInTurns(message_class(f"{api.name}Response"), context, environment.answers)
    ask = partial(_ask, api, environment.share_state, request.group_id)
    asked = []
    async for topic in answer.over(request.topics if request.group_id else ()):
        found = []
        async for each in answer.over(topic.partitions):
            written = each.state_batches if api is WRITE else ()
            batches = [state_batch(batch) async for batch in answer.over(written)]
            found.append((each.partition, ask(api.entry(topic.topic_id, each, batches))))
        asked.append((topic.topic_id, found))
    topics = []
    async for topic_id, found in answer.over(asked):
        results = [
            answer.encoded(
                ("results", "partitions"), api.result(number, await outcome if isawaitable(outcome) else outcome)
            )
            async for number, outcome in answer.over(found)
        ]
        topics.append((topic_id, results))
    return api.response(topics)


def _ask(
    api: StateApi, coordinator: ShareCoordinator, group_id: str, entry: Entry
) -> ShareOutcome | Awaitable[ShareOutcome]:
    return answer_of(lambda answer: api.ask(coordinator, group_id, entry, answer))

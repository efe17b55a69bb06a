"""DescribeShareGroupOffsets (90), v0 and v1: the start offsets of share groups by partition, and v1 also their lag.

The lag is the number of records that are not finished (KIP-1226): the end offset minus the start offset and minus the
records behind it that are finished. It is -1 where it is not known.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from barnabas_broker.coordinators.share_state.share_state import UNKNOWN_COUNT, UNKNOWN_OFFSET, ReadEntry, ShareOutcome
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.deferred_answer import awaited
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.replication.stable_offset import last_stable_offset
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import OUTCOMES, slices
from barnabas_core.topic_partition import TopicIdPartition, TopicPartition

RequestGroup: TypeAlias = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
RequestTopic: TypeAlias = RequestGroup.DescribeShareGroupOffsetsRequestTopic
Group: TypeAlias = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
Topic: TypeAlias = Group.DescribeShareGroupOffsetsResponseTopic
Partition: TypeAlias = Topic.DescribeShareGroupOffsetsResponsePartition
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


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Return the offsets of each group."""
    rights = rights_of(environment, context.client)
    answer = AnswerInTurns(DescribeShareGroupOffsetsResponse, context, environment.answers)
    groups = [await _group(environment, answer, rights, asked) async for asked in answer.over(request.groups)]
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _group(environment: HandlerEnvironment, answer: AnswerInTurns, rights: Rights, asked: RequestGroup) -> Group:
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
    answered = [await _topic(environment, answer, asked.group_id, each) async for each in answer.over(seen)]
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


def _hidden(asked: _Asked) -> Topic:
    """Return the answer for a topic that the client may not describe."""
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [
        Partition(partition_index=number, error_code=error, error_message=None) for number in asked.partitions
    ]
    return Topic(topic_name=asked.name, topic_id=_NO_ID, partitions=partitions)


async def _topic(environment: HandlerEnvironment, answer: AnswerInTurns, group_id: str, asked: _Asked) -> Topic:
    partitions = list[Partition]()
    for numbers in slices(asked.partitions, lambda _: 1, OUTCOMES, OUTCOMES):
        partitions += await _partitions(environment, answer, group_id, asked._replace(partitions=numbers))
    return answer.encoded(
        ("groups", "topics"), Topic(topic_name=asked.name, topic_id=asked.topic_id or _NO_ID, partitions=partitions)
    )


async def _partitions(
    environment: HandlerEnvironment, answer: AnswerInTurns, group_id: str, asked: _Asked
) -> list[Partition]:
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

    def answered(number: int) -> Partition:
        outcome = None if topic_id is None else outcomes.get(TopicIdPartition(topic_id, number))
        return _partition(number, outcome, ends.get(TopicPartition(asked.name, number)))

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


def _partition(number: int, outcome: ShareOutcome | None, end: int | None) -> Partition:
    """Return the answer for a partition; a group that never read it has neither a start offset nor a lag."""
    if outcome is None or outcome.error is not ErrorCode.NONE:
        return Partition(partition_index=number, start_offset=UNKNOWN_OFFSET, lag=_UNKNOWN_LAG, error_message=None)
    lag = _UNKNOWN_LAG
    if end is not None and _has_lag(outcome):
        lag = max(0, end - outcome.start_offset - outcome.delivery_complete_count)
    return Partition(
        partition_index=number,
        start_offset=outcome.start_offset,
        leader_epoch=outcome.leader_epoch,
        lag=lag,
        error_message=None,
    )

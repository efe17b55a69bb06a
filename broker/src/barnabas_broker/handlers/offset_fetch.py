"""OffsetFetch (9), v1 to v10: how far groups have read; -1 where nothing is committed. Null topics mean all, from v2
on.

v8 asks for many groups (KIP-709), v9 brings member epochs, which classic groups have none of, v10 topic ids instead
of names. An offset that was committed for an earlier topic of the same name is not there. Nothing is ever unstable,
as there are no transactions.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.coordinators.groups.records import CommittedOffset
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import OffsetFetchRequest, OffsetFetchResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

FIRST_WITH_GROUP_ERROR: Final = 2
FIRST_WITH_GROUPS: Final = 8
FIRST_WITH_TOPIC_IDS: Final = 10
NO_ID: Final = UUID(int=0)
NOTHING: Final = CommittedOffset(-1)

Committed = Mapping[TopicPartition, CommittedOffset]
GroupRequest = OffsetFetchRequest.OffsetFetchRequestGroup
GroupResponse = OffsetFetchResponse.OffsetFetchResponseGroup


class _Wanted(NamedTuple):
    """A topic that is asked for; without a name: its id is not known here."""

    name: str | None
    partitions: list[int]
    topic_id: UUID = NO_ID


class _Partition(NamedTuple):
    number: int
    committed: CommittedOffset
    error: ErrorCode = ErrorCode.NONE


class _Topic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: list[_Partition]


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Offset, leader epoch and metadata of each partition."""
    if context.api_version >= FIRST_WITH_GROUPS:
        groups = [_group(environment, context, group) for group in request.groups]
        return OffsetFetchResponse(throttle_time_ms=0, groups=groups)
    wanted = None if request.topics is None else [_Wanted(t.name, t.partition_indexes) for t in request.topics]
    error = ErrorCode.NONE
    try:
        topics = _read(environment, request.group_id, wanted)
    except ApiError as refusal:
        error = refusal.code
        has_group_error = context.api_version >= FIRST_WITH_GROUP_ERROR
        topics = [] if has_group_error else [_refused(topic, error) for topic in wanted or ()]
    return OffsetFetchResponse(throttle_time_ms=0, error_code=error, topics=[_old_topic(topic) for topic in topics])


def _group(environment: HandlerEnvironment, context: RequestContext, group: GroupRequest) -> GroupResponse:
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    wanted = None if group.topics is None else [_wanted(environment, topic, by_id) for topic in group.topics]
    try:
        topics = _read(environment, group.group_id, wanted)
    except ApiError as refusal:
        return GroupResponse(group_id=group.group_id, error_code=refusal.code, topics=[])
    if by_id:
        topics = [topic for topic in topics if topic.topic_id != NO_ID]
    return GroupResponse(group_id=group.group_id, error_code=ErrorCode.NONE, topics=[_topic(topic) for topic in topics])


def _wanted(environment: HandlerEnvironment, topic: GroupRequest.OffsetFetchRequestTopics, by_id: bool) -> _Wanted:
    if by_id:
        return _Wanted(environment.image.topic_name(topic.topic_id), topic.partition_indexes, topic.topic_id)
    return _Wanted(topic.name, topic.partition_indexes)


def _read(environment: HandlerEnvironment, group_id: str, wanted: list[_Wanted] | None) -> list[_Topic]:
    """The topics that are asked for, in their order, or all that the group has committed. ApiError: no coordinator."""
    committed = environment.groups.committed(group_id)
    if wanted is None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in committed:
            by_topic.setdefault(topic, []).append(partition)
        wanted = [_Wanted(name, partitions) for name, partitions in by_topic.items()]
    return [_look_up(environment, committed, topic) for topic in wanted]


def _look_up(environment: HandlerEnvironment, committed: Committed, wanted: _Wanted) -> _Topic:
    name = wanted.name
    if name is None:
        return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_ID)
    document = environment.image.topics.get(name)
    topic_id = NO_ID if document is None else document.topic_id
    partitions = []
    for number in wanted.partitions:
        offset = committed.get(TopicPartition(name, number), NOTHING)
        is_of_another_topic = document is not None and offset.topic_id not in (None, topic_id)
        partitions.append(_Partition(number, NOTHING if is_of_another_topic else offset))
    return _Topic(name, topic_id, partitions)


def _refused(wanted: _Wanted, error: ErrorCode) -> _Topic:
    partitions = [_Partition(number, NOTHING, error) for number in wanted.partitions]
    return _Topic(wanted.name or "", wanted.topic_id, partitions)


def _topic(topic: _Topic) -> GroupResponse.OffsetFetchResponseTopics:
    response = GroupResponse.OffsetFetchResponseTopics
    return response(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            response.OffsetFetchResponsePartitions(
                partition_index=number,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=error,
            )
            for number, committed, error in topic.partitions
        ],
    )


def _old_topic(topic: _Topic) -> OffsetFetchResponse.OffsetFetchResponseTopic:
    response = OffsetFetchResponse.OffsetFetchResponseTopic
    return response(
        name=topic.name,
        partitions=[
            response.OffsetFetchResponsePartition(
                partition_index=number,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=error,
            )
            for number, committed, error in topic.partitions
        ],
    )

"""DescribeTopicPartitions (75), v0: pages of partitions, with their eligible leader replicas (KIP-966)."""

from bisect import bisect_left
from collections.abc import Collection, Iterator
from functools import partial
from itertools import groupby, islice
from typing import NamedTuple

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.metadata import why_missing
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_name import is_internal

TopicResponse = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionResponse = TopicResponse.DescribeTopicPartitionsResponsePartition


class Place(NamedTuple):
    """The position of a partition among all requested partitions, which are sorted by topic name and partition index.

    A page of partitions begins at a position. A missing topic has the position of its partition 0.
    """

    name: str
    partition: int


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Return one page of partitions, and a cursor if there are more.

    A page has at most response_partition_limit and at most max.request.partition.size.limit partitions.
    """
    cursor = request.cursor
    first = Place("", 0) if cursor is None else Place(cursor.topic_name, cursor.partition_index)
    rights = rights_of(environment, context.client)
    named = sorted({topic.name for topic in request.topics})
    answer = AnswerInTurns(DescribeTopicPartitionsResponse, context, environment.answers)
    refused = {
        name async for name in answer.over(named) if not rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    }
    asked = named or [name for name in sorted(environment.image.topics) if _sees(rights, name)]
    limit = max(1, min(request.response_partition_limit, environment.config.max_request_partition_size_limit))
    places = list(islice(_places(environment, asked, refused, first), limit + 1))
    by_topic = [(name, list(page)) for name, page in groupby(places[:limit], lambda each: each.name)]
    topics = [await _topic(environment, rights, answer, name, page) async for name, page in answer.over(by_topic)]
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=_cursor(places[limit:]))


def _cursor(rest: list[Place]) -> DescribeTopicPartitionsResponse.Cursor | None:
    if not rest:
        return None
    return DescribeTopicPartitionsResponse.Cursor(topic_name=rest[0].name, partition_index=rest[0].partition)


def _sees(rights: Rights, name: str) -> bool:
    return rights.may_see(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _places(
    environment: HandlerEnvironment, names: list[str], refused: Collection[str], first: Place
) -> Iterator[Place]:
    """Yield the topic name and index of each partition from `first` on, as a Place.

    For a topic that does not exist, or that the client may not describe, yield only partition 0.
    """
    for name in names[bisect_left(names, first.name) :]:
        document = None if name in refused else environment.image.topics.get(name)
        count = 1 if document is None else len(document.partitions)
        begin = max(0, first.partition) if name == first.name else 0
        yield from (Place(name, index) for index in range(begin, count))


async def _topic(
    environment: HandlerEnvironment, rights: Rights, answer: AnswerInTurns, name: str, page: list[Place]
) -> TopicResponse:
    if not _sees(rights, name):
        return answer.encoded(("topics",), TopicResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
    document = environment.image.topics.get(name)
    if document is None:
        return answer.encoded(("topics",), TopicResponse(error_code=why_missing(name), name=name))
    partitions = await answer.elements(
        ("topics", "partitions"),
        [each.partition for each in page if each.partition < len(document.partitions)],
        partial(_partition, environment, document),
    )
    response = TopicResponse(
        name=name,
        topic_id=document.topic_id,
        is_internal=is_internal(name),
        partitions=partitions,
        topic_authorized_operations=sum(1 << each for each in rights.operations(ResourceType.TOPIC, name)),
    )
    return answer.encoded(("topics",), response)


def _partition(environment: HandlerEnvironment, document: TopicDocument, index: int) -> PartitionResponse:
    state: PartitionState = document.partitions[index]
    live = environment.image.live
    return PartitionResponse(
        error_code=ErrorCode.NONE if state.leader in live else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if state.leader in live else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=[] if state.last_known_leader == NO_LEADER else [state.last_known_leader],
        offline_replicas=[replica for replica in state.replicas if replica not in live],
    )

"""The requests for the brokers, topics and partitions of the cluster.

Metadata (3), v0 to v13: the brokers, topics, and partition leaders of the whole cluster. In v0 an empty list of
topics means all topics; from v1 on null means all, and an empty list none. v10 adds topic ids, and v12 requests by
topic id. A requested topic that does not exist is created if auto.create.topics.enable and the request allow it.
Encoded topics are cached (`large_responses`). Brokers that died a moment ago are still listed (`DepartedBrokers`).

DescribeTopicPartitions (75), v0: pages of partitions, with their eligible leader replicas (KIP-966).
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby, islice
from typing import Final, TypeVar, cast

import msgspec

from barnabas_broker.handlers.channel import AnswerInTurns, RequestContext, cluster_operations, rights_of, stepwise
from barnabas_broker.handlers.guard import with_refused
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import NOT_ASKED, EncodedTopic, Form, TopicResponse, is_as
from barnabas_broker.handlers.topics import NO_ID, MutationCharge, created_partitions
from barnabas_broker.metadata.controller.decisions.create_topics import automatic_topic
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.wire.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import ENCODED_PARTITIONS, InSteps, at_once, in_steps
from barnabas_core.topic_partition import SHARE_GROUP_STATE, TRANSACTION_STATE, check_topic_name, is_internal

Wanted = MetadataRequest.MetadataRequestTopic


def narrow(environment: HandlerEnvironment, rights: Rights, request: MetadataRequest) -> InSteps[list[TopicResponse]]:
    """Remove from the request the topics that the client may not describe or create; return an error for each of them.

    If the request asks for all topics, change it to ask for the topics that the client may describe; return no errors.
    """
    if request.topics is None:
        names = [
            name for name in environment.image.topics if rights.may_see(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
        request.topics = [Wanted(name=name) for name in names]
        request.allow_auto_topic_creation = False
        return []
    creates = environment.config.auto_create_topics_enable and request.allow_auto_topic_creation

    def refusal(wanted: Wanted) -> TopicResponse | None:
        may = _may_describe(environment, rights, wanted) and (not creates or _may_create(environment, rights, wanted))
        return None if may else _refusal(wanted)

    refusals = yield from in_steps(request.topics, refusal)
    request.topics = [wanted for wanted, refused in zip(request.topics, refusals, strict=True) if refused is None]
    return [each for each in refusals if each is not None]


def _may_describe(environment: HandlerEnvironment, rights: Rights, wanted: Wanted) -> bool:
    """True if the client may describe the topic. An unknown topic id passes, and gets UNKNOWN_TOPIC_ID later."""
    name = environment.image.topic_name(wanted.topic_id) if wanted.name is None else wanted.name
    return name is None or rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _may_create(environment: HandlerEnvironment, rights: Rights, wanted: Wanted) -> bool:
    """True if the topic exists, or the client may create it."""
    if wanted.name is None or wanted.name in environment.image.topics:
        return True
    return rights.may_see(AclOperation.CREATE, ResourceType.CLUSTER) or rights.may(
        AclOperation.CREATE, ResourceType.TOPIC, wanted.name
    )


def _refusal(wanted: Wanted) -> TopicResponse:
    """Return an authorization error, which does not reveal whether the topic exists."""
    topic_id = wanted.topic_id if wanted.name is None else NO_ID
    return TopicResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=wanted.name, topic_id=topic_id)


FIRST_VERSION_BY_ID: Final = 12
CREATED_MAX: Final = 1_000
"""The maximum number of topics that one request creates."""

T = TypeVar("T")


@stepwise
def metadata(
    environment: HandlerEnvironment, context: RequestContext, request: MetadataRequest
) -> InSteps[MetadataResponse | Awaitable[MetadataResponse]]:
    """Describe the cluster from this broker's image.

    The response is an awaitable if topics must be created first, or if many partitions must be encoded.
    """
    if context.api_version == 0 and not request.topics:
        request.topics = None
    rights = rights_of(environment, context.client)
    if rights.is_super:
        return (yield from _visible(environment, context, request))
    refused = yield from narrow(environment, rights, request)
    return with_refused((yield from _visible(environment, context, request)), "topics", refused)


def _visible(
    environment: HandlerEnvironment, context: RequestContext, request: MetadataRequest
) -> InSteps[MetadataResponse | Awaitable[MetadataResponse]]:
    missing = yield from _to_create(environment, request)
    if missing:
        return _create_and_answer(environment, context, request, missing)
    form_of = _forms(environment, context, request)

    def new_partitions(document: TopicDocument) -> int:
        is_kept = environment.encoded_topics.find(document, form_of(document.name)) is not None
        return 0 if is_kept else len(document.partitions)

    documents = yield from _documents(environment, request)
    if sum((yield from in_steps(documents, new_partitions))) > ENCODED_PARTITIONS:
        return _encode_and_answer(environment, context, request, {})
    return (yield from _metadata_response(environment, context, request, {}, {}))


def _forms(environment: HandlerEnvironment, context: RequestContext, request: MetadataRequest) -> Callable[[str], Form]:
    """Return a function that takes a topic name, and returns the values on which the topic's encoding depends."""
    version, live = context.api_version, environment.image.live
    if not request.include_topic_authorized_operations:
        form = Form(version, NOT_ASKED, live)
        return lambda _: form
    rights = rights_of(environment, context.client)
    return lambda name: Form(version, frozenset(rights.operations(ResourceType.TOPIC, name)), live)


def _documents(environment: HandlerEnvironment, request: MetadataRequest) -> InSteps[list[TopicDocument]]:
    """Return the requested topics that exist."""
    image = environment.image

    def find(wanted: MetadataRequest.MetadataRequestTopic) -> TopicDocument | None:
        name = image.topic_name(wanted.topic_id) if wanted.name is None else wanted.name
        return None if name is None else image.topics.get(name)

    if request.topics is None:
        return list(image.topics.values())
    return [each for each in (yield from in_steps(request.topics, find)) if each is not None]


async def _encode_and_answer(
    environment: HandlerEnvironment, context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]
) -> MetadataResponse:
    def lookup(name: str) -> tuple[TopicDocument, Form] | None:
        document = environment.image.topics.get(name)
        return None if document is None else (document, _forms(environment, context, request)(name))

    documents = await _run(context, _documents(environment, request))
    turn = environment.metadata_answers.turn(context.is_gone)
    prepared = await environment.encoded_topics.prepare([each.name for each in documents], lookup, turn)
    return await _run(context, _metadata_response(environment, context, request, errors, prepared))


async def _run(context: RequestContext, steps: InSteps[T]) -> T:
    """Take the steps in the turns of a large request; take those of a small one at once, even if its answer is large.

    Then all topics of the answer are those of one turn.
    """
    return at_once(steps) if context.turn is None else await context.turn.run(steps)


def _to_create(environment: HandlerEnvironment, request: MetadataRequest) -> InSteps[list[str]]:
    """Return the topics to create, at most CREATED_MAX; a client asks again for those that are still unknown."""
    if not environment.config.auto_create_topics_enable or not request.allow_auto_topic_creation:
        return []

    def name_of(wanted: MetadataRequest.MetadataRequestTopic) -> str | None:
        # Metadata creates no topic of a coordinator that needs a cleanup policy and partitions of its own.
        name = wanted.name
        if not name or name in (TRANSACTION_STATE, SHARE_GROUP_STATE) or name in environment.image.topics:
            return None
        return name if _can_be_created(name) else None

    names = yield from in_steps(request.topics or (), name_of)
    return list(islice(filter(None, names), CREATED_MAX))


def _can_be_created(name: str) -> bool:
    try:
        check_topic_name(name)
    except ApiError:
        return False
    return True


async def _create_and_answer(
    environment: HandlerEnvironment, context: RequestContext, request: MetadataRequest, names: list[str]
) -> MetadataResponse:
    """Create topics within the client's quota; as in Kafka, others are unknown until the client asks again."""
    topics = {name: automatic_topic(name, environment.config) for name in names}
    costs = {name: created_partitions(environment, topic) for name, topic in topics.items()}
    charge = MutationCharge(environment, context, costs, is_free=False)
    errors = await environment.metadata_writer.create_automatically(at_once(charge.charge()))
    at_once(charge.give_back(errors))
    return await _encode_and_answer(environment, context, request, errors)


def _metadata_response(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: MetadataRequest,
    errors: dict[str, ErrorCode],
    prepared: Mapping[str, EncodedTopic],
) -> InSteps[MetadataResponse]:
    """Make the response; `prepared` holds the topics that were encoded in earlier turns of the event loop.

    Changed topics are encoded again, up to ENCODED_PARTITIONS partitions; further topics keep the older encoding.
    """
    image, wants_operations = environment.image, request.include_cluster_authorized_operations
    form_of = _forms(environment, context, request)
    encoded_max = ENCODED_PARTITIONS

    def response_of(document: TopicDocument) -> TopicResponse:
        nonlocal encoded_max
        form = form_of(document.name)
        found = environment.encoded_topics.find(document, form) or prepared.get(document.name)
        if found is None or not is_as(found, document, form):
            is_this_topic = found is not None and found.document.topic_id == document.topic_id
            if found is None or not is_this_topic or len(document.partitions) <= encoded_max:
                encoded_max -= len(document.partitions)
                found = environment.encoded_topics.encode(document, form)
        return cast("TopicResponse", found.encoded)

    if request.topics is None:
        topics = yield from in_steps(list(image.topics.values()), response_of)
    else:
        named = context.api_version < FIRST_VERSION_BY_ID
        requested = partial(_requested, environment, response_of, errors, named)
        topics = yield from in_steps(_each_once(request), requested)
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node.broker_id, host=address.host, port=address.port, rack=node.rack
            )
            for node, address in environment.nodes(context.client.listener_name, with_departed=True)
        ],
        cluster_id=image.cluster_id,
        controller_id=environment.controller_id,
        topics=topics,
        authorized_operations=cluster_operations(environment, context.client) if wants_operations else set(NOT_ASKED),
    )


def _each_once(request: MetadataRequest) -> Iterable[MetadataRequest.MetadataRequestTopic]:
    """Return the requested topics without duplicates, as Kafka does, so that small requests have small responses."""
    return {each.topic_id if each.name is None else each.name: each for each in request.topics or ()}.values()


def _requested(
    environment: HandlerEnvironment,
    response_of: Callable[[TopicDocument], TopicResponse],
    errors: dict[str, ErrorCode],
    named: bool,
    wanted: MetadataRequest.MetadataRequestTopic,
) -> TopicResponse:
    image = environment.image
    by_id = wanted.name is None
    if named and by_id:
        return TopicResponse(error_code=ErrorCode.INVALID_REQUEST, name="")
    name = image.topic_name(wanted.topic_id) if by_id else wanted.name
    document = image.topics.get(name) if name is not None else None
    if document is not None:
        return response_of(document)
    error = errors.get(wanted.name or "", why_missing(wanted.name))
    return TopicResponse(error_code=error, name=wanted.name, topic_id=wanted.topic_id if by_id else NO_ID)


def why_missing(name: str | None) -> ErrorCode:
    """Return the error for a topic that does not exist; `name` is None if the topic was requested by topic id."""
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _can_be_created(name) else ErrorCode.INVALID_TOPIC_EXCEPTION


DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
DescribedPartition = DescribedTopic.DescribeTopicPartitionsResponsePartition


class Place(msgspec.Struct, frozen=True):
    """The position of a partition among all requested partitions, which are sorted by topic name and partition index.

    A page of partitions begins at a position. A missing topic has the position of its partition 0.
    """

    name: str
    partition: int


async def describe_topic_partitions(
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
    topics = [
        await _described_topic(environment, rights, answer, name, page) async for name, page in answer.over(by_topic)
    ]
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


async def _described_topic(
    environment: HandlerEnvironment, rights: Rights, answer: AnswerInTurns, name: str, page: list[Place]
) -> DescribedTopic:
    if not _sees(rights, name):
        return answer.encoded(("topics",), DescribedTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
    document = environment.image.topics.get(name)
    if document is None:
        return answer.encoded(("topics",), DescribedTopic(error_code=why_missing(name), name=name))
    partitions = await answer.elements(
        ("topics", "partitions"),
        [each.partition for each in page if each.partition < len(document.partitions)],
        partial(_described_partition, environment, document),
    )
    response = DescribedTopic(
        name=name,
        topic_id=document.topic_id,
        is_internal=is_internal(name),
        partitions=partitions,
        topic_authorized_operations=sum(1 << each for each in rights.operations(ResourceType.TOPIC, name)),
    )
    return answer.encoded(("topics",), response)


def _described_partition(environment: HandlerEnvironment, document: TopicDocument, index: int) -> DescribedPartition:
    state: PartitionState = document.partitions[index]
    live = environment.image.live
    return DescribedPartition(
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

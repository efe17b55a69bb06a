"""Metadata (3), v0 to v13: brokers, topics, partitions with their leaders. Any broker answers for the whole cluster.

v0: an empty list of topics means all; from v1 on null does, and empty means none. v10 brings topic ids, which a request
may give instead of names from v12 on. Where auto.create.topics.enable and the request allow it, a topic that is asked
for and is not there is created first, and the answer has it.
"""

from collections.abc import Awaitable
from typing import Final
from uuid import UUID

from barnabas_broker.handlers.exchange import Context
from barnabas_broker.handlers.services import Services
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.wire.messages import MetadataRequest, MetadataResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_name import check_topic_name, is_internal

NO_ID: Final = UUID(int=0)
FIRST_VERSION_BY_ID: Final = 12
TOPIC_OPERATIONS: Final = {3, 4, 5, 6, 7, 8, 10, 11}
"""Read, write, create, delete, alter, describe, describe and alter configs: without ACLs everybody may."""
CLUSTER_OPERATIONS: Final = {5, 7, 8, 9, 10, 11, 12}
NOT_ASKED: Final = {31}
"""Encodes as the smallest int32, the protocol's "not asked for"."""

TopicResponse = MetadataResponse.MetadataResponseTopic
PartitionResponse = TopicResponse.MetadataResponsePartition


def handle(
    services: Services, context: Context, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """The cluster as this broker's image has it; later, when topics must be created first."""
    missing = _to_create(services, context, request)
    if missing:
        return _create_and_answer(services, context, request, missing)
    return _answer(services, context, request, {})


def _wants_all(context: Context, request: MetadataRequest) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _to_create(services: Services, context: Context, request: MetadataRequest) -> list[str]:
    if not services.config.auto_create_topics_enable or not request.allow_auto_topic_creation:
        return []
    names = [topic.name for topic in request.topics or () if topic.name]
    return [name for name in names if name not in services.image.topics and _can_be_created(name)]


def _can_be_created(name: str) -> bool:
    try:
        check_topic_name(name)
    except ApiError:
        return False
    return True


async def _create_and_answer(
    services: Services, context: Context, request: MetadataRequest, names: list[str]
) -> MetadataResponse:
    errors = await services.controller.create_automatically(names)
    return _answer(services, context, request, errors)


def _answer(
    services: Services, context: Context, request: MetadataRequest, errors: dict[str, ErrorCode]
) -> MetadataResponse:
    image = services.image
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if _wants_all(context, request):
        topics = [_topic(services, document, operations) for document in image.topics.values()]
    else:
        named = context.api_version < FIRST_VERSION_BY_ID
        topics = [_requested(services, wanted, operations, errors, named) for wanted in request.topics or ()]
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node.broker_id, host=address.host, port=address.port, rack=node.rack
            )
            for node, address in services.nodes(context.listener_name)
        ],
        cluster_id=image.cluster_id,
        controller_id=services.controller_id,
        topics=topics,
        authorized_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED,
        error_code=ErrorCode.NONE,
    )


def _requested(
    services: Services,
    wanted: MetadataRequest.MetadataRequestTopic,
    operations: set[int],
    errors: dict[str, ErrorCode],
    named: bool,
) -> TopicResponse:
    image = services.image
    by_id = wanted.name is None
    if named and by_id:
        return TopicResponse(error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=NO_ID, partitions=[])
    name = image.topic_name(wanted.topic_id) if by_id else wanted.name
    document = image.topics.get(name) if name is not None else None
    if document is not None:
        return _topic(services, document, operations)
    error = errors.get(wanted.name or "", why_missing(wanted.name))
    topic_id = wanted.topic_id if by_id else NO_ID
    return TopicResponse(
        error_code=error,
        name=wanted.name,
        topic_id=topic_id,
        is_internal=False,
        partitions=[],
        authorized_operations=NOT_ASKED,
    )


def why_missing(name: str | None) -> ErrorCode:
    """The error for a topic that is not there; None is one that was named by its id."""
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if _can_be_created(name) else ErrorCode.INVALID_TOPIC_EXCEPTION


def _topic(services: Services, document: TopicDocument, operations: set[int]) -> TopicResponse:
    return TopicResponse(
        error_code=ErrorCode.NONE,
        name=document.name,
        topic_id=document.topic_id,
        is_internal=is_internal(document.name),
        partitions=[_partition(services, index, state) for index, state in enumerate(document.partitions)],
        authorized_operations=operations,
    )


def _partition(services: Services, index: int, state: PartitionState) -> PartitionResponse:
    live = services.image.live
    return PartitionResponse(
        error_code=ErrorCode.NONE if state.leader in live else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if state.leader in live else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[replica for replica in state.replicas if replica not in live],
    )

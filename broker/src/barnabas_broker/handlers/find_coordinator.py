"""FindCoordinator (10), v0 to v6: the broker that coordinates a group. From v4 on a request asks for many (KIP-699).

The first request for a group makes `__consumer_offsets`. Transactional ids have no coordinator here: their refusal is
the one error that makes every client give up at once instead of asking for ever, and the message says why.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.java_hash import coordinator_partition
from barnabas_core.topic_name import CONSUMER_OFFSETS

GROUP: Final = 0
TRANSACTION: Final = 1
FIRST_BATCHED_VERSION: Final = 4
NO_NODE: Final = -1

Nodes = Mapping[int, Endpoint]


class _Found(NamedTuple):
    key: str
    node_id: int
    host: str
    port: int
    error: ApiError | None = None


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """The coordinator of each key; the topic is created first where it must be. Many keys take several turns."""
    if request.key_type == GROUP and CONSUMER_OFFSETS not in environment.image.topics:
        await environment.metadata_writer.create_automatically([CONSUMER_OFFSETS])
    nodes = {
        registration.broker_id: endpoint for registration, endpoint in environment.nodes(context.client.listener_name)
    }
    if context.api_version < FIRST_BATCHED_VERSION:
        found = _find(environment, request.key_type, nodes, request.key)
        return FindCoordinatorResponse(
            throttle_time_ms=0,
            error_code=found.error.code if found.error else ErrorCode.NONE,
            error_message=found.error.message if found.error else None,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    answer = AnswerInTurns(FindCoordinatorResponse, context, environment.answers)
    find = partial(_find, environment, request.key_type, nodes)
    coordinators = await answer.elements(
        ("coordinators",), request.coordinator_keys, lambda key: _coordinator(find(key))
    )
    return FindCoordinatorResponse(throttle_time_ms=0, coordinators=coordinators)


def _coordinator(found: _Found) -> FindCoordinatorResponse.Coordinator:
    return FindCoordinatorResponse.Coordinator(
        key=found.key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=found.error.code if found.error else ErrorCode.NONE,
        error_message=found.error.message if found.error else None,
    )


def _find(environment: HandlerEnvironment, key_type: int, nodes: Nodes, key: str) -> _Found:
    try:
        leader = _group_coordinator(environment, key_type, key)
        if leader not in nodes:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator of {key}, broker {leader}, is away")
    except ApiError as error:
        return _Found(key, NO_NODE, "", NO_NODE, error)
    return _Found(key, leader, nodes[leader].host, nodes[leader].port)


def _group_coordinator(environment: HandlerEnvironment, key_type: int, key: str) -> int:
    if key_type == TRANSACTION:
        message = "this broker does not support transactions; use the idempotent producer without transactional.id"
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
    if key_type != GROUP:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {key_type}; 0 (group) is supported")
    topic = environment.image.topics.get(CONSUMER_OFFSETS)
    if topic is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS} cannot be created yet")
    return topic.partitions[coordinator_partition(key, len(topic.partitions))].leader

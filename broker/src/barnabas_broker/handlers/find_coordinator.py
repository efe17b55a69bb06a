"""FindCoordinator (10), v0 to v6: the broker that coordinates a group, a transactional id or a share-partition.

From v4 on a request may have many keys (KIP-699), and from v6 on keys of share-partitions, which only brokers ask for.
The first request creates the topic `__consumer_offsets`, `__transaction_state` or `__share_group_state`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from barnabas_broker.coordinators.share_state.share_state import parse_key
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import error_fields
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.internal_topics import NOT_COMPACTED, is_compacted
from barnabas_broker.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.java_hash import coordinator_partition
from barnabas_core.topic_name import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

_TOPICS: Final[Mapping[int, str]] = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE, 2: SHARE_GROUP_STATE}
"""The internal topic of the coordinators for each key type: a group id, a transactional id, and a share-partition."""
FIRST_BATCHED_VERSION: Final = 4
_FIRST_SHARE_VERSION: Final = 6
NO_NODE: Final = -1

Nodes = Mapping[int, Endpoint]
Coordinator = FindCoordinatorResponse.Coordinator


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Return the coordinator of each key; create the topic of the coordinators if necessary."""
    topic = _TOPICS.get(request.key_type)
    if topic == SHARE_GROUP_STATE and context.api_version < _FIRST_SHARE_VERSION:
        topic = None
    asks = context.api_version < FIRST_BATCHED_VERSION or bool(request.coordinator_keys)
    if asks and topic is not None and topic not in environment.image.topics:
        await environment.metadata_writer.create_automatically([topic])
    nodes = {
        registration.broker_id: endpoint for registration, endpoint in environment.nodes(context.client.listener_name)
    }
    if context.api_version < FIRST_BATCHED_VERSION:
        found = _find(environment, topic, nodes, request.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    answer = AnswerInTurns(FindCoordinatorResponse, context, environment.answers)
    find = partial(_find, environment, topic, nodes)
    coordinators = await answer.elements(("coordinators",), request.coordinator_keys, find)
    return FindCoordinatorResponse(coordinators=coordinators)


def _find(environment: HandlerEnvironment, topic: str | None, nodes: Nodes, key: str) -> Coordinator:
    try:
        leader = _coordinator_of(environment, topic, key)
        if leader not in nodes:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator of {key}, broker {leader}, is not alive"
            )
    except ApiError as error:
        return Coordinator(key=key, node_id=NO_NODE, port=NO_NODE, **error_fields(error))
    node = nodes[leader]
    return Coordinator(key=key, node_id=leader, host=node.host, port=node.port, error_message=None)


def _coordinator_of(environment: HandlerEnvironment, name: str | None, key: str) -> int:
    if name is None:
        message = "the key type must be 0 (group), 1 (transactional id), or from v6 on 2 (share-partition)"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if name == SHARE_GROUP_STATE:
        key = _share_partition(key)
    topic = environment.image.topics.get(name)
    if topic is None:
        raise ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic {name} does not exist, and cannot be created yet"
        )
    if name == TRANSACTION_STATE and not is_compacted(topic.configs):
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_COMPACTED)
    return topic.partitions[coordinator_partition(key, len(topic.partitions))].leader


def _share_partition(key: str) -> str:
    try:
        return parse_key(key).name
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None

"""The requests about the cluster: its brokers, its controller, its coordinators, its features and its quotas.

DescribeCluster (60), v0 to v2: the cluster id, the controller and the brokers. A v1 request has an endpoint type;
only brokers are allowed, because controllers have no addresses of their own. A v2 request may include fenced brokers
(KIP-1073).

DescribeQuorum (55), v0 to v2: the controller as the leader and only voter, and the other live brokers as observers.
There is no Raft quorum: the metadata is in a store, and the controller is the broker that holds a lease. Offsets are
revisions of the store. The offsets of observers are not reported (docs/decisions/replication.md).

FindCoordinator (10), v0 to v6: the broker that coordinates a group, a transactional id or a share-partition. From v4
on a request may have many keys (KIP-699), and from v6 on keys of share-partitions, which only brokers ask for. The
first request creates the topic `__consumer_offsets`, `__transaction_state` or `__share_group_state`.

UnregisterBroker (64), v0: removes from the metadata a broker that will not come back (KIP-500). The removal of a
broker that is alive or has replicas is refused with INVALID_REQUEST. Kafka removes even a broker that has replicas,
and then some partitions have a replica on an unknown broker.

UpdateFeatures (57), v0 to v2: changes feature levels of the cluster, all or none (KIP-584). v0 allows or forbids a
downgrade; from v1 on the request has an upgrade type. Up to v1 each feature has a result of its own.

DescribeClientQuotas (48), v0 to v1: the quotas of the entities that match a filter (KIP-546).

AlterClientQuotas (49), v0 to v1: sets and removes client quotas (KIP-546). If one change of an entity is invalid, no
quota of that entity changes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from barnabas_broker.coordinators.share_state.share_state import parse_key
from barnabas_broker.handlers.channel import (
    AnswerInTurns,
    RequestContext,
    cluster_operations,
    error_fields,
    rights_of,
    stepwise,
)
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import NOT_ASKED
from barnabas_broker.metadata.controller.decisions.cluster_settings import (
    ENTITY_TYPES,
    IP,
    FeatureUpdate,
    QuotaChange,
    QuotaEntity,
    UpgradeType,
    checked_entity,
    client_quotas,
    lowered,
)
from barnabas_broker.metadata.controller.decisions.create_topics import NOT_COMPACTED, is_compacted
from barnabas_broker.metadata.documents import NO_CONTROLLER
from barnabas_broker.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps
from barnabas_core.topic_partition import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, coordinator_partition

BROKER_ENDPOINTS: Final = 1


def describe_cluster(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the cluster; the error is UNSUPPORTED_ENDPOINT_TYPE for the endpoints of controllers (KIP-919)."""
    asked = request.include_cluster_authorized_operations
    if context.api_version >= 1 and request.endpoint_type != BROKER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type} is invalid; allowed is {BROKER_ENDPOINTS} (brokers)",
            cluster_id=environment.image.cluster_id,
        )
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=BROKER_ENDPOINTS,
        cluster_id=environment.image.cluster_id,
        controller_id=environment.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.broker_id, host=address.host, port=address.port, rack=node.rack, is_fenced=node.fenced
            )
            for node, address in environment.nodes(
                context.client.listener_name, with_fenced=request.include_fenced_brokers
            )
        ],
        authorized_operations=cluster_operations(environment, context.client) if asked else set(NOT_ASKED),
    )


METADATA_TOPIC: Final = "__cluster_metadata"
EPOCH_MAX: Final = 2**31 - 1
UNKNOWN: Final = -1
AskedQuorum = DescribeQuorumRequest.TopicData.PartitionData
QuorumTopic = DescribeQuorumResponse.TopicData
QuorumPartition = QuorumTopic.PartitionData
ReplicaState = QuorumPartition.ReplicaState
Node = DescribeQuorumResponse.Node


@stepwise
def describe_quorum(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeQuorumRequest
) -> InSteps[DescribeQuorumResponse]:
    """Describe partition 0 of `__cluster_metadata`; other partitions have the error UNKNOWN_TOPIC_OR_PARTITION."""
    topics = []
    for topic in request.topics:
        partitions = yield from in_steps(topic.partitions, partial(_quorum_partition, environment, topic.topic_name))
        topics.append(QuorumTopic(topic_name=topic.topic_name, partitions=partitions))
    return DescribeQuorumResponse(error_message=None, topics=topics, nodes=_nodes(environment, context))


def _quorum_partition(environment: HandlerEnvironment, topic: str, asked: AskedQuorum) -> QuorumPartition:
    number = asked.partition_index
    if (topic, number) != (METADATA_TOPIC, 0):
        message = f"{topic}-{number} has no quorum; only {METADATA_TOPIC}-0 has one"
        return QuorumPartition(
            partition_index=number,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=message,
            leader_id=NO_CONTROLLER,
        )
    image, controller = environment.image, environment.image.controller_id
    return QuorumPartition(
        partition_index=number,
        error_message=None,
        leader_id=controller,
        leader_epoch=image.controller_epoch & EPOCH_MAX,  # The controller epoch may exceed Kafka's 31 bits.
        high_watermark=image.revision,
        current_voters=[_leader(environment)] if controller != NO_CONTROLLER else [],
        observers=[
            ReplicaState(replica_id=broker_id, log_end_offset=UNKNOWN)
            for broker_id in image.live_brokers()
            if broker_id != controller
        ],
    )


def _leader(environment: HandlerEnvironment) -> ReplicaState:
    return ReplicaState(
        replica_id=environment.image.controller_id,
        log_end_offset=environment.image.revision,
        last_caught_up_timestamp=environment.clock.now_ms(),
    )


def _nodes(environment: HandlerEnvironment, context: RequestContext) -> list[Node]:
    """Return the controller's address on the listener of the client."""
    return [
        Node(
            node_id=node.broker_id,
            listeners=[Node.Listener(name=address.name, host=address.host, port=address.port)],
        )
        for node, address in environment.nodes(context.client.listener_name, with_fenced=True)
        if node.broker_id == environment.image.controller_id
    ]


_TOPICS: Final[Mapping[int, str]] = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE, 2: SHARE_GROUP_STATE}
"""The internal topic of the coordinators for each key type: a group id, a transactional id, and a share-partition."""
FIRST_WITH_SEVERAL_KEYS: Final = 4
_FIRST_SHARE_VERSION: Final = 6
NO_NODE: Final = -1

Nodes = Mapping[int, Endpoint]
Coordinator = FindCoordinatorResponse.Coordinator


async def find_coordinator(
    environment: HandlerEnvironment, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Return the coordinator of each key; create the topic of the coordinators if necessary."""
    topic = _TOPICS.get(request.key_type)
    if topic == SHARE_GROUP_STATE and context.api_version < _FIRST_SHARE_VERSION:
        topic = None
    asks = context.api_version < FIRST_WITH_SEVERAL_KEYS or bool(request.coordinator_keys)
    if asks and topic is not None and topic not in environment.image.topics:
        await environment.metadata_writer.create_automatically([topic])
    nodes = {
        registration.broker_id: endpoint for registration, endpoint in environment.nodes(context.client.listener_name)
    }
    if context.api_version < FIRST_WITH_SEVERAL_KEYS:
        found = _found_coordinator(environment, topic, nodes, request.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    answer = AnswerInTurns(FindCoordinatorResponse, context, environment.answers)
    find = partial(_found_coordinator, environment, topic, nodes)
    coordinators = await answer.elements(("coordinators",), request.coordinator_keys, find)
    return FindCoordinatorResponse(coordinators=coordinators)


def _found_coordinator(environment: HandlerEnvironment, topic: str | None, nodes: Nodes, key: str) -> Coordinator:
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


async def unregister_broker(
    environment: HandlerEnvironment, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Remove a broker from the metadata, or return the error."""
    error = None
    try:
        await environment.metadata_writer.unregister_broker(request.broker_id)
    except ApiError as refusal:
        error = refusal
    return UnregisterBrokerResponse(**error_fields(error))


FeatureResult = UpdateFeaturesResponse.UpdatableFeatureResult
KINDS: Final = {each.value: each for each in UpgradeType}


async def update_features(
    environment: HandlerEnvironment, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Change all feature levels, or none if there is an error; with validate_only, only check the changes."""
    answer = AnswerInTurns(UpdateFeaturesResponse, context, environment.answers)
    try:
        updates = [_update(context.api_version, each) async for each in answer.over(request.feature_updates)]
        lower = lowered(environment.image.features, updates)
        users = {feature: await environment.feature_users.find(feature) for feature in lower}
        await environment.metadata_writer.update_features(updates, users, validate_only=request.validate_only)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    results = [
        FeatureResult(feature=each.feature, error_message=None) async for each in answer.over(request.feature_updates)
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _update(version: int, update: Any) -> FeatureUpdate:
    kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    if version >= 1:
        if update.upgrade_type not in KINDS:
            message = (
                f"upgrade type {update.upgrade_type} of {update.feature} is unknown; allowed are {list(KINDS)} "
                "(upgrade, safe downgrade, unsafe downgrade)"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        kind = KINDS[update.upgrade_type]
    return FeatureUpdate(update.feature, update.max_version_level, kind)


EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2

DescribedEntry = DescribeClientQuotasResponse.EntryData


def describe_client_quotas(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return the entities that match the filter, with all their quotas."""
    try:
        _check_components(request.components)
    except ApiError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = [
        _described_entry(entity, quotas)
        for entity, quotas in client_quotas(environment.image).items()
        if _matches(entity, request.components, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _check_components(components: Sequence[Any]) -> None:
    types = [each.entity_type for each in components]
    for each in components:
        kind, match = each.entity_type, each.match
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"an entity type is empty; allowed are {', '.join(ENTITY_TYPES)}")
        if kind not in ENTITY_TYPES:
            message = f"entity type {kind!r} is unknown; allowed are {', '.join(ENTITY_TYPES)}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
        if types.count(kind) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"entity type {kind} is in the filter twice")
        if each.match_type not in (EXACT, DEFAULT, ANY):
            message = (
                f"match type {each.match_type} of {kind} is unknown; allowed are 0 (exact), 1 (default) and 2 (any)"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if (match is None) is (each.match_type == EXACT):
            message = (
                f"match {match!r} of {kind} is invalid for match type {each.match_type}; "
                "match type 0 (exact) needs a name, and the other match types need null"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if IP in types and len(types) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the entity type ip cannot be combined with user or client-id")


def _matches(entity: QuotaEntity, components: Sequence[Any], *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(components):
        return False
    return all(
        each.entity_type in names and (each.match_type == ANY or names[each.entity_type] == each.match)
        for each in components
    )


def _described_entry(entity: QuotaEntity, quotas: Any) -> DescribedEntry:
    return DescribedEntry(
        entity=[DescribedEntry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[DescribedEntry.ValueData(key=key, value=value) for key, value in quotas.items()],
    )


AlteredEntry = AlterClientQuotasResponse.EntryData


async def alter_client_quotas(
    environment: HandlerEnvironment, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change the quotas, or only check the changes with validate_only; return an error code for each entity."""
    answer = AnswerInTurns(AlterClientQuotasResponse, context, environment.answers)
    if not rights_of(environment, context.client).may(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER):
        refusal = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return AlterClientQuotasResponse(
            entries=[_altered_entry(each, refusal) async for each in answer.over(request.entries)]
        )
    checked = [_checked_entity(entry) async for entry in answer.over(request.entries)]
    times = Counter(each for each in checked if not isinstance(each, ApiError))
    changes = {
        entity: [QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops]
        async for entity, entry in answer.along(zip(checked, request.entries, strict=True))
        if not isinstance(entity, ApiError) and times[entity] == 1
    }
    failures = await environment.metadata_writer.alter_client_quotas(changes, validate_only=request.validate_only)
    twice = ApiError(ErrorCode.INVALID_REQUEST, "the entity is given twice in this request")
    results = []
    async for entity, entry in answer.along(zip(checked, request.entries, strict=True)):
        error = entity if isinstance(entity, ApiError) else failures.get(entity) if entity in changes else twice
        results.append(_altered_entry(entry, error))
    return AlterClientQuotasResponse(entries=results)


def _checked_entity(entry: Any) -> QuotaEntity | ApiError:
    try:
        return checked_entity([(each.entity_type, each.entity_name) for each in entry.entity])
    except ApiError as error:
        return error.with_traceback(None)  # A traceback would keep thousands of frames alive.


def _altered_entry(entry: Any, error: ApiError | None) -> AlteredEntry:
    return AlteredEntry(
        **error_fields(error),
        entity=[
            AlteredEntry.EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
        ],
    )

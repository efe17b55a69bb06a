"""The parts that ShareFetch and ShareAcknowledge share: checks in Kafka's order, acknowledgements, and leaders.

ShareAcknowledge (79), v1 and v2: a member accepts, releases, rejects or renews records that it has acquired. The
response is sent when all is stored. The epoch -1 also ends the share session. v2 renews locks (KIP-1222).
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from barnabas_broker.coordinators.share_delivery.sessions import FINAL_EPOCH, SessionKey
from barnabas_broker.coordinators.share_delivery.share_partition import RENEW, AcknowledgementBatch
from barnabas_broker.handlers.channel import RequestContext, rights_of
from barnabas_broker.handlers.handler_environment import LEADER_ERRORS, HandlerEnvironment, current_leader
from barnabas_broker.metadata.model import has_share_groups
from barnabas_broker.wire.framing import CurrentLeader
from barnabas_broker.wire.messages import ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_partition import TopicIdPartition

MEMBER_ID_CHARS_MAX: Final = 36
RENEWS_SINCE: Final = 2
CHECKED_BATCHES: Final = 500
"""The acknowledgements that are checked in one turn of the event loop, which takes about 1 ms."""

ShareRequest: TypeAlias = ShareFetchRequest | ShareAcknowledgeRequest


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of acknowledgements: None, or the error."""

    error: ApiError | None
    leader: CurrentLeader | None = None

    @property
    def code(self) -> int:
        """The error code; 0 for none."""
        return 0 if self.error is None else self.error.code

    @property
    def message(self) -> str | None:
        """The error message, if there is an error."""
        return None if self.error is None else str(self.error)


Acknowledgements = Mapping[TopicIdPartition, list[AcknowledgementBatch] | ApiError]
"""The acknowledgements of a request; an error stands for those that are malformed."""


def check_request(environment: HandlerEnvironment, context: RequestContext, request: ShareRequest) -> SessionKey:
    """Return the key of the session. Raises ApiError, in Kafka's order, if the whole request is refused."""
    if not has_share_groups(environment.image.features):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "share.version is 0, so the cluster has no share groups")
    group_id, member_id = request.group_id, request.member_id
    if group_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "group_id is null; the name of a share group is needed")
    if not rights_of(environment, context.client).may(AclOperation.READ, ResourceType.GROUP, group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not member_id or len(member_id) > MEMBER_ID_CHARS_MAX:
        allowed = f"1 to {MEMBER_ID_CHARS_MAX} characters are allowed"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"member_id has {len(member_id or '')} characters; {allowed}")
    return SessionKey(group_id, member_id)


async def acknowledgements_of(request: ShareRequest, version: int, turn: FairTurn) -> Acknowledgements:
    """Return the acknowledgements of a request, checked some in each turn."""
    is_renew = version >= RENEWS_SINCE and request.is_renew_ack
    highest = RENEW if version >= RENEWS_SINCE else RENEW - 1
    found: dict[TopicIdPartition, list[AcknowledgementBatch] | ApiError] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            await turn.give_way()
            if partition.acknowledgement_batches and topic.topic_id is not None:
                key = TopicIdPartition(topic.topic_id, partition.partition_index)
                found[key] = await _checked(partition.acknowledgement_batches, highest, turn, is_renew=is_renew)
    return found


async def _checked(
    batches: Iterable[Any], highest: int, turn: FairTurn, *, is_renew: bool
) -> list[AcknowledgementBatch] | ApiError:
    checked: list[AcknowledgementBatch] = []
    previous_last = -1
    for number, each in enumerate(batches):
        if number % CHECKED_BATCHES == CHECKED_BATCHES - 1:
            await turn.give_way()
        batch = AcknowledgementBatch(each.first_offset, each.last_offset, each.acknowledge_types)
        problem = _problem(batch, previous_last, highest, is_renew=is_renew)
        if problem:
            return ApiError(ErrorCode.INVALID_REQUEST, problem)
        previous_last = batch.last
        checked.append(batch)
    return checked


def _problem(batch: AcknowledgementBatch, previous_last: int, highest: int, *, is_renew: bool) -> str:
    """Return why an acknowledgement is malformed; "" if it is not."""
    first, last, types = batch
    if first > last:
        return f"the first offset {first} is above the last offset {last}"
    if first < previous_last:
        return f"the first offset {first} is below the last offset {previous_last} of the batch before"
    if not types:
        return f"the batch {first} to {last} has no acknowledgement types"
    if len(types) not in (1, last - first + 1):
        return f"the batch {first} to {last} has {len(types)} types; 1 or {last - first + 1} are allowed"
    if min(types) < 0 or max(types) > highest:
        return f"the batch {first} to {last} has a type from {min(types)} to {max(types)}; 0 to {highest} are allowed"
    if not is_renew and RENEW in types:
        return f"the batch {first} to {last} has the type {RENEW} (renew), but is_renew_ack is false"
    return ""


def check_topic(environment: HandlerEnvironment, context: RequestContext, key: TopicIdPartition) -> None:
    """Raise ApiError if the topic id is unknown, or if the client may not read the topic."""
    name = environment.image.topic_name(key.topic_id)
    if name is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {key.topic_id}")
    if not rights_of(environment, context.client).may(AclOperation.READ, ResourceType.TOPIC, name):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def acknowledge(
    environment: HandlerEnvironment,
    context: RequestContext,
    key: SessionKey,
    acknowledgements: Acknowledgements,
    turn: FairTurn,
) -> Mapping[TopicIdPartition, asyncio.Future[ApiError | None]]:
    """Begin all acknowledgements; the futures end when they are stored."""
    begun = {}
    for partition, batches in acknowledgements.items():
        await turn.give_way()
        begun[partition] = _begin(environment, context, key, partition, batches)
    return begun


def _begin(
    environment: HandlerEnvironment,
    context: RequestContext,
    key: SessionKey,
    partition: TopicIdPartition,
    batches: list[AcknowledgementBatch] | ApiError,
) -> asyncio.Future[ApiError | None]:
    ended: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
    delivery = environment.shares
    try:
        check_topic(environment, context, partition)
        if isinstance(batches, ApiError):
            raise batches
        _check_renewal(environment, key, batches)
        delivery.hosted(partition)
        led = delivery.find(key.group_id, partition)
        if led is None:
            message = f"group {key.group_id} has not fetched from this partition"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        led.acknowledge(key.member_id, batches, lambda error: None if ended.done() else ended.set_result(error))
    except ApiError as error:
        ended.set_result(error)
    return ended


def _check_renewal(environment: HandlerEnvironment, key: SessionKey, batches: Iterable[AcknowledgementBatch]) -> None:
    if environment.shares.config_of(key.group_id).may_renew:
        return
    if any(RENEW in each.types for each in batches):
        raise ApiError(
            ErrorCode.INVALID_RECORD_STATE, "share.renew.acknowledge.enable is false, so locks cannot be renewed"
        )


async def outcomes_of(
    environment: HandlerEnvironment,
    context: RequestContext,
    begun: Mapping[TopicIdPartition, asyncio.Future[ApiError | None]],
) -> Mapping[TopicIdPartition, Outcome]:
    """Wait until the acknowledgements are stored."""
    outcomes = {}
    for partition, ended in begun.items():
        error = await ended
        outcomes[partition] = Outcome(error, leader_for(environment, context, partition, error))
    return outcomes


def leader_for(
    environment: HandlerEnvironment, context: RequestContext, key: TopicIdPartition, error: ApiError | None
) -> CurrentLeader | None:
    """Return the leader that a client should ask instead (KIP-951); None if the error is another one."""
    if error is None or error.code not in LEADER_ERRORS:
        return None
    name = environment.image.topic_name(key.topic_id)
    return current_leader(environment.image, context.client.listener_name, name, None, key.partition)


def leader_id_and_epoch(leader: CurrentLeader | None, *, is_unknown: bool) -> Mapping[str, int]:
    """Return the fields of CurrentLeader: those of `leader`, -1 for an unknown one, 0 if the client needs none."""
    if leader is None:
        return {"leader_id": -1, "leader_epoch": -1} if is_unknown else {}
    return {"leader_id": leader.leader_id, "leader_epoch": leader.leader_epoch}


def leader_fields(response: Any, leaders: Mapping[Any, CurrentLeader | None]) -> list[Any]:
    """Return the NodeEndpoints of a response, one for each leader."""
    endpoints = dict.fromkeys(each.endpoint for each in leaders.values() if each is not None and each.endpoint)
    return [
        response.NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in endpoints
    ]


def by_topic(keys: Iterable[TopicIdPartition]) -> Mapping[Any, list[TopicIdPartition]]:
    """Return partitions by topic id."""
    found: dict[Any, list[TopicIdPartition]] = {}
    for key in keys:
        found.setdefault(key.topic_id, []).append(key)
    return found


TopicResponse: TypeAlias = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse


def share_acknowledge(
    environment: HandlerEnvironment, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Awaitable[ShareAcknowledgeResponse]:
    """Acknowledge records, and end the session if the epoch is -1."""
    try:
        key = check_request(environment, context, request)
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=str(error))
    return asyncio.ensure_future(_answer(environment, context, request, key))


async def _answer(
    environment: HandlerEnvironment, context: RequestContext, request: ShareAcknowledgeRequest, key: SessionKey
) -> ShareAcknowledgeResponse:
    sessions, epoch = environment.shares.sessions, request.share_session_epoch
    try:
        if not epoch:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "epoch 0 is not allowed; ShareFetch begins a session")
        session = sessions.resume(key, epoch)
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=str(error))
    turn = context.turn or FairTurn(environment.clock)
    acknowledgements = await acknowledgements_of(request, context.api_version, turn)
    begun = await acknowledge(environment, context, key, acknowledgements, turn)
    outcomes = await outcomes_of(environment, context, begun)
    if epoch == FINAL_EPOCH:
        sessions.close(session)
    return _response(outcomes, environment.shares.config_of(key.group_id).record_lock_duration_ms)


def _response(outcomes: Mapping[TopicIdPartition, Outcome], lock_ms: int) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            TopicResponse(topic_id=topic_id, partitions=[_partition(key, outcomes[key]) for key in keys])
            for topic_id, keys in by_topic(outcomes).items()
        ],
        node_endpoints=leader_fields(
            ShareAcknowledgeResponse, {key: outcome.leader for key, outcome in outcomes.items()}
        ),
    )


def _partition(key: TopicIdPartition, outcome: Outcome) -> TopicResponse.PartitionData:
    leader = outcome.leader
    return TopicResponse.PartitionData(
        partition_index=key.partition,
        error_code=outcome.code,
        error_message=outcome.message,
        current_leader=TopicResponse.PartitionData.LeaderIdAndEpoch(
            **leader_id_and_epoch(leader, is_unknown=outcome.code in LEADER_ERRORS)
        ),
    )

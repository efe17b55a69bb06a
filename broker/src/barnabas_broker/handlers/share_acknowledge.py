"""ShareAcknowledge (79), v1 and v2: a member accepts, releases, rejects or renews records that it has acquired.

The response is sent when all is stored. The epoch -1 also ends the share session. v2 renews locks (KIP-1222).
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeAlias

from barnabas_broker.coordinators.share_delivery.sessions import FINAL_EPOCH, SessionKey
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.partition_leaders import LEADER_ERRORS
from barnabas_broker.handlers.share_requests import (
    Outcome,
    acknowledge,
    acknowledgements_of,
    by_topic,
    check_request,
    leader_fields,
    leader_id_and_epoch,
    outcomes_of,
)
from barnabas_broker.wire.messages import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_partition import TopicIdPartition

TopicResponse: TypeAlias = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse


def handle(
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

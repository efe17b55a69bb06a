"""JoinGroup (11), v0 to v9: adds a member to a group, or keeps a member for the next generation.

The response is sent when the join phase ends. v0 has one timeout for session and rebalance. From v4 on a new member
gets its member id and joins again. v5 adds static members, v7 the protocol type and null protocol names, v8 a reason,
and v9 `skip_assignment` for a static leader that joins again (KIP-814).
"""

import logging
from collections.abc import Awaitable
from typing import Final

from barnabas_broker.coordinators.groups.messages import JoinReply, JoinRequest
from barnabas_broker.coordinators.modern.records import MemberProtocol
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import JoinGroupRequest, JoinGroupResponse
from barnabas_core.errors import ErrorCode

_logger = logging.getLogger(__name__)

METADATA_BYTES_MAX: Final = 2 * 1024 * 1024
"""The maximum size of a member's metadata in bytes, which the broker holds while the member is in the group.

It is enough for the names of 10,000 topics in three protocols. A group's record has to fit into a batch anyway.
"""
FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_WITH_KNOWN_MEMBER_ID: Final = 4
FIRST_WITH_NULL_PROTOCOL: Final = 7
FIRST_WITH_SKIP_ASSIGNMENT: Final = 9


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Join a group; return the generation and the members, or an error."""
    version = context.api_version
    metadata_bytes = sum([len(protocol.metadata) for protocol in request.protocols])
    if metadata_bytes > METADATA_BYTES_MAX:
        _logger.info(
            "group %s: refused a member with %d bytes of metadata; at most %d are allowed",
            request.group_id,
            metadata_bytes,
            METADATA_BYTES_MAX,
        )
        return JoinGroupResponse(error_code=ErrorCode.INVALID_REQUEST, member_id=request.member_id)
    join = _join_request(context, request)
    return answer_of(lambda respond: environment.groups.join(join, lambda reply: respond(_response(reply, version))))


def _join_request(context: RequestContext, request: JoinGroupRequest) -> JoinRequest:
    version = context.api_version
    has_rebalance_timeout = version >= FIRST_WITH_REBALANCE_TIMEOUT
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client.client_id or "",
        client_host=client_host(context),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        requires_known_member_id=version >= FIRST_WITH_KNOWN_MEMBER_ID,
        supports_skipping_assignment=version >= FIRST_WITH_SKIP_ASSIGNMENT,
        reason=request.reason,
    )


def client_host(context: RequestContext) -> str:
    """Return the client's address in the form of Kafka's group members: `/10.0.0.7`."""
    host = context.client.address.rpartition(":")[0]
    return "/" + host.strip("[]")


def _response(reply: JoinReply, version: int) -> JoinGroupResponse:
    protocol_name = reply.protocol_name
    if protocol_name is None and version < FIRST_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )

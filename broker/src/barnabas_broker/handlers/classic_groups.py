"""The requests of classic groups and their members, and those that describe, list and delete groups.

JoinGroup (11), v0 to v9: adds a member to a group, or keeps a member for the next generation. The response is sent
when the join phase ends. v0 has one timeout for session and rebalance. From v4 on a new member gets its member id and
joins again. v5 adds static members, v7 the protocol type and null protocol names, v8 a reason, and v9
`skip_assignment` for a static leader that joins again (KIP-814).

SyncGroup (14), v0 to v5: the group leader sends the assignments, and each member receives its own. The response is
sent when the assignments are in the log. v3 adds static members; from v5 on a member must send the protocol that it
expects (KIP-559).

Heartbeat (12), v0 to v4: keeps a member in its group; v3 adds static members.

LeaveGroup (13), v0 to v5: removes members from a group. From v3 on a request may remove several members, and static
members by instance id (KIP-345). Before v3 the member's error is the error of the response. v5 adds a reason.

DescribeGroups (15), v0 to v6: the state, protocol and members of groups. v3 adds authorized operations, and v4
instance ids. An unknown group has the state Dead, and from v6 on also the error GROUP_ID_NOT_FOUND (KIP-1043).

ListGroups (16), v0 to v5: the groups that this broker coordinates. v4 adds a filter by state, and v5 a filter by type
(KIP-518, KIP-848).

DeleteGroups (42), v0 to v3: deletes groups without members, and their offsets. The response is sent when the
deletions are in the log of `__consumer_offsets`.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from typing import Final

from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.messages import (
    JoinReply,
    JoinRequest,
    LeaveResult,
    Member,
    MemberIdentity,
    SyncReply,
    SyncRequest,
)
from barnabas_broker.coordinators.modern.group import ConsumerGroup
from barnabas_broker.coordinators.modern.records import MemberProtocol
from barnabas_broker.coordinators.share.share_heartbeat import ShareGroup
from barnabas_broker.handlers.channel import AnswerInTurns, RequestContext, answer_of, rights_of, stepwise
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import NOT_ASKED
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import LEAVING_MEMBERS, InSteps, in_steps

_logger = logging.getLogger(__name__)

METADATA_BYTES_MAX: Final = 2 * 1024 * 1024
"""The maximum size of a member's metadata in bytes, which the broker holds while the member is in the group.

It is enough for the names of 10,000 topics in three protocols. A group's record has to fit into a batch anyway.
"""
FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_WITH_KNOWN_MEMBER_ID: Final = 4
FIRST_WITH_NULL_PROTOCOL: Final = 7
FIRST_WITH_SKIP_ASSIGNMENT: Final = 9


def join_group(
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
    return answer_of(lambda answer: environment.groups.join(join, lambda reply: answer(_join_response(reply, version))))


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


def _join_response(reply: JoinReply, version: int) -> JoinGroupResponse:
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


SYNC_FIRST_WITH_PROTOCOL: Final = 5


def sync_group(
    environment: HandlerEnvironment, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Return the assignment of the member, or an error."""
    if context.api_version >= SYNC_FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return _sync_response(SyncReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    sync = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    return answer_of(lambda answer: environment.groups.sync(sync, lambda reply: answer(_sync_response(reply))))


def _sync_response(reply: SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


def heartbeat(environment: HandlerEnvironment, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend the session of a member; REBALANCE_IN_PROGRESS makes the member join again."""
    error = environment.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)


FIRST_WITH_SEVERAL_LEAVING: Final = 3


@stepwise
def leave_group(
    environment: HandlerEnvironment, context: RequestContext, request: LeaveGroupRequest
) -> InSteps[LeaveGroupResponse]:
    """Remove members, and return an error code for each.

    Very many members leave in several portions. If the coordinator moves in between, the response has its error, and
    the client asks the new coordinator again.
    """
    batched = context.api_version >= FIRST_WITH_SEVERAL_LEAVING
    identities = [MemberIdentity(request.member_id)]
    if batched:
        identities = yield from in_steps(request.members, _identity)
    results: list[LeaveResult] = []
    try:
        for begin in range(0, max(len(identities), 1), LEAVING_MEMBERS):
            results += environment.groups.leave(request.group_id, identities[begin : begin + LEAVING_MEMBERS])
            yield 0
    except ApiError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not batched:
        return LeaveGroupResponse(error_code=results[0].error)
    return LeaveGroupResponse(members=(yield from in_steps(results, _left_member)))


def _identity(member: LeaveGroupRequest.MemberIdentity) -> MemberIdentity:
    return MemberIdentity(member.member_id, member.group_instance_id, member.reason)


def _left_member(result: LeaveResult) -> LeaveGroupResponse.MemberResponse:
    return LeaveGroupResponse.MemberResponse(
        member_id=result.identity.member_id,
        group_instance_id=result.identity.instance_id,
        error_code=result.error,
    )


FIRST_WITH_NOT_FOUND: Final = 6

Described = DescribeGroupsResponse.DescribedGroup


async def describe_groups(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Return the description of each group."""
    rights = rights_of(environment, context.client) if request.include_authorized_operations else None
    answer = AnswerInTurns(DescribeGroupsResponse, context, environment.answers)
    describe = partial(_describe_group, environment, context, rights)
    groups = await answer.elements(("groups",), request.groups, describe)
    return DescribeGroupsResponse(groups=groups)


def _describe_group(
    environment: HandlerEnvironment, context: RequestContext, rights: Rights | None, group_id: str
) -> Described:
    operations = set(NOT_ASKED) if rights is None else rights.operations(ResourceType.GROUP, group_id)
    try:
        return _described(environment.groups.describe(group_id), operations)
    except ApiError as error:
        not_found = error.code is ErrorCode.GROUP_ID_NOT_FOUND
        is_error = not not_found or context.api_version >= FIRST_WITH_NOT_FOUND
        return Described(
            error_code=error.code if is_error else ErrorCode.NONE,
            error_message=error.message if is_error else None,
            group_id=group_id,
            group_state=GroupState.DEAD.value if not_found else "",
            protocol_type="",
            protocol_data="",
            authorized_operations=set(NOT_ASKED) if is_error else operations,
        )


def _described(group: Group, operations: set[int]) -> Described:
    """Describe a group; the protocol and the metadata are empty unless the group is stable.

    In a rebalance, the assignments are those of the last stable generation.
    """
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    return Described(
        error_message=None,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol_name or "",
        members=[_described_member(member, protocol_name) for member in group.members.values()],
        authorized_operations=operations,
    )


def _described_member(member: Member, protocol_name: str | None) -> Described.DescribedGroupMember:
    return Described.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol_name),
        member_assignment=member.assignment,
    )


async def list_groups(
    environment: HandlerEnvironment, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """List the groups that match the filters and that the client may see; an empty filter matches all groups."""
    try:
        groups = environment.groups.list_groups()
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    has_state, has_type = _filter(request.states_filter), _filter(request.types_filter)
    rights = rights_of(environment, context.client)
    sees_all = rights.may_see(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    passing = [
        group
        for group in groups
        if has_state(group.state.value)
        and has_type(group.group_type)
        and (sees_all or rights.may_see(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id))
    ]
    answer = AnswerInTurns(ListGroupsResponse, context, environment.answers)
    listed = await answer.elements(("groups",), passing, _listed)
    return ListGroupsResponse(groups=listed)


def _listed(group: Group | ConsumerGroup | ShareGroup) -> ListGroupsResponse.ListedGroup:
    return ListGroupsResponse.ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=group.group_type,
    )


def _filter(wanted: list[str] | None) -> Callable[[str], bool]:
    """Return a function that is true for the values in `wanted`, ignoring case, or for all if `wanted` is empty."""
    lowered = {value.lower() for value in wanted or ()}
    return lambda value: not lowered or value.lower() in lowered


DeletionResult = DeleteGroupsResponse.DeletableGroupResult


async def delete_groups(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete groups, and return an error code for each."""
    answer = AnswerInTurns(DeleteGroupsResponse, context, environment.answers)
    begun = [
        (group_id, _deletion(environment, group_id))
        async for group_id in answer.over(dict.fromkeys(request.groups_names))
    ]
    results = [
        DeletionResult(group_id=group_id, error_code=await error if isawaitable(error) else error)
        async for group_id, error in answer.over(begun)
    ]
    return DeleteGroupsResponse(results=results)


def _deletion(environment: HandlerEnvironment, group_id: str) -> ErrorCode | Awaitable[ErrorCode]:
    return answer_of(partial(environment.groups.delete_group, group_id))

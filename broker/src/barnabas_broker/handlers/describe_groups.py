"""DescribeGroups (15), v0 to v6: the state, protocol and members of groups.

v3 adds authorized operations, and v4 instance ids. An unknown group has the state Dead, and from v6 on also the error
GROUP_ID_NOT_FOUND (KIP-1043).
"""

from functools import partial
from typing import Final

from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.messages import Member
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.encoded_topics import NOT_ASKED
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_core.acls import ResourceType
from barnabas_core.errors import ApiError, ErrorCode

FIRST_WITH_NOT_FOUND: Final = 6

Described = DescribeGroupsResponse.DescribedGroup


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Return the description of each group."""
    rights = rights_of(environment, context.client) if request.include_authorized_operations else None
    answer = AnswerInTurns(DescribeGroupsResponse, context, environment.answers)
    describe = partial(_describe, environment, context, rights)
    groups = await answer.elements(("groups",), request.groups, describe)
    return DescribeGroupsResponse(groups=groups)


def _describe(
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
        members=[_member(member, protocol_name) for member in group.members.values()],
        authorized_operations=operations,
    )


def _member(member: Member, protocol_name: str | None) -> Described.DescribedGroupMember:
    return Described.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol_name),
        member_assignment=member.assignment,
    )

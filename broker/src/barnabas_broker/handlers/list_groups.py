"""ListGroups (16), v0 to v5: the groups that this broker coordinates.

v4 adds a filter by state, and v5 a filter by type (KIP-518, KIP-848).
"""

from collections.abc import Callable

from barnabas_broker.coordinators.groups.group import Group
from barnabas_broker.coordinators.modern.group import ConsumerGroup
from barnabas_broker.coordinators.share.share_group import ShareGroup
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import ListGroupsRequest, ListGroupsResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError


async def handle(
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

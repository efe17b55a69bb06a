"""ShareGroupDescribe (77), v1: the state, epochs and members of share groups (KIP-932).

A group of another type, or one that does not exist, has the error GROUP_ID_NOT_FOUND.
"""

from functools import partial
from typing import Final, TypeAlias

from barnabas_broker.coordinators.modern.group import ModernMember
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.consumer_group_describe import GroupKind, assignment_of, described
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import ShareGroupDescribeRequest, ShareGroupDescribeResponse

DescribedMember: TypeAlias = ShareGroupDescribeResponse.DescribedGroup.Member
ASSIGNOR: Final = "simple"


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Return the description of each group."""
    share, member = environment.groups.share, partial(_member, environment)
    kind = GroupKind(share.are_on, share.group, lambda _: ASSIGNOR, member)
    return await described(environment, context, request, ShareGroupDescribeResponse, kind)


def _member(environment: HandlerEnvironment, member: ModernMember) -> DescribedMember:
    metadata = member.known
    return DescribedMember(
        member_id=member.member_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.subscribed_topic_names),
        assignment=assignment_of(DescribedMember.Assignment, environment, member.current.assigned),
    )

"""DescribeAcls (29), v1 to v3: lists the ACLs that match a filter.

The error is SECURITY_DISABLED without an authorizer.
"""

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.acl_requests import acl_filter
from barnabas_broker.security.acls.authorizer import AclIndex
from barnabas_broker.wire.messages import DescribeAclsRequest, DescribeAclsResponse
from barnabas_core.acls import AclEntry, AclPattern
from barnabas_core.errors import ApiError, ErrorCode

Resource = DescribeAclsResponse.DescribeAclsResource


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Return the ACLs that match the filter, grouped by resource pattern."""
    try:
        acls, wanted = acls_of(environment), acl_filter(request)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    answer = AnswerInTurns(DescribeAclsResponse, context, environment.answers)
    resources = []
    async for pattern, entries in answer.over(list(acls.patterns())):
        found = [each for each in entries if wanted.finds(pattern, each)]
        if found:
            resources.append(answer.encoded(("resources",), _resource(pattern, found)))
    return DescribeAclsResponse(error_message=None, resources=resources)


def acls_of(environment: HandlerEnvironment) -> AclIndex:
    """Return the ACLs of the cluster. Raises ApiError if the broker has no authorizer."""
    if environment.authorizer is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return environment.authorizer.index


def _resource(pattern: AclPattern, entries: list[AclEntry]) -> Resource:
    acls = [
        Resource.AclDescription(
            principal=each.principal, host=each.host, operation=each.operation, permission_type=each.permission
        )
        for each in entries
    ]
    return Resource(
        resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type, acls=acls
    )

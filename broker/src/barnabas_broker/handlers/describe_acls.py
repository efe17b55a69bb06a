"""DescribeAcls (29), v1 to v3: SECURITY_DISABLED, as from a Kafka without an authorizer; clients read "no ACLs"."""

from typing import Final

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DescribeAclsRequest, DescribeAclsResponse
from barnabas_core.errors import ErrorCode

NO_AUTHORIZER: Final = "No Authorizer is configured."


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Refuse: there is no access control."""
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[]
    )

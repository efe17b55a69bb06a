"""DeleteAcls (31), v1 to v3: SECURITY_DISABLED for each filter, as from a Kafka without an authorizer."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.describe_acls import NO_AUTHORIZER
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DeleteAclsRequest, DeleteAclsResponse
from barnabas_core.errors import ErrorCode


def handle(environment: HandlerEnvironment, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse each filter: there are no ACLs that it could match."""
    refusal = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
    )
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=[refusal for _ in request.filters])

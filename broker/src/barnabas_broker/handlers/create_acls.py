"""CreateAcls (30), v1 to v3: SECURITY_DISABLED for each, as from a Kafka without an authorizer."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.describe_acls import NO_AUTHORIZER
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import CreateAclsRequest, CreateAclsResponse
from barnabas_core.errors import ErrorCode


def handle(environment: HandlerEnvironment, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse each ACL: nothing would enforce it."""
    refusal = CreateAclsResponse.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(throttle_time_ms=0, results=[refusal for _ in request.creations])

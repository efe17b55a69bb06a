"""DescribeUserScramCredentials (50), v0: no credentials, as from a Kafka where no user has any (KIP-554)."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
from barnabas_core.errors import ErrorCode

UserResult = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Answer RESOURCE_NOT_FOUND for each user that is asked for by name, and an empty list where none is."""
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[_not_found(user.name) for user in request.users or ()],
    )


def _not_found(user: str) -> UserResult:
    return UserResult(
        user=user,
        error_code=ErrorCode.RESOURCE_NOT_FOUND,
        error_message=f"Attempt to describe a user credential that does not exist: {user}",
        credential_infos=[],
    )

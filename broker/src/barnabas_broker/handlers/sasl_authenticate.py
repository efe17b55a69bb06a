"""SaslAuthenticate (36), v0 to v2, on a listener without SASL, or after the client has authenticated.

`server.sasl_session` handles SaslAuthenticate during authentication.
"""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_core.errors import ErrorCode

MESSAGE = "SaslAuthenticate request received after successful authentication"


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Respond with ILLEGAL_SASL_STATE, and keep the connection open."""
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=MESSAGE, auth_bytes=b"")

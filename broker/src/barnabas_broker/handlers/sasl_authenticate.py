"""SaslAuthenticate (36), v0 to v2, from a client that has nothing to authenticate: the listener has no SASL, or it did.

The tokens of a listener with SASL go to its session (`server.sasl_session`).
"""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_core.errors import ErrorCode

MESSAGE = "SaslAuthenticate request received after successful authentication"


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Answer ILLEGAL_SASL_STATE; the connection stays."""
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=MESSAGE, auth_bytes=b"")

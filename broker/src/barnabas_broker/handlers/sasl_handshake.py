"""SaslHandshake (17), v0 and v1, on a listener without SASL, or after the client has authenticated.

`server.sasl_session` handles SaslHandshake during authentication.
"""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_core.errors import ErrorCode


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Respond with ILLEGAL_SASL_STATE, because SaslHandshake is allowed only during authentication."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

"""SaslHandshake (17), v0 and v1, from a client that has nothing to authenticate: the listener has no SASL, or it did.

The handshakes of a listener with SASL go to its session (`server.sasl_session`).
"""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_core.errors import ErrorCode


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Answer ILLEGAL_SASL_STATE."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])

"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (38 to 41).

Delegation tokens are not supported, so the errors are those of a Kafka without `delegation.token.secret.key`. Programs
estimate the version of the brokers by these APIs.
"""

from typing import Any, Final

from barnabas_broker.handlers.channel import ANONYMOUS, RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import message_class
from barnabas_core.config.listeners import SecurityProtocol
from barnabas_core.errors import ErrorCode

NO_TIME: Final = -1


def handle(environment: HandlerEnvironment, context: RequestContext, request: Any) -> Any:
    """Return DELEGATION_TOKEN_AUTH_DISABLED, or DELEGATION_TOKEN_REQUEST_NOT_ALLOWED to clients that may have no token.

    As in Kafka, a client on a PLAINTEXT listener, or on an SSL listener without a certificate, may have no token.
    """
    client = context.client
    protocol = environment.config.listeners.protocols[client.listener_name]
    is_open = protocol is SecurityProtocol.PLAINTEXT or (
        protocol is SecurityProtocol.SSL and client.principal == ANONYMOUS
    )
    error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if is_open else ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    response = message_class(type(request).__name__.replace("Request", "Response"))(error_code=error)
    for name in response.__struct_fields__:
        if is_open and name.endswith("timestamp_ms"):
            setattr(response, name, NO_TIME)
    if hasattr(request, "owner_principal_type"):
        _name_principals(response, client.principal, request)
    return response


def _name_principals(response: Any, principal: str, request: Any) -> None:
    """Set the owner of the token, which is the client unless the request names another, and the requester."""
    response.token_requester_principal_type, _, response.token_requester_principal_name = principal.partition(":")
    if request.owner_principal_type is None:
        response.principal_type, _, response.principal_name = principal.partition(":")
    else:
        # A request may name only one of both; the response has no null.
        response.principal_type, response.principal_name = (
            request.owner_principal_type,
            request.owner_principal_name or "",
        )

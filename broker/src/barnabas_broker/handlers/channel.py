"""The client, the facts and the answer channel of a request, as handlers see them."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from barnabas_broker.wire.parts import Part

if TYPE_CHECKING:
    from barnabas_broker.handlers.batch_trust import ConnectionTrust
    from barnabas_broker.handlers.client_quotas import ClientLimits, ClientQuotas
    from barnabas_broker.handlers.handler_environment import HandlerEnvironment


ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated, as in Kafka."""


def user_principal(user: str) -> str:
    """Return the principal of a user."""
    return f"User:{user}"


class Client(NamedTuple):
    """The client of a request: all that a handler knows of it."""

    listener_name: str
    """The listener of its connection, whose addresses of brokers the client gets."""
    address: str
    """`host:port`."""
    client_id: str | None = None
    """The client id that it sends; None if it sends none, or has sent no request yet."""
    principal: str = ANONYMOUS
    """`User:NAME`, as authenticated by certificate or SASL."""
    mechanism: str = ""
    """The SASL mechanism by which it has authenticated; "" for none."""

    @property
    def host(self) -> str:
        """The client's IP address."""
        return self.address.rpartition(":")[0]

    def limits(self, quotas: "ClientQuotas") -> "ClientLimits | None":
        """Return the quotas of the client; None if it has none."""
        return quotas.of(self.principal, self.client_id, self.listener_name)

    def authenticated(self, user: str, mechanism: str) -> "Client":
        """Return the client with the user that SASL has authenticated."""
        return self._replace(principal=user_principal(user), mechanism=mechanism)

    def named(self, client_id: str | None) -> "Client":
        """Return the client with this client id."""
        return self if client_id == self.client_id else self._replace(client_id=client_id)


class Channel(Protocol):
    """The connection, as a handler sees it."""

    client: Client
    """The client, with the client id of the connection's first request."""
    trust: "ConnectionTrust | None"
    """The trust of Produce in the batches of this connection; None before the first."""

    def respond(self, parts: list[Part]) -> None:
        """Send the answer now."""
        ...

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        """Answer later, by the returned call; an empty list answers nothing.

        The next request is read after that, or, with `reads_on`, now: its answer keeps its place.
        """
        ...

    def close(self, reason: str | None = None) -> None:
        """Close the connection; the reason is one line in the log."""
        ...


class RequestContext(NamedTuple):
    """The facts about a request besides its body."""

    api_key: int
    api_version: int
    client: Client
    """The client, with the client id of this request."""
    is_gone: Callable[[], bool] = lambda: False
    """True once the connection is closed, so that nobody reads the answer."""


GiveUp = Callable[[], object]
"""Ends the wait for an answer because the connection is closed."""


MessageHandler = Callable[["HandlerEnvironment", RequestContext, Any], Any | Awaitable[Any]]
"""Takes a decoded request and gives the response, or an awaitable of it; the connection reads on after that."""


class RawHandler(Protocol):
    """Answers through the channel itself, from `buffer[body_start:end]`: no copies."""

    def __call__(
        self,
        environment: "HandlerEnvironment",
        channel: Channel,
        version: int,
        correlation_id: int,
        buffer: memoryview,
        body_start: int,
        end: int,
    ) -> GiveUp | None:
        """Handle a request; return a callback for a connection that closes before the answer, None if it is answered.

        Raises MalformedRequest and CloseConnection.
        """
        ...

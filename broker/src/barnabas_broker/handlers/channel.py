"""The interface between connections and handlers: the client, the context and the channel of a request."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from barnabas_broker.wire.framing import Part

if TYPE_CHECKING:
    from barnabas_broker.coordinators.share_delivery.sessions import Closable
    from barnabas_broker.handlers.batch_trust import ConnectionTrust
    from barnabas_broker.handlers.client_quotas import ClientLimits, ClientQuotas
    from barnabas_broker.handlers.handler_environment import HandlerEnvironment
    from barnabas_broker.handlers.large_responses import LargeResponses, SharedTurn


ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated, as in Kafka."""


def user_principal(user: str) -> str:
    """Return the principal of a user."""
    return f"User:{user}"


class Client(NamedTuple):
    """The client that sent a request."""

    listener_name: str
    """The listener to which the client is connected; responses have the addresses of brokers on this listener."""
    address: str
    """The address of the client, as `host:port`."""
    client_id: str | None = None
    """The client id in the request header; None if the client sends none, or has sent no request yet."""
    principal: str = ANONYMOUS
    """The principal `User:NAME`, authenticated by certificate or SASL."""
    mechanism: str = ""
    """The SASL mechanism of the credential with which the client has authenticated; empty without SASL."""
    verifier_id: bytes = b""
    """The id of the stored verifier that the client's password matched; empty without a stored verifier."""

    @property
    def host(self) -> str:
        """The client's IP address."""
        return self.address.rpartition(":")[0]

    def limits(self, quotas: "ClientQuotas") -> "ClientLimits | None":
        """Return the quotas of the client; None if it has none."""
        return quotas.of(self.principal, self.client_id, self.listener_name)

    def authenticated(self, user: str, mechanism: str, verifier_id: bytes) -> "Client":
        """Return a copy of the client with the user, mechanism and verifier that SASL has authenticated."""
        return self._replace(principal=user_principal(user), mechanism=mechanism, verifier_id=verifier_id)

    def named(self, client_id: str | None) -> "Client":
        """Return this client with the given client id."""
        return self if client_id == self.client_id else self._replace(client_id=client_id)


class TakesTurns(Exception):
    """Raised by a RawHandler, before anything has happened, for a request that is too large for one turn.

    The connection keeps the bytes of the request, and the handler is called again with `channel.turn`, one of the turns
    of `scheduler`.
    """

    def __init__(self, scheduler: "LargeResponses") -> None:
        super().__init__()
        self.scheduler = scheduler


class Channel(Protocol):
    """The connection of a client, for handlers that send their responses themselves."""

    client: Client
    """The client of the connection; its client id is taken from the first request."""
    trust: "ConnectionTrust | None"
    """The ConnectionTrust, which decides in which produced batches the broker checks the records.

    None before the first Produce request.
    """

    turn: "SharedTurn | None"
    """The turns of the event loop in which the current request is handled; None for a request handled at once."""

    def request_is_read(self) -> None:
        """Free the bytes of the current request, which took turns.

        Raises CloseConnection if the connection is closed.
        """
        ...

    def respond(self, parts: list[Part]) -> None:
        """Send the response now."""
        ...

    def respond_soon(self, response: bytes | bytearray) -> None:
        """Send a small response together with those to other requests of the client that were received with it."""
        ...

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        """Return a callback that takes the parts of the response and sends them; for an empty list it sends nothing.

        The connection reads no further request before the callback is called, unless `reads_on` is True.
        Responses are sent in the order of the requests.
        """
        ...

    def close(self, reason: str | None = None) -> None:
        """Close the connection, and log the reason if there is one."""
        ...


class RequestContext(NamedTuple):
    """The API key and version of a request, its client, and a check whether the connection was closed."""

    api_key: int
    api_version: int
    client: Client
    """The client that sent the request; its client id is taken from the request."""
    is_gone: Callable[[], bool] = lambda: False
    """A function that returns True after the connection was closed."""
    turn: "SharedTurn | None" = None
    """The turns of a large request, in which the rest of its work is done, too; None for a small request."""
    connection: "Closable | None" = None
    """The connection of the request, for state that ends with it."""


GiveUp = Callable[[], object]
"""A callback that ends the wait for a response, because the connection was closed."""


MessageHandler = Callable[["HandlerEnvironment", RequestContext, Any], Any | Awaitable[Any]]
"""A function that handles a decoded request, and returns the response or an awaitable of the response."""


class RawHandler(Protocol):
    """A handler that reads the request from `buffer[body_start:end]` without a copy, and responds on the channel."""

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
        """Handle a request; return None, or a callback to call if the connection closes before the response.

        Raises MalformedRequest if the request cannot be decoded, CloseConnection to close the connection, and
        TakesTurns if the request is too large for one turn of the event loop.
        """
        ...

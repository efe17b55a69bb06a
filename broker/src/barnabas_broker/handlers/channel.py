"""The interface between connections and handlers: the client, the context and the channel of a request.

The answers of handlers: large ones in several turns of the event loop, and those that wait for a coordinator. Each
element of an array is encoded in the turn that creates it, because encoding all elements in the last turn would
block the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypedDict, TypeVar, cast
from uuid import UUID

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.security.authorizer import DECISIONS_MAX, EVERY_RIGHT, Rights
from barnabas_broker.wire.encoder import encode_element
from barnabas_broker.wire.framing import Part
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import THINGS_MAX, InSteps, at_once, in_steps
from barnabas_core.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas_broker.coordinators.share_delivery.sessions import Closable
    from barnabas_broker.handlers.batch_trust import ConnectionTrust
    from barnabas_broker.handlers.handler_environment import ClientLimits, ClientQuotas
    from barnabas_broker.handlers.large_responses import SharedTurn


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
    when_closed: list[Callable[..., object]]
    """The functions to call once, with the connection, when the connection closes."""

    def request_is_read(self) -> None:
        """Free the bytes of the current request, which took turns.

        Raises CloseConnection if the connection is closed.
        """
        ...

    def answer(self, parts: list[Part]) -> None:
        """Send the response now."""
        ...

    def answer_soon(self, response: bytes | bytearray) -> None:
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


Thing = TypeVar("Thing")
Element = TypeVar("Element")
Path = tuple[str, ...]
"""The path of an array in the response: the names of its field and of the enclosing fields, outermost first."""


def stepwise(handle: Callable[[HandlerEnvironment, RequestContext, Any], InSteps[Any]]) -> MessageHandler:
    """Return a handler that takes the steps of `handle` at once, or in the turns of a large request.

    The result of the last step is a response, or an awaitable of it.
    """

    @wraps(handle)
    def handler(environment: HandlerEnvironment, context: RequestContext, request: Any) -> Any | Awaitable[Any]:
        steps = handle(environment, context, request)
        return at_once(steps) if context.turn is None else _response(context.turn.run(steps))

    return handler


async def _response(handling: Awaitable[Any]) -> Any:
    response = await handling
    return await response if isawaitable(response) else response


class AnswerInTurns:
    """The construction of one large response.

    The methods raise CloseConnection if the client has disconnected, or if the response becomes too large.
    """

    def __init__(self, response: type[object], context: RequestContext, responses: LargeResponses) -> None:
        self._response = response.__name__
        self._version = context.api_version
        self.turn = context.turn or responses.turn(context.is_gone)
        """The SharedTurn that spreads the construction of the response over several turns of the event loop."""
        self._outer_bytes = 0
        self._inner_bytes = 0
        """The bytes encoded so far for nested arrays of the unfinished outer element; 0 if no element is unfinished."""
        self._inner_elements = 0

    def over(self, things: Iterable[Thing]) -> AsyncIterator[Thing]:
        """Yield all items, spread over several turns of the event loop."""
        return self.turn.over(things)

    def along(self, things: Iterable[Thing]) -> AsyncIterator[Thing]:
        """Yield all items, which nothing changes meanwhile, spread over several turns of the event loop."""
        return self.turn.along(things)

    def encoded(self, array: Path, element: Element) -> Element:
        """Encode an element of the response's array at the path `array`, and return the encoded element.

        An outer element that has many encoded elements is returned as it is, and encoded in turns with the response.
        """
        is_outer = len(array) == 1
        if is_outer and self._inner_elements > THINGS_MAX:
            self._outer_bytes += self._inner_bytes
            self._inner_bytes = self._inner_elements = 0
            return element
        encoded = encode_element(self._response, array, self._version, element)
        if is_outer:
            self._outer_bytes += len(encoded)
            self._inner_bytes = self._inner_elements = 0
        else:
            self._inner_bytes += len(encoded)
            self._inner_elements += 1
        self.turn.holds(self._outer_bytes + self._inner_bytes)
        return cast("Element", encoded)

    async def elements(self, array: Path, things: Iterable[Thing], make: Callable[[Thing], Element]) -> list[Element]:
        """Call `make` for each item, and return the results, encoded as elements of the array at the path `array`.

        The items, which nothing may change meanwhile, are spread over several turns of the event loop.
        """
        return [self.encoded(array, make(thing)) async for thing in self.along(things)]


Answer = TypeVar("Answer")


async def awaited(start: Callable[[Callable[[Answer], object]], object]) -> Answer:
    """Call `start` with a callback, wait until the callback is called, and return its argument."""
    answer: Answer | Awaitable[Answer] = answer_of(start)
    return await answer if isinstance(answer, asyncio.Future) else answer  # type: ignore[return-value]


def answer_of(start: Callable[[Callable[[Answer], object]], object]) -> Answer | Awaitable[Answer]:
    """Call `start` with a callback; return the callback's argument, or an awaitable if the callback runs later."""
    given: list[Answer] = []
    waiting: list[asyncio.Future[Answer]] = []

    def answer(value: Answer) -> None:
        if not waiting:
            given.append(value)
        elif not waiting[0].done():  # The future is done if a closed connection has cancelled it.
            waiting[0].set_result(value)

    start(answer)
    if given:
        return given[0]
    waiting.append(asyncio.get_running_loop().create_future())
    return waiting[0]


Outcome = TypeVar("Outcome")


class ErrorFields(TypedDict):
    """The two error fields of an element in a response."""

    error_code: ErrorCode
    error_message: str | None


def by_topic(
    outcomes: Mapping[TopicPartition, Outcome],
) -> InSteps[Iterable[tuple[str, list[tuple[int, Outcome]]]]]:
    """Group outcomes by topic, in steps; topics and partitions keep the order of the request."""
    topics: dict[str, list[tuple[int, Outcome]]] = {}

    def add(each: tuple[TopicPartition, Outcome]) -> None:
        (topic, number), outcome = each
        topics.setdefault(topic, []).append((number, outcome))

    yield from in_steps(outcomes.items(), add)
    return topics.items()


def error_fields(error: ApiError | None) -> ErrorFields:
    """Return the error fields of an element in a response; `error` is None if the element has no error."""
    if error is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}


def rights_of(environment: HandlerEnvironment, client: Client) -> Rights:
    """Return the rights of a client; without an authorizer, every client has every right."""
    authorizer = environment.authorizer
    return EVERY_RIGHT if authorizer is None else authorizer.rights(client.principal, client.host)


def may_act_as_broker(environment: HandlerEnvironment, client: Client) -> bool:
    """True if the client may act as a broker.

    Without an authorizer every client has every right; then those on the listener between brokers may act as one.
    """
    if environment.authorizer is None:
        return client.listener_name == environment.config.listeners.inter_broker
    return rights_of(environment, client).may_see(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def cluster_operations(environment: HandlerEnvironment, client: Client) -> set[int]:
    """Return the codes of the cluster operations that the client may perform; none without Describe on the cluster."""
    rights = rights_of(environment, client)
    if not rights.may_see(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return set()
    return rights.operations(ResourceType.CLUSTER)


AskedTopicKey = str | bytes | None


class AskedTopic(Protocol):
    """A topic of a request, with either a name or a topic id."""

    @property
    def name(self) -> str | None:
        """The name of the topic; None if the request has topic ids."""
        ...

    @property
    def topic_id(self) -> bytes | None:
        """The bytes of the topic id; None if the request has topic names."""
        ...


def lacking(
    environment: HandlerEnvironment, rights: Rights, operation: AclOperation, topics: Sequence[AskedTopic]
) -> frozenset[AskedTopicKey]:
    """Return the topics to which the client has no right, and cache the allowed topics for its next requests.

    An unknown topic id is not refused, because the handler answers it with an error.
    """
    granted = rights.writable if operation is AclOperation.WRITE else rights.readable
    refused = set()
    for topic in topics:
        key: AskedTopicKey = topic.topic_id or topic.name
        name = topic.name if topic.topic_id is None else environment.image.topic_name(UUID(bytes=topic.topic_id))
        if name is None:
            continue
        if not rights.may(operation, ResourceType.TOPIC, name):
            refused.add(key)
        elif len(granted) < DECISIONS_MAX:
            granted.add(key)
    return frozenset(refused)

"""The queues of items, such as markers, to send to other brokers. Each broker gets one request at a time."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas_broker.replication.links import Links, RequestLink
from barnabas_broker.wire.codec import decode_response, encode_request
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_core.clock import Timeout

_logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 35.0
"""The timeout in seconds of a request to another broker.

The other broker may wait almost as long until its followers have replicated a transaction marker.
"""
_ITEMS_MAX: Final = 500
"""The maximum number of items in a request; handling them blocks the other broker's event loop for 1 or 2 ms."""

ItemT = TypeVar("ItemT")
AskedT = TypeVar("AskedT", contravariant=True)


class LinkEnvironment(NamedTuple):
    """The objects with which the queues send requests to other brokers."""

    links: Links
    spawn: Callable[[Coroutine[object, object, None]], object]
    timeout: Timeout
    client_id: str


class Exchange(Protocol[AskedT]):
    """The interface of the object that makes the requests of a queue and handles the answers."""

    @property
    def response(self) -> str:
        """The name of the response message."""
        ...

    @property
    def version(self) -> int:
        """The API version of the requests and responses."""
        ...

    def request(self, items: Sequence[AskedT]) -> Any:
        """Return one request that sends all the given items of a queue to a broker."""
        ...

    def answered(self, items: Sequence[AskedT], answer: Any | None) -> None:
        """Handle the response to the request that sent `items`; `answer` is None if there is no valid response."""
        ...


class BrokerQueues(Generic[ItemT]):
    """The queues of items, such as transaction markers, for other brokers, with one connection to each broker."""

    def __init__(self, environment: LinkEnvironment, exchange: Exchange[ItemT]) -> None:
        self._environment = environment
        self._exchange = exchange
        self._queues: dict[int, list[ItemT]] = {}
        """The items that wait until the broker has answered the previous request, by broker id."""
        self._links: dict[int, RequestLink] = {}

    def put(self, broker_id: int, item: ItemT) -> None:
        """Queue an item for a broker; a request to the broker sends the oldest items, up to `_ITEMS_MAX`."""
        queue = self._queues.get(broker_id)
        if queue is not None:
            queue.append(item)
            return
        self._queues[broker_id] = [item]
        self._environment.spawn(self._drain(broker_id))

    async def _drain(self, broker_id: int) -> None:
        queue = self._queues[broker_id]
        try:
            while queue:
                items, queue[:] = queue[:_ITEMS_MAX], queue[_ITEMS_MAX:]
                self._exchange.answered(items, await self._ask(broker_id, items))
        finally:
            del self._queues[broker_id]

    async def _ask(self, broker_id: int, items: Sequence[ItemT]) -> Any | None:
        exchange, environment = self._exchange, self._environment
        link = self._links.get(broker_id)
        if link is None or link.is_broken:
            link = self._links[broker_id] = RequestLink(environment.links, broker_id)
        try:
            async with environment.timeout(_TIMEOUT_S):
                request = encode_request(exchange.request(items), exchange.version, 0, environment.client_id)
                return decode_response(exchange.response, exchange.version, await link.ask(request))
        except (ConnectionError, TimeoutError, MalformedRequest) as error:
            _logger.info("broker %d did not return a valid %s: %r", broker_id, exchange.response, error)
            del self._links[broker_id]
            link.close()
            return None

    def close(self) -> None:
        """Close the connections to other brokers."""
        for link in self._links.values():
            link.close()
        self._links.clear()

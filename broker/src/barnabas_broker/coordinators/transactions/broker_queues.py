"""Queues of questions to other brokers. Each broker has one request under way; its next takes all that wait."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas_broker.replication.links import Links
from barnabas_broker.replication.request_link import RequestLink
from barnabas_broker.wire.codec import decode_response, encode_request
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_core.clock import Timeout

_logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 35.0
"""Longer than a broker waits for its replicas."""
_ITEMS_MAX: Final = 500
"""The items in one request: they take a millisecond or two of the other broker's loop."""

ItemT = TypeVar("ItemT")
AskedT = TypeVar("AskedT", contravariant=True)


class LinkEnvironment(NamedTuple):
    """The parts of the broker that queues need."""

    links: Links
    spawn: Callable[[Coroutine[object, object, None]], object]
    timeout: Timeout
    client_id: str


class Exchange(Protocol[AskedT]):
    """The kind of request that a queue sends, and the receiver of its answers."""

    @property
    def response(self) -> str:
        """The name of the answer's message."""
        ...

    @property
    def version(self) -> int:
        """The version of the request and of its answer."""
        ...

    def request(self, items: Sequence[AskedT]) -> Any:
        """Return one request that asks for all items."""
        ...

    def answered(self, items: Sequence[AskedT], answer: Any | None) -> None:
        """Take the broker's answer to the items; None if it gave none."""
        ...


class BrokerQueues(Generic[ItemT]):
    """The queues by broker id. A link stays open until it breaks."""

    def __init__(self, environment: LinkEnvironment, exchange: Exchange[ItemT]) -> None:
        self._environment = environment
        self._exchange = exchange
        self._queues: dict[int, list[ItemT]] = {}
        """The waiting items of each broker with a request under way."""
        self._links: dict[int, RequestLink] = {}

    def put(self, broker_id: int, item: ItemT) -> None:
        """Ask with the next request to that broker."""
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
            _logger.info("broker %d does not answer %s: %r", broker_id, exchange.response, error)
            del self._links[broker_id]
            link.close()
            return None

    def close(self) -> None:
        """Stop the requests to other brokers."""
        for link in self._links.values():
            link.close()
        self._links.clear()

"""The requests of coordinators to other brokers, with one connection to each broker."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from barnabas_broker.replication.links import Links, RequestLink
from barnabas_broker.wire.codec import decode_response, encode_request
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_core.clock import Clock, Timeout

_logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 35.0
"""The timeout in seconds of a request to another broker.

The other broker may wait almost as long until its followers have replicated a transaction marker.
"""


class LinkEnvironment(NamedTuple):
    """The objects with which the coordinator sends requests to other brokers."""

    links: Links
    spawn: Callable[[Coroutine[object, object, None]], object]
    timeout: Timeout
    clock: Clock
    client_id: str


class Exchange(NamedTuple):
    """The API version of a request and its response, and the name of the response message."""

    response: str
    version: int


class PeerRequests:
    """The requests to other brokers. The caller sends a broker the next request after the previous one has ended."""

    def __init__(self, environment: LinkEnvironment, exchange: Exchange) -> None:
        self._environment = environment
        self._exchange = exchange
        self._links: dict[int, RequestLink] = {}

    async def ask(self, broker_id: int, request: Any) -> Any | None:
        """Send a request, and return the response, or None if there is no valid response in time."""
        (response, version), environment = self._exchange, self._environment
        link = self._links.get(broker_id)
        if link is None or link.is_broken:
            link = self._links[broker_id] = RequestLink(environment.links, broker_id)
        try:
            async with environment.timeout(_TIMEOUT_S):
                encoded = encode_request(request, version, 0, environment.client_id)
                return decode_response(response, version, await link.ask(encoded))
        except (ConnectionError, TimeoutError, MalformedRequest) as error:
            _logger.info("broker %d did not return a valid %s: %r", broker_id, response, error)
            self.abandon(broker_id)
            return None

    def abandon(self, broker_id: int) -> None:
        """Close the connection to a broker; the request that is under way returns None."""
        link = self._links.pop(broker_id, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """Close the connections to other brokers."""
        for broker_id in list(self._links):
            self.abandon(broker_id)

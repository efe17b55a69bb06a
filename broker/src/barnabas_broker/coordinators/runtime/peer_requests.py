"""The requests of coordinators to other brokers, with one connection to each broker.

`FeatureUsers` asks each broker that leads a partition of the internal topic what uses a feature.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import GROUP_VERSION, NO_LEADER, SHARE_VERSION, TRANSACTION_VERSION
from barnabas_broker.replication.other_brokers import Links, RequestLink
from barnabas_broker.wire.encoder import decode_response, encode_request
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.messages import ListGroupsRequest, ListTransactionsRequest
from barnabas_core.clock import Clock, Timeout
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import CONSUMER_OFFSETS, TRANSACTION_STATE

_logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 35.0
"""The timeout in seconds of a request to another broker.

The other broker may wait almost as long until its followers have replicated a transaction marker.
"""


class LinkEnvironment(msgspec.Struct, frozen=True):
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


class PipelinedRequests:
    """The requests to other brokers; many may be under way over the one connection to a broker."""

    def __init__(self, environment: LinkEnvironment) -> None:
        self._environment = environment
        self._pipes: dict[int, _Pipe] = {}

    async def ask(self, broker_id: int, exchange: Exchange, request: Any) -> Any | None:
        """Send a request, and return the response, or None if there is no valid response in time."""
        environment, (response, version) = self._environment, exchange
        pipe = self._pipes.get(broker_id)
        if pipe is None or pipe.is_broken:
            pipe = self._pipes[broker_id] = _Pipe(environment.links, broker_id)
        try:
            async with environment.timeout(_TIMEOUT_S):
                encoded = encode_request(request, version, 0, environment.client_id)
                return decode_response(response, version, await pipe.ask(encoded))
        except (ConnectionError, TimeoutError, MalformedRequest) as error:
            _logger.info("broker %d did not return a valid %s: %r", broker_id, response, error)
            pipe.close(f"a request failed: {error!r}")
            return None

    def close(self) -> None:
        """Close the connections to other brokers; the requests that are under way return None."""
        for pipe in self._pipes.values():
            pipe.close("the broker stops")


class _Pipe:
    """A connection to one broker, with the requests that wait for their responses."""

    def __init__(self, links: Links, broker_id: int) -> None:
        self.is_broken = False
        self._waiting: set[asyncio.Future[memoryview]] = set()
        self._link = links.open(broker_id, self._closed)

    async def ask(self, frame: bytes | bytearray) -> memoryview:
        """Send a framed request; return the response without its size. Raises ConnectionError."""
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        try:
            self._link.send(frame, lambda found: None if answer.done() else answer.set_result(found))
            return await answer
        finally:
            self._waiting.discard(answer)

    def close(self, reason: str) -> None:
        """Close the connection, unless it is broken; the requests that are under way raise ConnectionError."""
        if not self.is_broken:
            self._link.close()
            self._closed(reason)

    def _closed(self, reason: str) -> None:
        self.is_broken = True
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(ConnectionError(reason))


_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
CONSUMER: Final = "consumer"
"""The type of a group of the consumer protocol (KIP-848)."""
SHARE: Final = "share"
"""The type of a share group (KIP-932)."""


class UserListing(msgspec.Struct, frozen=True):
    """The request that lists the users of a feature, and a word for them."""

    topic: str
    """The internal topic whose leaders answer the request."""
    what: str
    exchange: Exchange
    request: Callable[[], Any]
    names: Callable[[Any], list[str]]


def _groups(what: str, group_type: str) -> UserListing:
    return UserListing(
        CONSUMER_OFFSETS,
        what,
        Exchange("ListGroupsResponse", 5),
        lambda: ListGroupsRequest(states_filter=[], types_filter=[group_type]),
        lambda answer: [each.group_id for each in answer.groups],
    )


LISTINGS: Final[Mapping[str, UserListing]] = {
    TRANSACTION_VERSION: UserListing(
        TRANSACTION_STATE,
        "open transactions",
        Exchange("ListTransactionsResponse", 0),
        lambda: ListTransactionsRequest(state_filters=list(_OPEN), producer_id_filters=[]),
        lambda answer: [each.transactional_id for each in answer.transaction_states],
    ),
    GROUP_VERSION: _groups("groups of the consumer protocol", CONSUMER),
    SHARE_VERSION: _groups("share groups", SHARE),
}


class FeatureUsers:
    """The search for what uses a feature, which asks each broker that leads a partition of the internal topic."""

    def __init__(self, environment: LinkEnvironment, image: MetadataImage) -> None:
        self._environment = environment
        self._image = image

    async def find(self, feature: str) -> list[str]:
        """Return the names of what uses a feature of LISTINGS. Raises ApiError if a coordinator does not answer."""
        listing = LISTINGS[feature]
        document = self._image.topics.get(listing.topic)
        peers = PeerRequests(self._environment, listing.exchange)
        leaders = {state.leader for state in document.partitions} if document is not None else set[int]()
        if NO_LEADER in leaders:
            raise _unlisted(f"a partition of {listing.topic} without a leader", listing)
        try:
            listed = await asyncio.gather(*(_list(peers, leader, listing) for leader in leaders))
        finally:
            peers.close()
        return sorted(name for names in listed for name in names)


async def _list(peers: PeerRequests, leader: int, listing: UserListing) -> list[str]:
    """Return the names that a broker coordinates."""
    answer = await peers.ask(leader, listing.request())
    if answer is None or answer.error_code:
        raise _unlisted(f"broker {leader}", listing)
    return listing.names(answer)


def _unlisted(who: str, listing: UserListing) -> ApiError:
    message = f"{who} cannot list its {listing.what}; try again later"
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)

"""The search at all coordinators for what uses a feature, before the level of the feature is lowered."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from barnabas_broker.coordinators.runtime.peer_requests import Exchange, LinkEnvironment, PeerRequests
from barnabas_broker.metadata.features import GROUP_VERSION, SHARE_VERSION, TRANSACTION_VERSION
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER
from barnabas_broker.wire.messages import ListGroupsRequest, ListTransactionsRequest
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_name import CONSUMER_OFFSETS, TRANSACTION_STATE

_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
CONSUMER: Final = "consumer"
"""The type of a group of the consumer protocol (KIP-848)."""
SHARE: Final = "share"
"""The type of a share group (KIP-932)."""


class UserListing(NamedTuple):
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

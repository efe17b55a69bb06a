"""The search for open transactions at all coordinators, before transaction.version is lowered."""

import asyncio
from typing import Final

from barnabas_broker.coordinators.transactions.peer_requests import Exchange, LinkEnvironment, PeerRequests
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER
from barnabas_broker.wire.messages import ListTransactionsRequest
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_name import TRANSACTION_STATE

_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
_EXCHANGE: Final = Exchange("ListTransactionsResponse", 0)


class OpenTransactions:
    """The search for open transactions, which asks each broker that leads a partition of `__transaction_state`."""

    def __init__(self, environment: LinkEnvironment, image: MetadataImage) -> None:
        self._environment = environment
        self._image = image

    async def find(self) -> list[str]:
        """Return the transactional ids with an open transaction. Raises ApiError if a coordinator does not answer."""
        document, peers = self._image.topics.get(TRANSACTION_STATE), PeerRequests(self._environment, _EXCHANGE)
        leaders = {state.leader for state in document.partitions} if document is not None else set[int]()
        if NO_LEADER in leaders:
            raise _unlisted(f"a partition of {TRANSACTION_STATE} without a leader")
        try:
            listed = await asyncio.gather(*(_list(peers, leader) for leader in leaders))
        finally:
            peers.close()
        return sorted(name for names in listed for name in names)


async def _list(peers: PeerRequests, leader: int) -> list[str]:
    """Return the ids of the open transactions that a broker coordinates."""
    answer = await peers.ask(leader, ListTransactionsRequest(state_filters=list(_OPEN), producer_id_filters=[]))
    if answer is None or answer.error_code:
        raise _unlisted(f"broker {leader}")
    return [each.transactional_id for each in answer.transaction_states]


def _unlisted(who: str) -> ApiError:
    message = f"{who} cannot list its open transactions; try again later"
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)

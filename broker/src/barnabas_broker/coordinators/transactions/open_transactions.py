"""The search for open transactions at all coordinators, before transaction.version is lowered."""

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas_broker.coordinators.transactions.broker_queues import BrokerQueues, LinkEnvironment
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.wire.messages import ListTransactionsRequest, ListTransactionsResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_name import TRANSACTION_STATE

_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")

ListedAnswer = asyncio.Future[ListTransactionsResponse | None]


class OpenTransactions:
    """The search for open transactions, which asks each broker that leads a partition of `__transaction_state`."""

    response = "ListTransactionsResponse"
    version = 0

    def __init__(self, environment: LinkEnvironment, image: MetadataImage) -> None:
        self._image = image
        self.queues: BrokerQueues[ListedAnswer] = BrokerQueues(environment, self)

    async def find(self) -> list[str]:
        """Return the transactional ids with an open transaction. Raises ApiError if a coordinator does not answer."""
        document = self._image.topics.get(TRANSACTION_STATE)
        asked: dict[int, ListedAnswer] = {}
        for leader in {state.leader for state in document.partitions} if document is not None else ():
            asked[leader] = asyncio.get_running_loop().create_future()
            if leader < 0:
                asked[leader].set_result(None)
            else:
                self.queues.put(leader, asked[leader])
        found: list[str] = []
        for leader, answer in asked.items():
            response = await answer
            if response is None or response.error_code:
                who = f"broker {leader}" if leader >= 0 else f"a partition of {TRANSACTION_STATE} without a leader"
                message = f"{who} cannot list its open transactions; try again later"
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
            found += [each.transactional_id for each in response.transaction_states]
        return sorted(found)

    def request(self, items: Sequence[ListedAnswer]) -> ListTransactionsRequest:  # noqa: ARG002  # All items ask the same question.
        """Return the request that asks one broker for the open transactions that the broker coordinates."""
        return ListTransactionsRequest(state_filters=list(_OPEN), producer_id_filters=[])

    def answered(self, items: Sequence[ListedAnswer], answer: ListTransactionsResponse | None) -> None:
        """Pass the response to all waiting futures (`items`): all of them asked for the same list of transactions."""
        for item in items:
            if not item.done():
                item.set_result(answer)

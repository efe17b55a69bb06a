"""F07: producer ids come from blocks, and each is assigned only once."""

import asyncio

import pytest

from barnabas_broker.coordinators.transactions.coordinator import ProducerIds
from barnabas_core.errors import ApiError, ErrorCode
from harness.deadline import PATIENCE_S


class Controller:
    """A controller that allocates blocks unless `failing`."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.blocks = 0
        self.failing = False

    async def allocate(self) -> range:
        await asyncio.sleep(0)
        if self.failing:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        start = self.blocks * self.block_size
        self.blocks += 1
        return range(start, start + self.block_size)


@pytest.mark.parametrize("block_size", [1, 3, 10])
async def test_a_thousand_concurrent_producers_get_different_ids(block_size: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        ids = ProducerIds(Controller(block_size).allocate)
        given = await asyncio.gather(*(ids.next_id() for _ in range(1000)))
        assert sorted(given) == list(range(1000))


async def test_the_next_block_is_fetched_before_the_current_one_is_used_up() -> None:
    async with asyncio.timeout(PATIENCE_S):
        controller = Controller(100)
        ids = ProducerIds(controller.allocate)
        for _ in range(89):
            await ids.next_id()
        await asyncio.sleep(0)
        assert controller.blocks == 1
        await ids.next_id()
        for _ in range(3):
            await asyncio.sleep(0)
        assert controller.blocks == 2
        assert [await ids.next_id() for _ in range(11)] == list(range(90, 101))


async def test_a_failed_allocation_raises_an_error_and_the_next_call_retries_it() -> None:
    async with asyncio.timeout(PATIENCE_S):
        controller = Controller(2)
        ids = ProducerIds(controller.allocate)
        controller.failing = True
        with pytest.raises(ApiError):
            await ids.next_id()
        controller.failing = False
        assert [await ids.next_id() for _ in range(3)] == [0, 1, 2]

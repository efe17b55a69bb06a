"""A Cluster's lane, without a Cluster."""

import asyncio
from typing import cast

import pytest

from barnabas_operator.handlers.inventory import Inventory, Key
from barnabas_operator.handlers.lane import Lane
from barnabas_operator.handlers.operator_settings import OperatorSettings
from barnabas_operator.kube.api import KubeApi

WAIT_S = 10.0
SETTINGS = OperatorSettings("broker:dev", (), "", batch_s=0.0, busy_s=0.0, drift_s=60.0)


@pytest.mark.parametrize("turns", range(5))
def test_a_lane_that_is_ended_just_as_it_is_woken_ends(turns: int) -> None:
    async def scenario() -> None:
        rounds: asyncio.Queue[bool] = asyncio.Queue()
        no_api = cast(KubeApi, None)
        lane = Lane(
            Key("here", "one"), Inventory(), no_api, SETTINGS, lambda _took, is_done: rounds.put_nowait(is_done)
        )
        running = asyncio.create_task(lane.run())
        await rounds.get()
        await asyncio.sleep(0)  # It waits for the next thing to do.
        lane.wake()
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=WAIT_S)
        assert running.cancelled()

    asyncio.run(scenario())

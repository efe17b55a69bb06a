"""The metadata changes of several large requests are decided in turns of the event loop of their own."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from barnabas_broker.metadata.controller.deletions import Planned, Transitions
from barnabas_core.errors import ApiError
from barnabas_core.loop_turns import WRITTEN_ITEMS

CALLS = 4
SLICES = 3


async def test_no_turn_has_decisions_of_two_calls_after_their_first_ones() -> None:
    unused: Any = None
    transitions, turn, decided_in = Transitions(unused, unused), 0, list[int]()

    def decide(items: Sequence[int]) -> dict[int, Planned | ApiError]:
        assert len(items) == WRITTEN_ITEMS
        decided_in.append(turn)
        return {}

    items = range(SLICES * WRITTEN_ITEMS)
    calls = [asyncio.create_task(transitions.carry_out(items, decide)) for _ in range(CALLS)]
    while not all(call.done() for call in calls):
        turn += 1
        await asyncio.sleep(0)
    assert sorted(Counter(decided_in).values()) == [*[1] * CALLS * (SLICES - 1), CALLS]

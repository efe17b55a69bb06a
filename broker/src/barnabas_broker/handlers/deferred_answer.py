"""The conversion of a callback to an immediate answer or an awaitable of it, as the dispatcher needs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Answer = TypeVar("Answer")


async def awaited(start: Callable[[Callable[[Answer], object]], object]) -> Answer:
    """Return the answer once it is known."""
    answer: Answer | Awaitable[Answer] = answer_of(start)
    return await answer if isinstance(answer, asyncio.Future) else answer  # type: ignore[return-value]


def answer_of(start: Callable[[Callable[[Answer], object]], object]) -> Answer | Awaitable[Answer]:
    """Return the argument with which `start` calls its callback; an awaitable of it if that happens later."""
    given: list[Answer] = []
    waiting: list[asyncio.Future[Answer]] = []

    def answer(value: Answer) -> None:
        if not waiting:
            given.append(value)
        elif not waiting[0].done():  # Done: the connection is closed, and nobody waits.
            waiting[0].set_result(value)

    start(answer)
    if given:
        return given[0]
    waiting.append(asyncio.get_running_loop().create_future())
    return waiting[0]

"""The same work on many resources; it has ended when the call returns."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def all_ended(works: Iterable[Awaitable[T]]) -> list[T]:
    """Return the result of each. Raises the first failure once all have ended; `asyncio.gather` would not wait."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


async def in_turns(work: Callable[[T], Awaitable[None]], items: Iterable[T], at_once_max: int) -> None:
    """Work on at most `at_once_max` items at a time. Raises the first failure once all have ended."""
    turns = asyncio.Semaphore(at_once_max)

    async def one(item: T) -> None:
        async with turns:
            await work(item)

    await all_ended(map(one, items))

"""Functions for concurrent work on many resources, which return or raise only after all work has ended."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def all_ended(works: Iterable[Awaitable[T]]) -> list[T]:
    """Run the awaitables concurrently. When all have ended, return their results, or raise the first failure."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


async def in_turns(work: Callable[[T], Awaitable[None]], items: Iterable[T], at_once_max: int) -> None:
    """Process at most `at_once_max` items at a time. Raise the first failure after all items have been processed."""
    turns = asyncio.Semaphore(at_once_max)

    async def one(item: T) -> None:
        async with turns:
            await work(item)

    await all_ended(map(one, items))

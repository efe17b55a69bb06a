"""Await what coordinators decide, and convert outcomes to the fields of responses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypedDict, TypeVar

from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps
from barnabas_core.topic_partition import TopicPartition

Answer = TypeVar("Answer")


async def awaited(start: Callable[[Callable[[Answer], object]], object]) -> Answer:
    """Call `start` with a callback, wait until the callback is called, and return its argument."""
    answer: Answer | Awaitable[Answer] = answer_of(start)
    return await answer if isinstance(answer, asyncio.Future) else answer  # type: ignore[return-value]


def answer_of(start: Callable[[Callable[[Answer], object]], object]) -> Answer | Awaitable[Answer]:
    """Call `start` with a callback; return the callback's argument, or an awaitable if the callback runs later."""
    given: list[Answer] = []
    waiting: list[asyncio.Future[Answer]] = []

    def answer(value: Answer) -> None:
        if not waiting:
            given.append(value)
        elif not waiting[0].done():  # The future is done if a closed connection has cancelled it.
            waiting[0].set_result(value)

    start(answer)
    if given:
        return given[0]
    waiting.append(asyncio.get_running_loop().create_future())
    return waiting[0]


Outcome = TypeVar("Outcome")


class ErrorFields(TypedDict):
    """The two error fields of an element in a response."""

    error_code: ErrorCode
    error_message: str | None


def by_topic(
    outcomes: Mapping[TopicPartition, Outcome],
) -> InSteps[Iterable[tuple[str, list[tuple[int, Outcome]]]]]:
    """Group outcomes by topic, in steps; topics and partitions keep the order of the request."""
    topics: dict[str, list[tuple[int, Outcome]]] = {}

    def add(each: tuple[TopicPartition, Outcome]) -> None:
        (topic, number), outcome = each
        topics.setdefault(topic, []).append((number, outcome))

    yield from in_steps(outcomes.items(), add)
    return topics.items()


def error_fields(error: ApiError | None) -> ErrorFields:
    """Return the error fields of an element in a response; `error` is None if the element has no error."""
    if error is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}

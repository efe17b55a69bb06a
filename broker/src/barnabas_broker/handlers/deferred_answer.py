"""Await what coordinators decide, and convert outcomes to the fields of responses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypedDict, TypeVar

from barnabas_broker.coordinators.transactions.decisions import Decision
from barnabas_broker.coordinators.transactions.transaction import NO_PRODUCER_ID
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
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


async def outcome(start: Callable[[Callable[[Decision], object]], object], *, knows_fenced: bool) -> Decision:
    """Return the coordinator's decision, after the decision is committed to the transaction log.

    If `knows_fenced` is False, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED, which old clients do not know.
    """
    decision: Decision = await awaited(start)
    if decision.error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return decision._replace(error=ErrorCode.INVALID_PRODUCER_EPOCH)
    return decision


async def id_if_lacking(environment: HandlerEnvironment, transactional_id: str, *, if_unknown: bool) -> int:
    """Return a new producer id if the coordinator may need one, else NO_PRODUCER_ID.

    Raises ApiError if no producer id can be allocated.
    """
    if environment.transactions.lacks_id(transactional_id, if_unknown=if_unknown):
        return await environment.producer_ids.next_id()
    return NO_PRODUCER_ID


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

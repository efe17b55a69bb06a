"""The answers of handlers: large ones in several turns of the event loop, and those that wait for a coordinator.

Each element of an array is encoded in the turn that creates it, because encoding all elements in the last turn would
block the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import wraps
from inspect import isawaitable
from typing import Any, TypedDict, TypeVar, cast

from barnabas_broker.handlers.channel import MessageHandler, RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.wire.encoder import encode_element
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import THINGS_MAX, InSteps, at_once, in_steps
from barnabas_core.topic_partition import TopicPartition

Thing = TypeVar("Thing")
Element = TypeVar("Element")
Path = tuple[str, ...]
"""The path of an array in the response: the names of its field and of the enclosing fields, outermost first."""


def stepwise(handle: Callable[[HandlerEnvironment, RequestContext, Any], InSteps[Any]]) -> MessageHandler:
    """Return a handler that takes the steps of `handle` at once, or in the turns of a large request.

    The result of the last step is a response, or an awaitable of it.
    """

    @wraps(handle)
    def handler(environment: HandlerEnvironment, context: RequestContext, request: Any) -> Any | Awaitable[Any]:
        steps = handle(environment, context, request)
        return at_once(steps) if context.turn is None else _response(context.turn.run(steps))

    return handler


async def _response(handling: Awaitable[Any]) -> Any:
    response = await handling
    return await response if isawaitable(response) else response


class AnswerInTurns:
    """The construction of one large response.

    The methods raise CloseConnection if the client has disconnected, or if the response becomes too large.
    """

    def __init__(self, response: type[object], context: RequestContext, responses: LargeResponses) -> None:
        self._response = response.__name__
        self._version = context.api_version
        self.turn = context.turn or responses.turn(context.is_gone)
        """The SharedTurn that spreads the construction of the response over several turns of the event loop."""
        self._outer_bytes = 0
        self._inner_bytes = 0
        """The bytes encoded so far for nested arrays of the unfinished outer element; 0 if no element is unfinished."""
        self._inner_elements = 0

    def over(self, things: Iterable[Thing]) -> AsyncIterator[Thing]:
        """Yield all items, spread over several turns of the event loop."""
        return self.turn.over(things)

    def along(self, things: Iterable[Thing]) -> AsyncIterator[Thing]:
        """Yield all items, which nothing changes meanwhile, spread over several turns of the event loop."""
        return self.turn.along(things)

    def encoded(self, array: Path, element: Element) -> Element:
        """Encode an element of the response's array at the path `array`, and return the encoded element.

        An outer element that has many encoded elements is returned as it is, and encoded in turns with the response.
        """
        is_outer = len(array) == 1
        if is_outer and self._inner_elements > THINGS_MAX:
            self._outer_bytes += self._inner_bytes
            self._inner_bytes = self._inner_elements = 0
            return element
        encoded = encode_element(self._response, array, self._version, element)
        if is_outer:
            self._outer_bytes += len(encoded)
            self._inner_bytes = self._inner_elements = 0
        else:
            self._inner_bytes += len(encoded)
            self._inner_elements += 1
        self.turn.holds(self._outer_bytes + self._inner_bytes)
        return cast("Element", encoded)

    async def elements(self, array: Path, things: Iterable[Thing], make: Callable[[Thing], Element]) -> list[Element]:
        """Call `make` for each item, and return the results, encoded as elements of the array at the path `array`.

        The items, which nothing may change meanwhile, are spread over several turns of the event loop.
        """
        return [self.encoded(array, make(thing)) async for thing in self.along(things)]


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

"""The construction of large responses in several turns of the event loop.

Each element of an array is encoded in the turn that creates it, because encoding all elements in the last turn would
block the event loop.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import wraps
from inspect import isawaitable
from typing import Any, TypeVar, cast

from barnabas_broker.handlers.channel import MessageHandler, RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.wire.encoder import encode_element
from barnabas_core.loop_turns import THINGS_MAX, InSteps, at_once

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

"""Answers with arrays that may be long: elements are made and encoded one after the other, some a turn of the loop.

To encode an answer takes about half as long as to make it, so that is not left for the last turn.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar, cast

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.wire.codec import encode_element

Thing = TypeVar("Thing")
Element = TypeVar("Element")
Path = tuple[str, ...]
"""The place of an array in the response: the names of the fields."""


class AnswerInTurns:
    """The construction of one large response. Raises CloseConnection if the client has left, or it grows too large."""

    def __init__(self, response: type[object], context: RequestContext, responses: LargeResponses) -> None:
        self._response = response.__name__
        self._version = context.api_version
        self.turn = responses.turn(context.is_gone)
        """The turn of this response, to give way in the middle of an element."""
        self._outer_bytes = 0
        self._inner_bytes = 0
        """The bytes of encoded inner elements whose outer element is not encoded yet."""

    def over(self, things: Iterable[Thing]) -> AsyncIterator[Thing]:
        """Yield all things, some in each turn of the loop."""
        return self.turn.over(things)

    def encoded(self, array: Path, element: Element) -> Element:
        """Return an array's element in encoded form, which takes its place in the response."""
        encoded = encode_element(self._response, array, self._version, element)
        if len(array) == 1:
            self._outer_bytes += len(encoded)
            self._inner_bytes = 0
        else:
            self._inner_bytes += len(encoded)
        self.turn.holds(self._outer_bytes + self._inner_bytes)
        return cast("Element", encoded)

    async def elements(self, array: Path, things: Iterable[Thing], make: Callable[[Thing], Element]) -> list[Element]:
        """Return an array's elements in encoded form, each made by `make` when its turn comes."""
        return [self.encoded(array, make(thing)) async for thing in self.over(things)]

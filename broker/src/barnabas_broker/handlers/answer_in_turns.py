"""Answers with arrays that may be long: elements are made and encoded one after the other, some a turn of the loop.

To encode an answer takes about half as long as to make it, so that is not left for the last turn.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar, cast

from barnabas_broker.wire.codec import encode_element
from barnabas_core.clock import Clock
from barnabas_core.fair_turns import FairTurn

Thing = TypeVar("Thing")
Element = TypeVar("Element")
Path = tuple[str, ...]
"""Where an array lies in the response: the names of the fields."""


class AnswerInTurns:
    """How one response is made."""

    def __init__(self, response: type[object], version: int, clock: Clock) -> None:
        self._response = response.__name__
        self._version = version
        self._turn = FairTurn(clock)

    def over(self, things: Iterable[Thing]) -> AsyncIterator[Thing]:
        """All of them, some a turn."""
        return self._turn.over(things)

    def encoded(self, array: Path, element: Element) -> Element:
        """What may stand for an element of an array where the response is encoded."""
        return cast("Element", encode_element(self._response, array, self._version, element))

    async def elements(self, array: Path, things: Iterable[Thing], make: Callable[[Thing], Element]) -> list[Element]:
        """Elements of an array, encoded: what `make` gives for each thing when its turn comes."""
        return [self.encoded(array, make(thing)) async for thing in self.over(things)]

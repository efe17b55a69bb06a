"""A very large request, answered turn by turn, and the share of the work that each turn has."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutine
from typing import Any, NamedTuple

from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.table import message_handler
from barnabas_broker.wire.encoder import decode_response, encode_response
from barnabas_broker.wire.framing import API_SPECS
from harness.manual_clock import ManualClock

MANY = 100
"""The number of things to ask for: with a `SlowClock` they take two dozen turns or more."""
MOST = 0.25
"""The share of the work of such a request that no turn reaches; a single turn would have all of it."""


class SlowClock(ManualClock):
    """A clock on which each reading takes a millisecond, so that few things are done in a turn."""

    def monotonic_s(self) -> float:
        self.passed_ms += 1
        return super().monotonic_s()


class Answered(NamedTuple):
    """An answer as the client decodes it; how many functions each turn has called, with the encoding in the last."""

    answer: Any
    calls: list[int]

    @property
    def largest_share(self) -> float:
        """The part of the work that one turn has at most."""
        return max(self.calls) / sum(self.calls)


class CallsOfTurns:
    """The function calls of each turn: their count is the same on every machine, however busy it is."""

    def __init__(self) -> None:
        self.of_turns: list[int] = []

    @contextmanager
    def turn(self) -> Iterator[None]:
        self.of_turns.append(0)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _called(self, frame: object, event: str, argument: object) -> None:
        self.of_turns[-1] += event in ("call", "c_call")


def ask(environment: Any, request: Any, version: int, between: Callable[[int], object] = lambda _: None) -> Answered:
    """`between` is called after each turn with its number, from 1."""
    name = type(request).__name__.removesuffix("Request")
    (api_key,) = (spec.key for spec in API_SPECS.values() if spec.name == name)
    context = RequestContext(api_key, version, Client("PLAINTEXT", "127.0.0.1:5", "a test"))
    handle, calls = message_handler(api_key), CallsOfTurns()
    with calls.turn():
        message = handle(environment, context, request)
    if iscoroutine(message):
        message = _last_turn(message, calls, between)
    with calls.turn():
        frame = encode_response(message, version, 1)
    return Answered(decode_response(f"{name}Response", version, memoryview(frame)[4:]), calls.of_turns)


def _last_turn(answering: Any, calls: CallsOfTurns, between: Callable[[int], object]) -> Any:
    """Run all turns, and return the result of the last one."""
    while True:
        try:
            with calls.turn():
                answering.send(None)
        except StopIteration as end:
            return end.value
        between(len(calls.of_turns) - 1)

"""Waiting for a state of the world: look again until it is so or the deadline has passed."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
POLL_SECONDS = 0.02
PATIENCE_S = 300.0
"""How long a test waits for what takes seconds: a passing test never waits so long, however busy the machine is."""


def wait_for(
    look: Callable[[], Value],
    expected: Callable[[Value], bool] = bool,
    seconds_max: float = PATIENCE_S,
    pause_s: float = POLL_SECONDS,
) -> Value:
    """The first value that is as expected; an AssertionError with the last one after the deadline.

    A look that costs something, while what it looks at is measured, wants a longer pause.
    """
    deadline = time.monotonic() + seconds_max
    while True:
        value = look()
        if expected(value):
            return value
        assert time.monotonic() < deadline, f"after {seconds_max:.0f} s still {value!r}"
        time.sleep(pause_s)

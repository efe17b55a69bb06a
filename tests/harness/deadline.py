"""Waiting for a state of the world: look again until it is so or the deadline has passed."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
POLL_SECONDS = 0.02


def wait_for(
    look: Callable[[], Value],
    expected: Callable[[Value], bool] = bool,
    seconds_max: float = 30.0,
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

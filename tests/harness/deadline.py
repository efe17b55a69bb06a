"""Waits for a state: looks again until it is as expected, or the deadline has passed."""

import resource
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
POLL_SECONDS = 0.02
PATIENCE_S = 300.0
"""The time that a test waits for work of seconds: a passing test never waits that long, however busy the machine is."""
REST_OVER_LOOK = 8.0
"""The rest after a look, in times of the processor time that it took: the awaited work needs the processor, too."""
REST_SECONDS_MAX = 1.0


def wait_for(
    look: Callable[[], Value],
    expected: Callable[[Value], bool] = bool,
    seconds_max: float = PATIENCE_S,
    pause_s: float = POLL_SECONDS,
) -> Value:
    """Return the first value that is as expected; after the deadline raise AssertionError with the last one.

    If a look disturbs the measurement of what it looks at, pass a longer pause.
    """
    deadline = time.monotonic() + seconds_max
    while True:
        used_s = _used_s()
        value = look()
        if expected(value):
            return value
        assert time.monotonic() < deadline, f"after {seconds_max:.0f} s still {value!r}"
        rest_s = min(REST_OVER_LOOK * (_used_s() - used_s), REST_SECONDS_MAX)
        time.sleep(max(pause_s, rest_s))


def _used_s() -> float:
    """Return the processor time of this process, and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime

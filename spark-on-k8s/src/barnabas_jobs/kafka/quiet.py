"""Waits until nobody writes to a topic: requests of a driver or an executor that died may still be on their way."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from barnabas_jobs.planning.errors import JobFailed

QUIET_S: Final = 3.0
QUIET_SECONDS_MAX: Final = 120.0
POLL_S: Final = 0.5

Ends = TypeVar("Ends")


def quiet_ends(topic: str, ends: Callable[[], Ends]) -> Ends:
    """Where the topic ends, after that has not changed for a while. Raises JobFailed if it keeps changing."""
    found, began, since = ends(), time.monotonic(), time.monotonic()
    while time.monotonic() - since < QUIET_S:
        if time.monotonic() - began > QUIET_SECONDS_MAX:
            raise JobFailed(f"somebody writes to {topic}: restore into a topic to which nobody writes")
        time.sleep(POLL_S)
        now = ends()
        if now != found:
            found, since = now, time.monotonic()
    return found

"""Waits until nobody writes to a topic: requests of a driver or an executor that died may still be on their way.

A task gives up after SILENT_S without an acknowledgement, so after QUIET_S without a new record no task before this one
writes any more. QUIET_S is also longer than a replica can hold up the high watermark, by which ends are seen: that is
`replica.lag.time.max.ms`, 30 s by default, and half of it until the leader looks.
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from barnabas_jobs.planning.errors import JobFailed

SILENT_S: Final = 40.0
QUIET_S: Final = 50.0
QUIET_SECONDS_MAX: Final = 600.0
POLL_S: Final = 0.5

Ends = TypeVar("Ends")


def quiet_ends(topic: str, ends: Callable[[], Ends], quiet_s: float) -> Ends:
    """Return where the topic ends, after that has not changed for `quiet_s`. Raises JobFailed if it keeps changing."""
    found, began, since = ends(), time.monotonic(), time.monotonic()
    while time.monotonic() - since < quiet_s:
        if time.monotonic() - began > QUIET_SECONDS_MAX:
            raise JobFailed(f"somebody writes to {topic}: restore into a topic to which nobody writes")
        time.sleep(POLL_S)
        now = ends()
        if now != found:
            found, since = now, time.monotonic()
    return found

"""A wait until nobody writes to a topic, because requests of a dead driver or executor may still arrive.

A task fails after SILENT_S without an acknowledgement. After QUIET_S without a new record, no task of the dead driver
or executor therefore writes any more.

A slow replica can hide new records, because it holds back the high watermark, up to which consumers read. By default it
can do so for at most 45 s, which is less than QUIET_S: every 15 s, the leader removes replicas from the ISR that have
been behind for `replica.lag.time.max.ms` (30 s).
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
    """Return the end offsets of the topic once they have not changed for `quiet_s` seconds.

    Raises JobFailed if they still change after QUIET_SECONDS_MAX seconds: then another client is writing to the topic.
    """
    found, began, since = ends(), time.monotonic(), time.monotonic()
    while time.monotonic() - since < quiet_s:
        if time.monotonic() - began > QUIET_SECONDS_MAX:
            raise JobFailed(f"another client writes to {topic}; restore into a topic to which no other client writes")
        time.sleep(POLL_S)
        now = ends()
        if now != found:
            found, since = now, time.monotonic()
    return found

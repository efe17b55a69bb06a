"""One small record after the other from one raw client, whose round trips show the effect of other load."""

import socket
import time
from collections.abc import Callable

from bench import raw_requests
from bench.clients.job import NotRun
from bench.metrics import Measurement

WAIT_S: float = 30.0


def produce_round_trips(port: int, topic: str, count: int, goes_on: Callable[[], bool] = lambda: False) -> Measurement:
    """Measure at least `count` round trips, and as long as `goes_on`."""
    took_s: list[float] = []
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        while len(took_s) < count or goes_on():
            began_s = time.monotonic()
            try:
                if not raw_requests.acknowledged(connection, topic):
                    raise NotRun("a record was refused")
            except TimeoutError:
                raise NotRun(f"no acknowledgement in {WAIT_S:.0f} s") from None
            took_s.append(time.monotonic() - began_s)
            time.sleep(0.001)
    took_s.sort()
    return {"p50_us": took_s[len(took_s) // 2] * 1e6, "p99_us": took_s[int(len(took_s) * 0.99)] * 1e6}

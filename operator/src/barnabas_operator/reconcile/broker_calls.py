"""Blocking calls to brokers, in a separate thread pool, so that they cannot delay asyncio's DNS lookups."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

from barnabas_operator.reconcile.reconcile_parts import retry_pause_s

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE_MAX: Final = 64
"""The number of threads, enough for 100 unreachable Clusters, because each holds a thread for 3 s of every 8 s."""
LOOK_S_MAX: Final = 5.0
_THREADS: Final = ThreadPoolExecutor(AT_ONCE_MAX, "brokers")


async def blocking(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the call in a thread; return its result, or raise its exception."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(call, *args, **kwargs))


class BrokerBackoff:
    """The backoff for brokers that do not answer: each pause is twice the previous pause, up to 5 s.

    The first pause is twice `first_s`.
    """

    def __init__(self, first_s: float, now_s: Callable[[], float]) -> None:
        self._first_s = first_s
        self._now_s = now_s
        self._failures = 0
        self._wait_until_s = 0.0

    @property
    def is_over(self) -> bool:
        """True if the pause is over, so that brokers may be asked again."""
        return self._now_s() >= self._wait_until_s

    def lose(self) -> None:
        """Begin the next, longer pause, because no broker answered."""
        self._failures += 1
        self._wait_until_s = self._now_s() + min(LOOK_S_MAX, retry_pause_s(self._first_s, self._failures))

    def renew(self) -> None:
        """Reset the backoff, because a broker answered or a pod has changed."""
        self._failures, self._wait_until_s = 0, 0.0

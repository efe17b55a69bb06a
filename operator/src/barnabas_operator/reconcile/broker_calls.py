"""Calls to brokers, which block: they run in threads of their own, apart from those of asyncio's name lookups."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

from barnabas_operator.reconcile.reconcile_parts import retry_pause_s

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE_MAX: Final = 64
"""The number of threads. A silent Cluster holds one for 3 s of every 8 s: with a hundred of them some are left."""
LOOK_S_MAX: Final = 5.0
_THREADS: Final = ThreadPoolExecutor(AT_ONCE_MAX, "brokers")


async def blocking(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the call in a thread; return its result, or raise its exception.

    If the caller is cancelled, the thread ends by itself.
    """
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(call, *args, **kwargs))


class BrokerBackoff:
    """The backoff for brokers that did not answer: ask after 1, 2, 4, 5, 5, ... s, where `first_s` is 0.5."""

    def __init__(self, first_s: float, now_s: Callable[[], float]) -> None:
        self._first_s = first_s
        self._now_s = now_s
        self._failures = 0
        self._wait_until_s = 0.0

    @property
    def is_over(self) -> bool:
        """True if brokers may be asked again."""
        return self._now_s() >= self._wait_until_s

    def lose(self) -> None:
        """Note that no broker answered: the next request waits."""
        self._failures += 1
        self._wait_until_s = self._now_s() + min(LOOK_S_MAX, retry_pause_s(self._first_s, self._failures))

    def renew(self) -> None:
        """Reset the backoff: a broker answered, or a pod has changed."""
        self._failures, self._wait_until_s = 0, 0.0

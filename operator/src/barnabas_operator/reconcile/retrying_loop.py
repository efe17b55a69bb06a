"""A loop that repeats its work, logs errors, and backs off."""

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from barnabas_core.clock import LoopClock
from barnabas_operator.reconcile.reconcile_parts import is_expected, retry_pause_s

log = logging.getLogger(__name__)


class MustEnd(Exception):
    """The error after which the operator must end and be started again; the message says why."""


def _ignore(_took_s: float, _has_succeeded: bool) -> None:
    return


class RetryingLoop:
    """The loop that repeatedly calls `wait` with a pause in seconds, and then `attempt`, which returns the next pause.

    After each attempt, the loop calls `on_end` with two arguments: the duration of the attempt in seconds, and whether
    the attempt succeeded.
    """

    def __init__(
        self,
        what: str,
        wait: Callable[[float], Awaitable[object]],
        attempt: Callable[[], Awaitable[float]],
        clock: LoopClock,
        retry_s: float,
        on_end: Callable[[float, bool], object] = _ignore,
    ) -> None:
        self._what = what
        self._wait = wait
        self._attempt = attempt
        self._clock = clock
        self._retry_s = retry_s
        self._on_end = on_end
        self._failures = 0
        self._began_at: float | None = None

    async def run(self) -> NoReturn:
        """Repeat the attempts until cancelled. Raises MustEnd if an attempt does."""
        pause_s = 0.0
        while True:
            await self._wait(pause_s)
            began_at = self._began_at = self._clock.monotonic_s()
            pause_s = await self._try()
            self._began_at = None
            self._on_end(self._clock.monotonic_s() - began_at, self._failures == 0)

    async def _try(self) -> float:
        try:
            pause_s = await self._attempt()
        except MustEnd:
            raise
        except Exception as error:  # The loop must survive every error, because nothing restarts it.
            self._failures += 1
            pause_s = retry_pause_s(self._retry_s, self._failures)
            is_bug = not is_expected(error)
            log.warning(
                "%s: an error occurred; trying again in %.1f s: %s", self._what, pause_s, error, exc_info=is_bug
            )
        else:
            self._failures = 0
        return pause_s

    @property
    def took_s(self) -> float:
        """Return the seconds that the running attempt has taken so far; 0 between attempts."""
        return self.idle_s(0.0)

    def idle_s(self, acted_at: float) -> float:
        """Return the seconds without progress in the running attempt; 0 between attempts.

        `acted_at` is the monotonic time of the last progress, which may be before the start of the attempt.
        """
        if self._began_at is None:
            return 0.0
        return self._clock.monotonic_s() - max(self._began_at, acted_at)

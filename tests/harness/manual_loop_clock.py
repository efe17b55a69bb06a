"""Clocks for tests of coroutines that wait: a wait ends only when the test, or the clock itself, lets time pass."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.manual_clock import ManualClock
from harness.manual_timers import ManualTimers


class ManualLoopClock(ManualClock):
    """A `barnabas_core.clock.LoopClock`: its waits end when a test lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self._timers = ManualTimers(self)

    @property
    def waits_s(self) -> list[float]:
        """Return the lengths of all waits and time-outs under way."""
        return [timer.delay_s for timer in self._timers.waiting]

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        is_over = asyncio.Event()
        timer = self._timers.call_later(seconds, is_over.set)
        try:
            await is_over.wait()
        finally:
            timer.cancel()

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(0 if seconds <= 0 else None) as bound:
            timer = self._timers.call_later(seconds, lambda: bound.reschedule(loop.time()))
            try:
                yield
            finally:
                timer.cancel()

    def pass_time(self, seconds: float) -> None:
        """Let time pass: every wait that ends meanwhile goes on in the loop's next turns."""
        self._timers.pass_time(seconds)


class HurriedClock(ManualLoopClock):
    """A clock on which time passes as soon as anybody sleeps; for one coroutine that would otherwise never end."""

    async def sleep(self, seconds: float) -> None:
        self.pass_time(seconds)
        await asyncio.sleep(0)

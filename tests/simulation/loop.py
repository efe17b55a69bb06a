"""An asyncio event loop on simulated time: nothing sleeps, nothing is random, and every turn belongs to a machine.

A machine is a `Host`: what runs in its context stands still while it is paused, and never runs again once it has
crashed. Sockets, threads and the wall clock have no place here; what wants a thread runs a little later, in one piece.
"""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final
from weakref import WeakSet

THREAD_DELAYS_S: Final = (0.0, 0.0, 0.001, 0.01, 0.1)
START_MS: Final = 1_700_000_000_000

_host: contextvars.ContextVar["Host | None"] = contextvars.ContextVar("host", default=None)


class Deadlock(Exception):
    """The error that everybody waits for somebody, and no time will help."""


class MachineClock:
    """The clock of one machine."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop
        self.ahead_s = 0.0
        """The time by which it was set ahead of the true time; below 0 it is behind."""
        self.drift = 0.0
        """The seconds that it gains in a second."""
        self.booted_s = 0.0
        """The true time at which the machine was started."""

    def now_s(self) -> float:
        """Return the wall clock, since the simulation began."""
        return self._loop.time() * (1 + self.drift) + self.ahead_s

    def since_boot_s(self) -> float:
        """Return the time since the boot, which nobody can set."""
        return self._loop.time() - self.booted_s


class Host:
    """One life of one machine's process."""

    def __init__(self, name: str, loop: "SimulatedLoop", clock: MachineClock | None = None) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self._clock = clock or MachineClock(loop)
        self._loop = loop
        self._held: list[_Bound] = []
        self._works: WeakSet[Coroutine[Any, Any, Any]] = WeakSet()
        self.context = contextvars.copy_context()
        self.context.run(_host.set, self)

    def die(self) -> None:
        """End the process: it runs nothing any more."""
        self.is_dead = True
        for work in list(self._works):
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()

    def is_given(self, work: Coroutine[Any, Any, Any]) -> None:
        """Give the machine a task that has not begun."""
        self._works.add(work)

    def hold(self, bound: "_Bound") -> None:
        """Keep what is due until the pause is over."""
        self._held.append(bound)

    def resume(self) -> None:
        """End the pause: run what was due meanwhile, in order."""
        self.is_paused = False
        held, self._held = self._held, []
        for bound in held:
            bound.again(self._loop)

    def now_ms(self) -> int:
        """Return the machine's wall clock."""
        return START_MS + int(self._clock.now_s() * 1000)

    def monotonic_s(self) -> float:
        """Return seconds that nobody can set."""
        return self._clock.since_boot_s()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call it after a delay, on this machine."""
        return self._loop.call_later(delay_s, callback, context=self.context)

    def call_soon(self, callback: Callable[[], object]) -> asyncio.Handle:
        """Call it in this machine's next turn."""
        return self._loop.call_soon(callback, context=self.context)


class _Bound:
    """A callback that belongs to a host."""

    __slots__ = ("args", "callback", "context", "handle", "host")

    def __init__(self, host: Host, callback: Callable[..., object], args: tuple[Any, ...], context: Any) -> None:
        self.host = host
        self.callback = callback
        self.args = args
        self.context = context
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        if self.host.is_paused and not self.host.is_dead:
            self.host.hold(self)
            return
        # Its handle knows it, too: a circle of two for each turn would wait for the garbage collector.
        handle, self.handle = self.handle, None
        if not self.host.is_dead and (handle is None or not handle.cancelled()):
            self.callback(*self.args)

    def again(self, loop: "SimulatedLoop") -> None:
        """Schedule it again after a pause; if the first handle was cancelled meanwhile, `__call__` sees it."""
        asyncio.BaseEventLoop.call_soon(loop, self, context=self.context)


class _Selector:
    """A selector that moves the clock where a real one waits for sockets."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock
        self._loop.advance(timeout)
        return []

    def close(self) -> None:
        """Close nothing."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """A loop whose `run_until_complete` runs as fast as the machine can."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._now_s = 0.0
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass in which nothing happens."""
        self._now_s += seconds

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        context = contextvars.copy_context() if context is None else context
        host = context.get(_host)
        if host is None:
            return super().call_soon(callback, *args, context=context)
        bound = _Bound(host, callback, args, context)
        bound.handle = super().call_soon(bound, context=context)
        return bound.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        host = context.get(_host)
        if host is None:
            return super().call_at(when, callback, *args, context=context)
        bound = _Bound(host, callback, args, context)
        handle = super().call_at(when, bound, context=context)
        bound.handle = handle
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = self.create_future()

        def run() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        self.call_later(self._random.choice(THREAD_DELAYS_S), run)
        return future

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Leave the generator alone: a watcher of the store whose process is killed is not closed in good order."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: nobody else wakes this loop."""

    def end(self) -> None:
        """The simulation is over: what still runs ends now, while there is a loop, as if all were killed.

        The garbage collector would end it in any order, some of it after the loop: and who lets go of a lock then, or
        cancels a task, cannot tell who waits for that.
        """
        asyncio._set_running_loop(self)  # As for all that ever ran in it.
        for task in asyncio.all_tasks(self):
            try:
                task.get_coro().close()
            except Exception as error:
                self.call_exception_handler({"message": f"{task} does not end", "exception": error})
        asyncio._set_running_loop(None)
        self.close()

    def spawn(self, host: Host | None, work: Any) -> "asyncio.Task[Any]":
        """Start a task on a machine."""
        if host is None:
            return self.create_task(work)
        host.is_given(work)
        return self.create_task(work, context=host.context)

"""The time, and one timer for each name, such as a group, set to the first of the name's deadlines."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from barnabas_core.clock import Cancellable, Clock, Timers


class Now(NamedTuple):
    """The current time: the wall-clock time `wall_ms` for records, and the monotonic time `steady_ms` for deadlines."""

    wall_ms: int
    steady_ms: int


class _Alarm(NamedTuple):
    at_ms: int
    timer: Cancellable


class Alarms:
    """The timers of one coordinator's partition."""

    def __init__(self, timers: Timers, clock: Clock, wake: Callable[[str], object]) -> None:
        """Create the collection; `wake` is called with a name when its timer fires."""
        self._timers = timers
        self._clock = clock
        self._wake = wake
        self._alarms: dict[str, _Alarm] = {}

    def set(self, name: str, at_ms: int | None) -> None:
        """Set the timer of a name to a monotonic time, unless the timer already fires earlier; None sets none."""
        if at_ms is None:
            return
        alarm = self._alarms.get(name)
        if alarm is not None:
            if alarm.at_ms <= at_ms:
                return
            alarm.timer.cancel()
        delay_s = max(at_ms - int(self._clock.monotonic_s() * 1000), 0) / 1000
        self._alarms[name] = _Alarm(at_ms, self._timers.call_later(delay_s, partial(self._fire, name)))

    def _fire(self, name: str) -> None:
        del self._alarms[name]
        self._wake(name)

    def cancel_all(self) -> None:
        """Cancel all timers."""
        for alarm in self._alarms.values():
            alarm.timer.cancel()
        self._alarms.clear()

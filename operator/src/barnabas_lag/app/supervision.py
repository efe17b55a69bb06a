"""The supervision of the exporter's loop: if the loop ends or hangs, the process ends, and Kubernetes restarts it."""

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
HANG_MIN_S: Final = 120.0
"""The shortest time in seconds after which a round of requests to the brokers counts as hanging.

Brokers that do not answer may delay the round almost as long.
"""
HANG_ROUNDS: Final = 4


def hang_s(interval_s: float) -> float:
    """Return the seconds after which a round of requests to the brokers, with the pause after it, counts as hanging."""
    return max(HANG_MIN_S, HANG_ROUNDS * interval_s)


class Supervised:
    """A thread that works until `stop` is set; a new value of `progress` shows that the thread does not hang."""

    def __init__(self, work: Callable[[Event], object], progress: Callable[[], object]) -> None:
        self.stop: Final = Event()
        self.failure: str | None = None
        """The reason why the process must end, or None."""
        self._progress = progress
        self._thread = Thread(target=self._run, args=(work,), name="rounds", daemon=True)

    def _run(self, work: Callable[[Event], object]) -> None:
        try:
            work(self.stop)
        except Exception as error:
            log.exception("a round of requests to the brokers failed")
            self.failure = f"a round of requests to the brokers failed: {type(error).__name__}: {error}"
            self.stop.set()

    def watch(self, hang_after_s: float, look_s: float = LOOK_S) -> None:
        """Start the thread, and return when `stop` is set, or when the thread fails or hangs; `failure` has the reason.

        The thread hangs if `progress` returns the same value for `hang_after_s` seconds. The seconds are counted in
        pauses of `look_s`, not by a clock, so that the time in which the process was suspended does not count.
        """
        self._thread.start()
        seen, looks = self._progress(), 0
        while not self.stop.wait(look_s):
            now = self._progress()
            seen, looks = now, looks + 1 if now == seen else 0
            if looks * look_s > hang_after_s:
                self.failure = f"a round of requests to the brokers hangs: it has not ended within {hang_after_s:g} s"
                return

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` for the end of the thread."""
        self._thread.join(seconds)

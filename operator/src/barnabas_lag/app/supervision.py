"""The end of the process when its rounds end or hang: a supervisor such as Kubernetes restarts it."""

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
HANG_MIN_S: Final = 120.0
"""Longer than any round may wait for brokers that do not answer."""
HANG_ROUNDS: Final = 4


def hang_s(interval_s: float) -> float:
    """Return the seconds after which a round, with the pause that follows it, counts as hanging."""
    return max(HANG_MIN_S, HANG_ROUNDS * interval_s)


class Supervised:
    """A thread that must go on until `stop` is set. `begun_s` tells when it last did, on the clock of `steady_s`."""

    def __init__(self, work: Callable[[Event], object], progress: Callable[[], object]) -> None:
        self.stop: Final = Event()
        self.failure: str | None = None
        """The reason why the process must end; None while it need not."""
        self._progress = progress
        self._thread = Thread(target=self._run, args=(work,), name="rounds", daemon=True)

    def _run(self, work: Callable[[Event], object]) -> None:
        try:
            work(self.stop)
        except Exception as error:
            log.exception("a round failed")
            self.failure = f"a round failed: {type(error).__name__}: {error}"
            self.stop.set()

    def watch(self, hang_after_s: float, look_s: float = LOOK_S) -> None:
        """Start the thread, and return when `stop` is set or it cannot go on; `failure` says why.

        It counts its own looks: a process that stood still is not blamed.
        """
        self._thread.start()
        seen, looks = self._progress(), 0
        while not self.stop.wait(look_s):
            now = self._progress()
            seen, looks = now, looks + 1 if now == seen else 0
            if looks * look_s > hang_after_s:
                self.failure = f"a round hangs, it has not ended for {hang_after_s:g} s"
                return

    def join(self, seconds: float) -> None:
        """Wait until the thread ends, so many seconds at most."""
        self._thread.join(seconds)

"""The loading of logs in a thread, so that the event loop can report progress and react to signals."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from barnabas_broker.storage.log_dirs.log_dir_loader import LoadProgress
from barnabas_core.clock import Clock

R = TypeVar("R")

log = logging.getLogger(__name__)

PROGRESS_S: Final = 5.0


async def in_daemon_thread(call: Callable[[], R]) -> R:
    """Run `call` in a daemon thread and return its result; the process may exit before the thread has ended."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[R] = loop.create_future()

    def resolve(set_outcome: Callable[[], None]) -> None:
        if not outcome.done():  # The waiting task may have been cancelled.
            set_outcome()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            failure = error
            loop.call_soon_threadsafe(resolve, lambda: outcome.set_exception(failure))
        else:
            loop.call_soon_threadsafe(resolve, lambda: outcome.set_result(result))

    threading.Thread(target=run, name="recovery", daemon=True).start()
    return await outcome


class Recovery:
    """The progress of recovery, for the HTTP pages and for a log line every PROGRESS_S seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said_s = clock.monotonic_s()
        self._last: LoadProgress | None = None

    def advance(self, progress: LoadProgress) -> None:
        """Store the progress after each loaded log, and write a log line every PROGRESS_S seconds.

        The thread that loads the logs calls this method.
        """
        self._last = progress
        now_s = self._clock.monotonic_s()
        if now_s - self._said_s >= PROGRESS_S:
            self._said_s = now_s
            log.info(
                "the broker is loading its logs: %s, and %d bytes have been recovered",
                self.progress(),
                progress.bytes_recovered,
            )

    def progress(self) -> str:
        """Return the progress of loading the logs as the text for the HTTP pages."""
        last = self._last
        if last is None:
            return "starting"
        return f"log dir {last.log_dir} has loaded {last.partitions_done} of {last.partitions_total} partitions"

"""A thread that reads the progress of a running job every second and passes it to listeners."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from py4j.protocol import Py4JError

from barnabas_jobs.planning.progress import Amount, Pace, Progress, Seen

PAUSE_S: Final = 1.0


class Listener(Protocol):
    """An object that receives the progress of a running job."""

    def tell(self, progress: Progress, last: bool = False) -> None:
        """Receive the progress; `last` is true for the final progress of the job. Must not raise."""


@contextmanager
def watched(look: Callable[[], Seen], listeners: Sequence[Listener], pause_s: float = PAUSE_S) -> Iterator[None]:
    """Pass the progress to the listeners from a thread while the block runs, and the final progress at its end."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(look, listeners, ended, pause_s), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(look: Callable[[], Seen], listeners: Sequence[Listener], ended: threading.Event, pause_s: float) -> None:
    pace = Pace()
    progress = pace.progress(Seen(phase="starting", stages=Amount(0, 0), records=Amount(0, None)), time.monotonic())
    try:
        while not ended.wait(pause_s):
            progress = pace.progress(look(), time.monotonic())
            _tell(listeners, progress, last=False)
        progress = pace.progress(look(), time.monotonic())
    except Py4JError as error:
        print(f"barnabas jobs: Spark no longer reports the progress of the job: {error}", file=sys.stderr)
    finally:
        _tell(listeners, progress, last=True)


def _tell(listeners: Sequence[Listener], progress: Progress, last: bool) -> None:
    for listener in listeners:
        listener.tell(progress, last)

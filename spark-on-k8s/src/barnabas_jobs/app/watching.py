"""Looks at a job every second while it runs, and tells all who want to know."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from py4j.protocol import Py4JError

from barnabas_jobs.planning.progress import Pace, Progress, Seen

PAUSE_S: Final = 1.0


class Listener(Protocol):
    """Is told each progress, and which is the last."""

    def tell(self, progress: Progress, last: bool = False) -> None:
        """It must not raise."""


@contextmanager
def watched(look: Callable[[], Seen], listeners: Sequence[Listener], pause_s: float = PAUSE_S) -> Iterator[None]:
    """While inside, a thread tells the listeners; and once more at the end, unless Spark does not answer any more."""
    ended = threading.Event()
    pace = Pace()

    def tell(last: bool) -> None:
        progress = pace.progress(look(), time.monotonic())
        for listener in listeners:
            listener.tell(progress, last)

    def watch() -> None:
        try:
            while not ended.wait(pause_s):
                tell(last=False)
            tell(last=True)
        except Py4JError as error:
            print(f"barnabas jobs: the progress is not known any more: {error}", file=sys.stderr)

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

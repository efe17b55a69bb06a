"""A job without an end of its own: a signal ends it between two commits, and its result says which."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals, signal
from types import FrameType
from typing import Final, Literal

ENDING: Final = (Signals.SIGTERM, Signals.SIGINT)
SignalName = Literal["SIGTERM", "SIGINT"]


class Stopping:
    """The request to end the job. `ended_by` names the signal that made it; None if the caller's event did."""

    def __init__(self, event: threading.Event) -> None:
        self.event = event
        self.ended_by: SignalName | None = None

    def stop(self, number: int, _: FrameType | None) -> None:
        """Handle either signal; the first one counts."""
        if not self.event.is_set():
            self.ended_by = "SIGTERM" if number == Signals.SIGTERM else "SIGINT"
        self.event.set()


@contextmanager
def until_signal(event: threading.Event | None = None) -> Iterator[Stopping]:
    """Set the event on SIGTERM and SIGINT inside, if this thread can handle signals."""
    stopping = Stopping(event or threading.Event())
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    before = {number: signal(number, stopping.stop) for number in ENDING}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal(number, handler)

"""The signals that end a continuous job between two commits."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals, signal
from types import FrameType
from typing import Final, Literal

ENDING: Final = (Signals.SIGTERM, Signals.SIGINT)
SignalName = Literal["SIGTERM", "SIGINT"]


class Stopping:
    """A request to end the job, which is made by setting `event`.

    `ended_by` is the name of the signal that set the event, or None if another thread set it.
    """

    def __init__(self, event: threading.Event) -> None:
        self.event = event
        self.ended_by: SignalName | None = None

    def stop(self, number: int, _: FrameType | None) -> None:
        """Set the event; keep the name of the signal in `ended_by` if the event was not set yet."""
        if not self.event.is_set():
            self.ended_by = "SIGTERM" if number == Signals.SIGTERM else "SIGINT"
        self.event.set()


@contextmanager
def until_signal(event: threading.Event | None = None) -> Iterator[Stopping]:
    """Set the event on SIGTERM or SIGINT while the block runs, if this is the main thread."""
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

"""What the bench does now, for whoever waits for it."""

from collections.abc import Callable


class Status:
    """`show` gets one line: the row and its run, and the step that the scenario is at."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._run = ""

    def run(self, text: str) -> None:
        """A row, on which peer, which repeat."""
        self._run = text
        self._show(text)

    def step(self, text: str) -> None:
        """What a run that takes long does now."""
        self._show(f"{self._run}: {text}")

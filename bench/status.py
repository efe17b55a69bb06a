"""The current step of the bench, for a user who waits for it."""

from collections.abc import Callable


class Status:
    """`show` gets one line: the row with its run, and the step of the scenario."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._run = ""

    def run(self, text: str) -> None:
        """Show the row, the peer and the repeat."""
        self._run = text
        self._show(text)

    def step(self, text: str) -> None:
        """Show the current step of a long run."""
        self._show(f"{self._run}: {text}")

"""The display of progress on standard error: bars on a terminal, otherwise a line every 10 s.

Standard output is for the result alone.
"""

import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from barnabas_jobs.planning.progress import Amount, Listener, Progress

LINE_PAUSE_S: Final = 10.0


def page(stream: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic) -> Listener:
    """Return a display with bars if the stream is a terminal, otherwise a display with lines."""
    return BarsPage(Console(file=stream)) if stream.isatty() else LinesPage(stream, clock)


class LinesPage:
    """A display that prints lines, for a stream that is no terminal."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._printed_at_s = clock()

    def tell(self, progress: Progress, last: bool = False) -> None:
        """Print a line of progress if the last line is at least 10 s old.

        Nothing is printed at the end, because the result follows.
        """
        now_s = self._clock()
        if not last and now_s - self._printed_at_s >= LINE_PAUSE_S:
            self._printed_at_s = now_s
            print(progress, file=self._stream, flush=True)


class Field(ProgressColumn):
    """A column of the progress bars that shows one field of a task, such as `amount`, as text."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def render(self, task: Task) -> Text:
        """Return the text that this column shows beside the bar of `task`."""
        return Text(str(task.fields.get(self._name, "")), style="cyan")


class BarsPage:
    """A display with one bar for each phase, which counts records, and one bar for all Spark stages together."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Field("amount"), Field("pace"))
        self._bars = Bars(*columns, console=console, transient=False)
        self._stages = self._bars.add_task("stages", total=None, amount="")
        self._phases: dict[str, TaskID] = {}
        self._bars.start()

    def tell(self, progress: Progress, last: bool = False) -> None:
        """Update the bar of the stages and that of the phase. A new phase gets a new bar.

        If `last` is true, stop the display.
        """
        if progress.phase not in self._phases:
            self._phases[progress.phase] = self._bars.add_task(progress.phase, total=None)
        self._show(self._phases[progress.phase], progress.records, _pace(progress))
        self._show(self._stages, progress.stages, "")
        if last:
            self._bars.stop()

    def _show(self, task: TaskID, amount: Amount, pace: str) -> None:
        self._bars.update(task, completed=amount.done, total=amount.total, amount=str(amount), pace=pace)


def _pace(progress: Progress) -> str:
    left = (
        "" if progress.seconds_left is None else f", {progress.seconds_left // 60}:{progress.seconds_left % 60:02} left"
    )
    return f"{progress.records_per_second:,}/s{left}" if progress.records_per_second else ""

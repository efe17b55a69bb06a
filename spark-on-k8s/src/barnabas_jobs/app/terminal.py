"""Progress on standard error: bars on a terminal, else a line every 10 s. Standard output is for the result alone."""

import sys
import time
from collections.abc import Callable
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from barnabas_jobs.planning.progress import Amount, Progress

LINE_PAUSE_S: Final = 10.0


class Page(Protocol):
    """The page on which progress is shown."""

    def tell(self, progress: Progress, last: bool = False) -> None:
        """The latest; the last of a job takes its place."""


def page(stream: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic) -> Page:
    """Bars where the stream is a terminal."""
    return BarsPage(Console(file=stream)) if stream.isatty() else LinesPage(stream, clock)


class LinesPage:
    """Prints progress as lines, for a stream that is no terminal."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._printed_at_s = clock()

    def tell(self, progress: Progress, last: bool = False) -> None:
        """Print a line of progress; none of a job that ends within 10 s, and none at the end: the result says it."""
        now_s = self._clock()
        if not last and now_s - self._printed_at_s >= LINE_PAUSE_S:
            self._printed_at_s = now_s
            print(progress, file=self._stream, flush=True)


class Field(ProgressColumn):
    """One of the texts that a bar carries."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def render(self, task: Task) -> Text:
        """The text that was set last."""
        return Text(str(task.fields.get(self._name, "")), style="cyan")


class BarsPage:
    """A bar of the records of each phase, one after the other, and one of all stages."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), Field("amount"), Field("pace"))
        self._bars = Bars(*columns, console=console, transient=False)
        self._stages = self._bars.add_task("stages", total=None, amount="")
        self._phases: dict[str, TaskID] = {}
        self._bars.start()

    def tell(self, progress: Progress, last: bool = False) -> None:
        """The phase's bar and that of the stages."""
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

"""A reader of pages that does what they say, block by block."""

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from documents.pages import Run, Write, lacking, not_run, runnable
from harness.deadline import wait_for

BASH: Final = ("bash", "-euo", "pipefail", "-c")
PAGE_SECONDS_MAX: Final = 600
Around = Callable[[str], AbstractContextManager[object]]
"""A context for each command that a reader runs, as the page has it."""


class WrongPage(Exception):
    """A block that did not do what the page says."""


class Reader:
    """Does pages in a folder. `stands_for` has the values of words such as NAME."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        stands_for: Mapping[str, str],
        around: Around = nullcontext,
    ) -> None:
        self._folder = folder
        self._around = around
        self._environment = dict(environment)
        self._stands_for = stands_for
        self._background: list[subprocess.Popen[bytes]] = []

    def do(self, page: Path) -> None:
        """Do all steps of a page, without those of `not_run.toml`. Raises WrongPage."""
        for step in runnable(page, not_run()):
            if isinstance(step, Write):
                file = self._folder / step.file
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self._filled_in(step.text), encoding="utf-8")
                continue
            began_s = time.monotonic()
            step = step._replace(commands=self._filled_in(step.commands))
            print(f"$ {step.commands.strip()}", flush=True)
            self._begin(step) if step.in_background else self._run(step)
            print(f"[{page.stem}, {time.monotonic() - began_s:.1f} s]", flush=True)

    def with_words(self, stands_for: Mapping[str, str], around: Around = nullcontext) -> "Reader":
        """Return a reader in the same folder who writes other words, too."""
        return Reader(self._folder, self._environment, {**stands_for, **self._stands_for}, around)

    def type(self, commands: str) -> None:
        """Run commands that are in no block. Raises WrongPage."""
        commands = self._filled_in(commands)
        print(f"$ {commands}", flush=True)
        self._run(Run(commands, False, ()))

    @contextmanager
    def until_ctrl_c(self) -> Iterator[None]:
        """Press Ctrl-C at the end for all background programs. Raises WrongPage if one fails then."""
        try:
            yield
        finally:
            for process in reversed(self._background):
                process.send_signal(signal.SIGINT)
            codes = [process.wait(PAGE_SECONDS_MAX) for process in self._background]
            self._background.clear()
        if any(codes):
            raise WrongPage(f"after Ctrl-C what ran in the background ended with the exit codes {codes}")

    def _filled_in(self, text: str) -> str:
        words = "|".join(map(re.escape, self._stands_for))
        return re.sub(rf"(?<!\w)({words})\b", lambda found: self._stands_for[found[1]], text)

    def _begin(self, step: Run) -> None:
        """Start the program, and return once it has printed what the page shows."""
        log = self._folder / f"background-{len(self._background)}.log"
        command = ["env", "--default-signal=INT", *BASH, f"exec {step.commands}"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env=self._environment,
            )
        self._background.append(process)
        wait_for(lambda: process.poll() is not None or not lacking(step.expected, log.read_text("utf-8")))
        if process.poll() is not None:
            raise WrongPage(f"it ended with exit code {process.returncode}:\n{log.read_text('utf-8')}")

    def _run(self, step: Run) -> None:
        """Run the commands; if they show a state that is still to come, repeat them until it is there."""
        with self._around(step.commands):
            self._until_shown(step)

    def _until_shown(self, step: Run) -> None:
        if not step.expected:
            if code := self._bash(step.commands, None).returncode:
                raise WrongPage(f"exit code {code}: {step.commands}")
            return
        shown = wait_for(
            lambda: self._bash(step.commands, subprocess.PIPE).stdout, lambda output: not lacking(step.expected, output)
        )
        print(shown, flush=True)

    def _bash(self, commands: str, output: int | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*BASH, commands], stdout=output, text=True, check=False, cwd=self._folder, env=self._environment
        )

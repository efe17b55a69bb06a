"""Programs under test that are restarted when they end, and killed now and then."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.server_process import bound_to_us


class Program:
    """One process at a time with this command, and its output in a file."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.starts = 0
        self._command = command
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        """Start the program if it does not run."""
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(bound_to_us(self._command), stdout=log, stderr=log)
            self.starts += 1

    def kill(self) -> None:
        """Kill the program by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

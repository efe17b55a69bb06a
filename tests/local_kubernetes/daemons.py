"""Programs in the background, each known by its process id in a file, so that another process can end them later."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from harness.deadline import wait_for
from harness.server_process import bound_to_us
from local_kubernetes.whole_file import write_whole

LOG_LINES = 30
MARK = "BARNABAS_E2E_PROGRAM_OF"
"""A variable in the environment of each program and its children: the folder of the file with its process id."""


class DaemonFailed(AssertionError):
    """The error that a program ended while others need it, with the end of its log."""


class Recorded(NamedTuple):
    """The content of a program's file."""

    order: int
    pid: int
    started_at: int
    """The time at which the process began, by the kernel."""
    end: int
    """The signal that stops it."""


class Daemons:
    """The programs of one folder, each with `NAME.pid` and `NAME.log`.

    If `outlive` is false, the kernel kills them when the thread that started them ends, in whatever way.
    """

    def __init__(self, folder: Path, outlive: bool) -> None:
        self.folder = folder
        self._outlive = outlive
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], end: signal.Signals = signal.SIGTERM) -> None:
        """Start a program without waiting; its output is appended to its log. The signal `end` stops it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log(name).open("ab") as log:
            child = subprocess.Popen(
                command if self._outlive else bound_to_us(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, MARK: str(self.folder)},
            )
        self._children[name] = child
        recorded = Recorded(time.monotonic_ns(), child.pid, _started_at(child.pid), end)
        write_whole(self._file(name), " ".join(f"{int(each)}" for each in recorded))

    def pid(self, name: str) -> int:
        """Return the process id of a running program. Raises DaemonFailed."""
        self.check(name)
        return self._recorded(name).pid

    def is_running(self, name: str) -> bool:
        """True if it was started, here or by another process, and has not ended."""
        if name in self._children:
            return self._children[name].poll() is None
        if not self._file(name).exists():
            return False
        recorded = self._recorded(name)
        return _started_at(recorded.pid) == recorded.started_at

    def check(self, *names: str) -> None:
        """Check that these programs run. Raises DaemonFailed."""
        for name in names:
            if not self.is_running(name):
                raise DaemonFailed(f"{name} has ended:\n{self.log_end(name)}")

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP and SIGCONT."""
        os.kill(self.pid(name), number)

    def stop(self, name: str) -> None:
        """Stop a program and wait; kill it after the deadline. If it does not run, do nothing."""
        if self.is_running(name):
            self.send(name, signal.Signals(self._recorded(name).end))
            try:
                wait_for(lambda: not self.is_running(name))
            except AssertionError:
                self.send(name, signal.SIGKILL)
                wait_for(lambda: not self.is_running(name))
        self._file(name).unlink(missing_ok=True)
        self._children.pop(name, None)

    def names(self) -> list[str]:
        """Return the programs that were started and not stopped, in the order of their starts."""
        found = [path.stem for path in self.folder.glob("*.pid")]
        return sorted(found, key=lambda name: self._recorded(name).order)

    def stop_all(self) -> None:
        """Stop all programs, the last one first, also one whose starter was killed before it wrote the process id."""
        for name in reversed(self.names()):
            self.stop(name)
        wait_for(self._unknown_ended)

    def _unknown_ended(self) -> bool:
        mark = f"{MARK}={self.folder}".encode()
        found: list[int] = []
        for environment in Path("/proc").glob("[0-9]*/environ"):
            # It ended meanwhile, or it is somebody else's.
            with suppress(OSError):
                if mark in environment.read_bytes().split(b"\0"):
                    found.append(int(environment.parent.name))
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    def log_end(self, name: str) -> str:
        """Return the last lines of its output."""
        if not self._log(name).exists():
            return "(it wrote no log)"
        text = self._log(name).read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-LOG_LINES:])

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.pid"

    def _recorded(self, name: str) -> Recorded:
        return Recorded(*map(int, self._file(name).read_text(encoding="ascii").split()))


def _started_at(pid: int) -> int:
    """Return when a process began, in clock ticks since boot; 0 if it has ended.

    With the id this names one process for ever.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    state, *fields = text.rpartition(")")[2].split()
    return 0 if state in "ZX" else int(fields[18])

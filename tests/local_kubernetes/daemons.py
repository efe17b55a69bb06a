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
"""In the environment of each program, and so of what it starts: it says in which folder its process id is written."""


class DaemonFailed(AssertionError):
    """A program ended while others rely on it; carries the end of its log."""


class Recorded(NamedTuple):
    """What the file of a program says."""

    order: int
    pid: int
    started_at: int
    """When the kernel says that it began."""
    end: int
    """The signal that stops it."""


class Daemons:
    """The programs of one folder: `NAME.pid` and `NAME.log` of each.

    Where `outlive` is false the kernel kills them when the thread that started them ends, however that ends.
    """

    def __init__(self, folder: Path, outlive: bool) -> None:
        self.folder = folder
        self._outlive = outlive
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], end: signal.Signals = signal.SIGTERM) -> None:
        """Starts a program and does not wait; its output is appended to its log. `end` is what stops it."""
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
        """The process id of a running program. Raises DaemonFailed."""
        self.check(name)
        return self._recorded(name).pid

    def is_running(self, name: str) -> bool:
        """Whether it was started, here or by another process, and has not ended."""
        if name in self._children:
            return self._children[name].poll() is None
        if not self._file(name).exists():
            return False
        recorded = self._recorded(name)
        return _started_at(recorded.pid) == recorded.started_at

    def check(self, *names: str) -> None:
        """Raises DaemonFailed where one does not run."""
        for name in names:
            if not self.is_running(name):
                raise DaemonFailed(f"{name} has ended:\n{self.log_end(name)}")

    def send(self, name: str, number: signal.Signals) -> None:
        """A signal, such as SIGSTOP and SIGCONT."""
        os.kill(self.pid(name), number)

    def stop(self, name: str) -> None:
        """Ends it and waits; kills one that outstays the deadline. Does nothing where it does not run."""
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
        """All that were started and not stopped, in the order of their starts."""
        found = [path.stem for path in self.folder.glob("*.pid")]
        return sorted(found, key=lambda name: self._recorded(name).order)

    def stop_all(self) -> None:
        """Ends the last one that was started first, then one whose starter was killed before it wrote its id."""
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
        """The last lines of its output."""
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
    """When a process began, in clock ticks since boot: with its id, this names one process for ever. 0: it ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    state, *fields = text.rpartition(")")[2].split()
    return 0 if state in "ZX" else int(fields[18])

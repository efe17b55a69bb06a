"""A child process with a readiness page: start, supervision, restart after a crash, and stop."""

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TextIO

import msgspec

from barnabas_operator.planning.cluster_state import DesiredState
from barnabas_operator.resources.yaml_documents import resources_text

DEFAULT: Final = Path(".barnabas")
STATUS_FILE: Final = "status.yaml"
MEMORY_FILE: Final = "memory.json"
LOCK_FILE: Final = "lock"
SECRET_MODE: Final = 0o600


class DataDirHeld(Exception):
    """The error that another process has locked the data directory; the message has its process id."""


class MemoryBroken(Exception):
    """The error that the resources of the last `barnabas up` cannot be read; the message has the reason."""


class DataDir:
    """A data directory, locked for this process until `release`."""

    def __init__(self, path: Path) -> None:
        """Create and lock the folder. Raises DataDirHeld, or OSError if folder or lock file cannot be created."""
        self.path = path.resolve()
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _take_lock(self.path / LOCK_FILE)
        self._written = b""

    def release(self) -> None:
        """Release the lock, but keep the lock file.

        If the file were deleted, one process could lock the deleted file, and another process a new lock file.
        """
        self._lock.close()

    @property
    def metadata_file(self) -> Path:
        """The SQLite file with the metadata that all brokers share."""
        return self.path / "metadata.sqlite"

    def broker_folder(self, broker_id: int) -> Path:
        """Return the folder with the settings, log and data of one broker."""
        return self.path / f"broker-{broker_id}"

    def write_status(self, wanted: DesiredState) -> None:
        """Write the resources, if they have changed, as JSON for the next `barnabas up` and as YAML for users."""
        memory = msgspec.json.encode(wanted)
        if memory == self._written:
            return
        replace_file(self.path / STATUS_FILE, resources_text(list(wanted.resources)))
        replace_file(self.path / MEMORY_FILE, memory.decode())
        self._written = memory

    def read_status(self) -> DesiredState | None:
        """Return the resources that the last `barnabas up` wrote; None if there are none.

        Raises MemoryBroken if the file cannot be read.
        """
        return read_status(self.path)


def _take_lock(path: Path) -> TextIO:
    lock = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise DataDirHeld(f"{path.parent} is in use by another `barnabas up`, process {holder}") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def read_status(path: Path) -> DesiredState | None:
    """Return the resources that the last `barnabas up` wrote to this data directory; None if there are none.

    Raises MemoryBroken if the file cannot be read.
    """
    file = path / MEMORY_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=DesiredState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise MemoryBroken(f"{file}: {error}") from error


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, so that readers see either the old or the new text."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def replace_secret_file(path: Path, content: str | bytes) -> None:
    """Replace a file atomically by a file that only its owner may read."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, SECRET_MODE), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    partial.replace(path)


READY_POLL_S: Final = 0.01
PROBE_TIMEOUT_S: Final = 2.0
STOP_TIMEOUT_S: Final = 20.0
BACK_OFF_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
# A process that has run for this time is stable, so its next crash counts as the first crash.
STEADY_S: Final = 60.0
LOG_LINES_SHOWN: Final = 10
PID_FILE: Final = "pid"

Say = Callable[[str], None]


class ChildFailed(Exception):
    """The error that a process ended before it was ready; the message has the last lines of the process's log."""


class Child(NamedTuple):
    """A process to start, which is ready once GET `ready_path` on its HTTP port returns 200."""

    name: str
    folder: Path
    log_name: str
    http_port: int
    ready_path: str
    command: tuple[str, ...]


class ChildProcess:
    """A supervised child process; `say` prints a line for the user."""

    def __init__(self, child: Child, say: Say, on_change: Callable[[], None]) -> None:
        """Create the child without starting it; `on_change` is called when the child has died or is ready again."""
        self.restarts = 0
        self.ready = asyncio.Event()
        self._child = child
        self._say = say
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The name of the process in messages."""
        return self._child.name

    @property
    def folder(self) -> Path:
        """The directory with the files of the process."""
        return self._child.folder

    @property
    def log_file(self) -> Path:
        """The log file, to which the process writes its output; a restart appends to the file."""
        return self.folder / self._child.log_name

    async def start(self) -> float:
        """Start and supervise the process; return the seconds until it was ready.

        Raises ChildFailed if the process ends before it is ready.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        seconds = await self._spawn()
        self._supervisor = asyncio.create_task(self._supervise())
        return seconds

    async def stop(self) -> None:
        """End the supervision, and stop the process with SIGTERM, or with SIGKILL after STOP_TIMEOUT_S."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        self.ready.clear()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            self._say(f"{self.name} did not stop within {STOP_TIMEOUT_S:.0f} s, so it is killed")
            process.kill()
            await process.wait()

    def log_end(self) -> str:
        """Return the last LOG_LINES_SHOWN lines of the log file; an empty text if there is no file."""
        text = self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""
        return "\n".join(text.splitlines()[-LOG_LINES_SHOWN:])

    async def _spawn(self) -> float:
        started = time.monotonic()
        with self.log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._child.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C in the terminal then reaches only `barnabas up`, which stops its children in order.
                start_new_session=True,
            )
        replace_file(self.folder / PID_FILE, f"{self._process.pid}\n")
        while not await self._answers():
            if self._process.returncode is not None:
                status = self._process.returncode
                raise ChildFailed(f"{self.name} ended with status {status}; see {self.log_file}:\n{self.log_end()}")
            await asyncio.sleep(READY_POLL_S)
        self.ready.set()
        return time.monotonic() - started

    async def _supervise(self) -> None:
        """Start the process again whenever it ends, after a pause that grows with each consecutive failure."""
        failures = 0
        while True:
            assert self._process is not None
            began = time.monotonic()
            status = await self._process.wait()
            self.ready.clear()
            self._on_change()
            failures = 0 if time.monotonic() - began > STEADY_S else failures
            while not self.ready.is_set():
                pause = BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
                failures += 1
                self._say(f"{self.name} died ({_status_text(status)}); starting it again in {pause:g} s")
                await asyncio.sleep(pause)
                status = await self._start_again(status)

    async def _start_again(self, status: int) -> int:
        try:
            seconds = await self._spawn()
        except ChildFailed:
            assert self._process is not None
            return self._process.returncode or status
        self.restarts += 1
        self._say(f"{self.name} is ready again after {seconds:.2f} s")
        self._on_change()
        return status

    async def _answers(self) -> bool:
        """True if GET `ready_path` returns 200 within PROBE_TIMEOUT_S."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                return await _http_status(self._child.http_port, self._child.ready_path) == 200
        except (OSError, TimeoutError):
            return False


async def end_leftover(folder: Path, mark: str, name: str, say: Say) -> None:
    """End the child that a killed `barnabas up` left running in `folder`, because it still uses its ports and files.

    A process without the argument `mark` is another program, which has got the id of an ended child.
    """
    pid = _leftover(folder, mark)
    if pid is None:
        return
    say(f"{name} of an earlier run is still running; stopping the old process {pid}")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while _leftover(folder, mark) is not None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(READY_POLL_S)


def _leftover(folder: Path, mark: str) -> int | None:
    try:
        pid = int((folder / PID_FILE).read_text(encoding="utf-8"))
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (OSError, ValueError):
        return None
    return pid if mark in command else None


def _status_text(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


async def _http_status(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        words = (await reader.readline()).split()
        return int(words[1]) if len(words) > 1 else 0
    finally:
        writer.close()

"""A server under test as a child process, which is started, awaited, and stopped by its own process id."""

import fcntl
import functools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.deadline import PATIENCE_S
from harness.soak import size

# Only the soak has the machine to itself.
START_SECONDS_MAX = size(PATIENCE_S, 60.0)
STOP_SECONDS_MAX = size(PATIENCE_S, 60.0)
POLL_SECONDS = 0.02
# Below the range from which the kernel takes ports for outgoing connections: a port chosen here stays free while a
# server that had it is restarted.
PORTS = range(20_000, 30_000)

# Of CPU, not of time: on a busy machine a process stands in a queue. The broker writes this line from half a second on.
TURN_CPU_SECONDS_MAX = 1.0
LONG_TURN = re.compile(r"an iteration of the event loop took .* s and used ([0-9.]+) s of CPU; .*")


class ServerFailed(AssertionError):
    """The error that the server ended or did not answer before the deadline, with the end of its log."""


_given: set[int] = set()


@functools.cache
def _reservations() -> int:
    """Open the file in which each process of tests locks the bytes at the numbers of its ports, until it ends."""
    path = Path(tempfile.gettempdir()) / f"barnabas-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _reserve(port: int) -> bool:
    """True if no other process of tests has the port: a server that restarts would otherwise find its port taken."""
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _given.add(port)
    return True


def free_port() -> int:
    """Return a port of the loopback interface on which nothing listens now, and that no other test gets."""
    ports = sorted(set(PORTS) - _given)
    for port in random.sample(ports, min(100, len(ports))):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if _reserve(port):
            return port
    raise ServerFailed("no free port among 100 tried")


def bound_to_us(command: Sequence[str]) -> list[str]:
    """Return a command that the kernel kills when the thread that started it ends, in whatever way."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]


class Place(NamedTuple):
    """The place of a server: its address, and the command that goes there before it becomes the server."""

    host: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


HERE = Place()


class ServerProcess:
    """One command that serves a port; it may be started again after it ended. Its output is appended to `log_path`."""

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        log_path: Path,
        environment: Mapping[str, str] | None = None,
        place: Place = HERE,
    ) -> None:
        self.command = bound_to_us([*place.enter, *command])
        self.host = place.host
        self.port = port
        self.log_path = log_path
        self.environment = {**os.environ, **(environment or {})}
        self.turn_cpu_seconds_max = TURN_CPU_SECONDS_MAX
        """The longest turn of the loop that is allowed; a test that makes long turns on purpose raises it."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Return the address for clients, `host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """True if it was started, and neither stopped nor killed since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Return the process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Start the command, and return when its port accepts connections."""
        self.launch()
        self.await_port()

    def launch(self) -> None:
        """Start the command without waiting, so that several can start at once."""
        assert self._process is None, "the server is running already"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )

    def await_port(self) -> None:
        """Return when its port accepts connections. Raises ServerFailed."""
        assert self._process is not None, "the server is not running"
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None:
                status = self._process.returncode
                self._process = None
                raise ServerFailed(f"ended with {status} while starting:\n{self.log_end()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"port {self.port} silent for {START_SECONDS_MAX:.0f} s:\n{self.log_end()}")
            time.sleep(POLL_SECONDS)

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> int:
        """Stop it by SIGTERM, and return the exit status.

        If it does not end before the deadline, it is killed: a failure.
        """
        assert self._process is not None, "the server is not running"
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ServerFailed(f"did not end on SIGTERM:\n{self.log_end()}") from None
        finally:
            self._process = None
        self._check_turns()
        return status

    def _check_turns(self) -> None:
        """Fail if any turn of our broker's loop was too long, also one before a restart."""
        long = [
            match[0] for match in LONG_TURN.finditer(self.log_text()) if float(match[1]) > self.turn_cpu_seconds_max
        ]
        assert not long, f"more than {self.turn_cpu_seconds_max} s of CPU: {long}"

    def wait_for_end(self) -> int:
        """Wait until it ends by itself; return the exit status.

        If it does not end before the deadline, it is killed: a failure.
        """
        assert self._process is not None, "the server is not running"
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ServerFailed(f"did not end by itself:\n{self.log_end()}") from None
        finally:
            self._process = None

    def pause(self) -> None:
        """Stop it by SIGSTOP: it hangs, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on by SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it by SIGKILL: the crash of the process."""
        assert self._process is not None, "the server is not running"
        self._process.kill()
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """End it if it still runs; for clean-up after a failure."""
        if self._process is not None:
            self.kill()

    def log_text(self) -> str:
        """Return all output so far, of every start."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def log_end(self, lines: int = 30) -> str:
        """Return the last lines of the output."""
        return "\n".join(self.log_text().splitlines()[-lines:])

"""The broker's side of the helper process. A request starts the process if it is not running."""

import asyncio
import logging
import pickle
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from barnabas_broker.storage.helper.requests import LENGTH, Request, Response, frame
from barnabas_core.clock import Cancellable, Timers

_logger: Final = logging.getLogger(__name__)
WORKER_COMMAND: Final = (sys.executable, "-m", "barnabas_broker.storage.helper_worker")
READ_BYTES: Final = 1 << 20
IDLE_S: Final = 60.0
"""The time in seconds without requests after which the helper process is stopped, to free 20 MB of memory."""


class HelperDied(Exception):
    """The error if the helper process ends before it has answered. The next request starts another process."""


class Helper:
    """A helper process that answers requests one at a time, in their order."""

    def __init__(
        self,
        timers: Timers,
        memory_bytes_max: Callable[[], int],
        idle_s: float = IDLE_S,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        """Create the helper without a process. `memory_bytes_max` returns the memory limit of each new process."""
        self.starts = 0
        """The number of processes started."""
        self.signs_of_life = 0
        """The number of times that the helper process has sent `SIGN_OF_LIFE`, to show that it is not stuck."""
        self._timers = timers
        self._idle_s = idle_s
        self._memory_bytes_max = memory_bytes_max
        self._command = command
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._requests = 0
        self._idle_timer: Cancellable | None = None

    @property
    def process_id(self) -> int | None:
        """The id of the helper process; None if no process is running."""
        return self._running.process.pid if self._running else None

    async def request(self, request: Request) -> Response:
        """Return the response of the helper process, which is started if necessary.

        Raises HelperDied if the process ends before it has answered, OSError if no process can be started.
        """
        self._requests += 1
        self._not_idle()
        try:
            running = await self._start()
            return await running.answer(request)
        finally:
            self._requests -= 1
            if not self._requests:
                self._idle_timer = self._timers.call_later(self._idle_s, self._end)

    async def stop(self) -> None:
        """Kill the process, even during a request, and wait until it has ended."""
        self._not_idle()
        running, self._running = self._running, None
        if running is not None:
            running.kill()
            await running.ended

    def _not_idle(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()

    async def _start(self) -> "_Running":
        async with self._starting:
            if self._running is None or self._running.ended.done():
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    str(self._memory_bytes_max()),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=READ_BYTES,
                )
                self._running = _Running(process, self._lives)
                self.starts += 1
            return self._running

    def _lives(self) -> None:
        self.signs_of_life += 1


class _Running:
    """A helper process. The task `ended` is done when the process has ended."""

    def __init__(self, process: asyncio.subprocess.Process, lives: Callable[[], None]) -> None:
        self.process = process
        self._lives = lives
        self._waiting: deque[asyncio.Future[Response]] = deque()
        self.ended = asyncio.create_task(self._take_answers())

    async def answer(self, request: Request) -> Response:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        assert self.process.stdin is not None, "the helper process must have a pipe as standard input"
        self.process.stdin.write(frame(request))
        return await answer

    def close(self) -> None:
        """Close the standard input of the process, which then ends."""
        assert self.process.stdin is not None, "the helper process must have a pipe as standard input"
        self.process.stdin.close()

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()

    async def _take_answers(self) -> None:
        assert self.process.stdout is not None, "the helper process must have a pipe as standard output"
        try:
            while True:
                (length,) = LENGTH.unpack(await self.process.stdout.readexactly(LENGTH.size))
                if not length:
                    self._lives()
                    continue
                response = cast("Response", pickle.loads(await self.process.stdout.readexactly(length)))
                answer = self._waiting.popleft()
                if not answer.done():  # The caller may have cancelled its request.
                    answer.set_result(response)
        except asyncio.IncompleteReadError:
            pass
        code = await self.process.wait()
        if self._waiting:
            _logger.warning(
                "the helper process %d ended with exit code %d before it had answered all requests",
                self.process.pid,
                code,
            )
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(HelperDied(f"the helper process ended with exit code {code}"))

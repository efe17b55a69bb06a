"""The threads for blocking disk calls, and the cap on the number of open segment files."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Final, Protocol, TypeVar


class HoldsFile(Protocol):
    """A segment with an open file."""

    used: bool
    """True if the file was used since `OpenFiles` last cleared this flag. Files without the flag are closed first."""

    def release_file(self) -> None:
        """Drop the reference to the open file. Responses in flight keep their own references."""
        ...


class OpenFiles:
    """The segments with an open file, at most `files_max`, replaced by the second-chance algorithm.

    A lock is needed, because a thread may load the logs of one log dir while the event loop uses other log dirs.
    """

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._clock: deque[HoldsFile] = deque()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._clock)

    def opened(self, holder: HoldsFile) -> None:
        """Add a segment that has just opened its file.

        If more than `files_max` files are open then, close files of other segments.
        """
        with self._lock:
            while len(self._clock) >= self._files_max:
                oldest = self._clock.popleft()
                if oldest.used:
                    oldest.used = False
                    self._clock.append(oldest)
                else:
                    oldest.release_file()
            self._clock.append(holder)

    def closed(self, holder: HoldsFile) -> None:
        """Remove a segment that has closed its file."""
        with self._lock, suppress(ValueError):  # `opened` may have removed the segment already.
            self._clock.remove(holder)


R = TypeVar("R")

THREADS_PER_LOG_DIR: Final = 4
"""The largest number of concurrent syncs and reads per log dir; further calls wait."""


class DiskThreads:
    """A thread pool for each log dir, to be used from the event loop only."""

    def __init__(self) -> None:
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def of(self, log_dir: str) -> Executor:
        """Return the thread pool of a log dir, created at first use."""
        if log_dir not in self._pools:
            self._pools[log_dir] = ThreadPoolExecutor(THREADS_PER_LOG_DIR, f"disk of {log_dir}")
        return self._pools[log_dir]

    async def run(self, log_dir: str, call: Callable[[], R]) -> R:
        """Run `call` in a thread of the log dir, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self.of(log_dir), call)

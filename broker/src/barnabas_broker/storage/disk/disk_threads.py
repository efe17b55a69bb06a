"""Threads for blocking disk calls. Each log dir has its own threads, so that a hanging disk delays no other log dir."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeVar

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

"""Threads for calls that block on a disk: each log dir has its own, so that a disk that hangs delays no other."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeVar

R = TypeVar("R")

THREADS_PER_LOG_DIR: Final = 4
"""The most syncs and reads of one disk at the same time; others wait."""


class DiskThreads:
    """A pool for each log dir, by its path. Only the loop asks for one."""

    def __init__(self) -> None:
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def of(self, log_dir: str) -> Executor:
        """The threads of this log dir; they begin as they are needed."""
        if log_dir not in self._pools:
            self._pools[log_dir] = ThreadPoolExecutor(THREADS_PER_LOG_DIR, f"disk of {log_dir}")
        return self._pools[log_dir]

    async def run(self, log_dir: str, call: Callable[[], R]) -> R:
        """Run `call` in a thread of this log dir, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self.of(log_dir), call)

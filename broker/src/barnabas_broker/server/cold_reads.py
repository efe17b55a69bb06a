"""Threads that read uncached records into the page cache, piece by piece, before the event loop sends them.

`sendfile` of uncached records would block the event loop, and with it all other clients, until the disk has answered.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final

from barnabas_broker.server.page_cache import PageCache
from barnabas_broker.wire.framing import FileSlice

PIECE_BYTES: Final = 1024 * 1024
"""The number of bytes read for one client before another client's records are read."""
THREADS_PER_DEVICE: Final = 4
"""The number of threads of each device; devices share no threads, so a hanging disk does not block other disks."""
READ_BYTES: Final = 128 * 1024
GATHER_BYTES_MAX: Final = 128 * 1024
"""The size of a response up to which a copy and one `send` cost less than a `send` and a `sendfile`."""
NEXT_BYTES: Final = 64 * 1024


class ColdReads:
    """The queues of cold reads of a broker, one for each device, served in the order of arrival."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, threads_per_device: int = THREADS_PER_DEVICE) -> None:
        self._loop = loop
        self._threads_per_device = threads_per_device
        self._devices: dict[int, _Device] = {}
        self.reads_total = 0
        self.page_cache = PageCache(loop.time)
        self.gather_buffer = memoryview(bytearray(GATHER_BYTES_MAX))
        """The buffer, shared by all connections, that gathers the parts of a small response for one `send`."""

    def fetch(self, piece: FileSlice, done: Callable[[int], None]) -> None:
        """Read up to PIECE_BYTES of a file slice into the page cache, in a thread.

        Then call `done` with the number of bytes that were to be read, even if the read has failed.
        """
        self.reads_total += 1
        device = os.fstat(piece.file.fileno()).st_dev
        if device not in self._devices:
            self._devices[device] = _Device(self._loop, self._threads_per_device)
        self._devices[device].fetch(FileSlice(piece.file, piece.position, min(piece.length, PIECE_BYTES)), done)


class _Device:
    """The threads for one device; they are daemons, so the process can exit while a disk hangs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads_max: int) -> None:
        self._loop = loop
        self._threads_max = threads_max
        self._threads = 0
        self._busy = 0
        self._waiting: deque[tuple[FileSlice, Callable[[int], None]]] = deque()
        self._jobs: SimpleQueue[tuple[FileSlice, Callable[[int], None]]] = SimpleQueue()

    def fetch(self, piece: FileSlice, done: Callable[[int], None]) -> None:
        self._waiting.append((piece, done))
        self._give_out()

    def _give_out(self) -> None:
        while self._waiting and self._busy < self._threads_max:
            self._busy += 1
            self._jobs.put(self._waiting.popleft())
            if self._threads < self._busy:
                self._threads += 1
                Thread(target=self._work, name="cold-reads", daemon=True).start()

    def _work(self) -> None:
        buffer = memoryview(bytearray(READ_BYTES))
        while True:
            piece, done = self._jobs.get()
            _read(piece, buffer)
            with suppress(RuntimeError):  # The event loop may be closed already.
                self._loop.call_soon_threadsafe(self._read, piece.length, done)
            del piece, done  # A reference held while the thread waits would keep a deleted file open.

    def _read(self, length: int, done: Callable[[int], None]) -> None:
        self._busy -= 1
        self._give_out()
        done(length)


def _read(piece: FileSlice, buffer: memoryview) -> None:
    """Read a file slice and NEXT_BYTES more into the page cache, because the next batch header is needed soon."""
    descriptor, length = piece.file.fileno(), piece.length + NEXT_BYTES
    end = piece.position + length
    with suppress(OSError):  # Sending the slice raises the same error later, so it is ignored here.
        os.posix_fadvise(descriptor, piece.position, length, os.POSIX_FADV_WILLNEED)
        for position in range(piece.position, end, READ_BYTES):
            os.preadv(descriptor, (buffer[: end - position],), position)

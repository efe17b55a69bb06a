"""Records that are not in the page cache are read by threads, a bounded piece at a time, before the loop sends them.

`sendfile` of such records would hold the loop, and with it every other client, for as long as the disk takes. Whether
they are cached is asked with RWF_NOWAIT; where the file system does not know it (tmpfs), they are taken to be.
"""

import asyncio
import ctypes
import mmap
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final

from barnabas_broker.wire.parts import FileSlice, SendableFile

PIECE_BYTES: Final = 1024 * 1024
"""Read for one client at a time; then it is the next one's turn."""
THREADS_PER_DEVICE: Final = 4
"""A disk that hangs keeps its own threads, not those of another."""
READ_BYTES: Final = 128 * 1024
GATHER_BYTES_MAX: Final = 128 * 1024
"""Up to here one copy and one `send` cost less than a `send` and a `sendfile`."""
NEXT_BYTES: Final = 64 * 1024
PAGE_BYTES: Final = mmap.PAGESIZE
SYS_CACHESTAT: Final = 451
"""Of Linux 6.5, on all machines: how many pages of a range are cached. Older ones are asked for the first and last."""
_SYSCALL: Final = ctypes.CDLL(None).syscall
_RANGE: Final = (ctypes.c_uint64 * 2)()
_STAT: Final = (ctypes.c_uint64 * 5)()
_PROBE: Final = bytearray(1)


def is_cached(file: SendableFile, position: int, length: int) -> bool:
    """Whether all of it is. Pages that are still being read are counted in, but not if the last one is among them."""
    descriptor, last = file.fileno(), position + length - 1
    _RANGE[0], _RANGE[1] = position, length
    if _SYSCALL(SYS_CACHESTAT, descriptor, _RANGE, _STAT, 0) == 0:
        return _STAT[0] >= last // PAGE_BYTES - position // PAGE_BYTES + 1 and _is_read(descriptor, last)
    return _is_read(descriptor, position) and _is_read(descriptor, last)


def _is_read(descriptor: int, position: int) -> bool:
    """Whether the page of that byte is there. Linux since 6.10 begins to read it if not, so it is not asked of more."""
    try:
        os.preadv(descriptor, (_PROBE,), position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # The file system cannot tell, or the disk has failed: who reads will hear of it.
        return True
    return True


def read_if_cached(piece: FileSlice, into: memoryview) -> bool:
    """Fill `into`, as long as the piece; False where bytes would have to come from the disk.

    ConnectionAbortedError where the file is shorter: the client was told of more bytes than there are.
    """
    try:
        have = os.preadv(piece.file.fileno(), (into,), piece.position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        data = piece.file.read_at(piece.position, piece.length)
        have = len(data)
        into[:have] = data
    if have == piece.length:
        return True
    if is_cached(piece.file, piece.position + have, 1):
        raise ConnectionAbortedError(f"file ended {piece.length - have} bytes before the slice being sent did")
    return False


class ColdReads:
    """All such reads of a broker: first come, first served, each device by itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, threads_per_device: int = THREADS_PER_DEVICE) -> None:
        self._loop = loop
        self._threads_per_device = threads_per_device
        self._devices: dict[int, _Device] = {}
        self.reads_total = 0
        self.gather_buffer = memoryview(bytearray(GATHER_BYTES_MAX))
        """Of all connections of the loop: a small answer is put together in it, and sent, before anything else runs."""

    def fetch(self, piece: FileSlice, done: Callable[[int], None]) -> None:
        """Call `done` on the loop, with how many bytes of the slice, from its start on, are in memory now."""
        self.reads_total += 1
        device = os.fstat(piece.file.fileno()).st_dev
        if device not in self._devices:
            self._devices[device] = _Device(self._loop, self._threads_per_device)
        self._devices[device].fetch(FileSlice(piece.file, piece.position, min(piece.length, PIECE_BYTES)), done)


class _Device:
    """Its threads end with the process: nobody waits for a disk that does not answer."""

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
            with suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._read, piece.length, done)
            del piece, done  # Not to keep a file open that is deleted meanwhile.

    def _read(self, length: int, done: Callable[[int], None]) -> None:
        self._busy -= 1
        self._give_out()
        done(length)


def _read(piece: FileSlice, buffer: memoryview) -> None:
    """Into the page cache, with the start of what the client will ask for next: the loop looks there for a batch."""
    descriptor, length = piece.file.fileno(), piece.length + NEXT_BYTES
    end = piece.position + length
    with suppress(OSError):  # Who sends it hears of it.
        os.posix_fadvise(descriptor, piece.position, length, os.POSIX_FADV_WILLNEED)
        for position in range(piece.position, end, READ_BYTES):
            os.preadv(descriptor, (buffer[: end - position],), position)

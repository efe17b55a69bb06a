"""Check whether records are in the page cache, because `sendfile` of uncached records blocks the event loop.

`cachestat` and RWF_NOWAIT ask the kernel; on a file system that does not support them (tmpfs), all records count as
cached. Checking the pages of 1 MiB takes 10 us or more, a tenth of the time to send them. The result for a cached range
is therefore kept for up to a second; consumers and followers often read the same range at the end of a log.
"""

import ctypes
import mmap
import os
from collections.abc import Callable
from typing import Final

from barnabas_broker.wire.framing import FileSlice, SendableFile

KNOWN_S: Final = 1.0
PAGE_BYTES: Final = mmap.PAGESIZE
SYS_CACHESTAT: Final = 451
"""The number of the system call that counts cached pages, since Linux 6.5.

On older kernels only the first and the last page of a range are checked.
"""
_SYSCALL: Final = ctypes.CDLL(None).syscall
_RANGE: Final = (ctypes.c_uint64 * 2)()
_STAT: Final = (ctypes.c_uint64 * 5)()
_PROBE: Final = bytearray(1)
_NOTHING: Final = (0, 0)


class PageCache:
    """The file ranges known to be in the page cache, at most one for each file descriptor.

    A range is trusted for up to a second. If the kernel evicts pages of the range during this second, or the descriptor
    is reused for another file, sending the range can block the event loop.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._known: dict[int, tuple[int, int]] = {}
        self._known_until_s = 0.0

    def has(self, file: SendableFile, position: int, length: int) -> bool:
        """True if the whole range is cached, or was cached within the last second."""
        now_s = self._now_s()
        if now_s >= self._known_until_s:
            self._known.clear()
            self._known_until_s = now_s + KNOWN_S
        descriptor, end = file.fileno(), position + length
        known_start, known_end = self._known.get(descriptor, _NOTHING)
        if known_start <= position and end <= known_end:
            return True
        if not is_cached(file, position, length):
            return False
        is_joined = position <= known_end and known_start <= end
        self._known[descriptor] = (min(position, known_start), max(end, known_end)) if is_joined else (position, end)
        return True


def is_cached(file: SendableFile, position: int, length: int) -> bool:
    """True if the whole range is cached.

    Pages that the kernel is still reading count as cached, except the last page.
    """
    descriptor, last = file.fileno(), position + length - 1
    _RANGE[0], _RANGE[1] = position, length
    if _SYSCALL(SYS_CACHESTAT, descriptor, _RANGE, _STAT, 0) == 0:
        return _STAT[0] >= last // PAGE_BYTES - position // PAGE_BYTES + 1 and _is_read(descriptor, last)
    return _is_read(descriptor, position) and _is_read(descriptor, last)


def _is_read(descriptor: int, position: int) -> bool:
    """True if the page with the byte at `position` is cached, or if the file system does not support the check.

    Since Linux 6.10 the check makes the kernel read an uncached page, so the check requests only one byte.
    """
    try:
        os.preadv(descriptor, (_PROBE,), position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # RWF_NOWAIT is unsupported, or the disk has failed; sending the slice then raises the error.
        return True
    return True


def read_if_cached(piece: FileSlice, into: memoryview) -> bool:
    """Read the file slice `piece` into `into`; return False if some of its bytes are not in the page cache.

    Raise ConnectionAbortedError if the file is too short, because the size of the response can no longer change.
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
        raise ConnectionAbortedError(
            f"the log file ended {piece.length - have} bytes before the end of the records to send"
        )
    return False

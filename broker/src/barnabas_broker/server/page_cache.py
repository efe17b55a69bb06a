"""Whether records are in the page cache: asked before the loop sends them, for `sendfile` of others waits for the disk.

The kernel is asked with `cachestat` and RWF_NOWAIT; where the file system does not know it (tmpfs), all is taken to be
cached. To walk over the pages of 1 MiB costs 10 us or more, a tenth of what it costs to send them. So what was found is
taken for true for a second: the end of a log is read by all its consumers and followers, once each.
"""

import ctypes
import mmap
import os
from collections.abc import Callable
from typing import Final

from barnabas_broker.wire.parts import FileSlice, SendableFile

KNOWN_S: Final = 1.0
PAGE_BYTES: Final = mmap.PAGESIZE
SYS_CACHESTAT: Final = 451
"""Of Linux 6.5, on all machines: how many pages of a range are cached. Older ones are asked for the first and last."""
_SYSCALL: Final = ctypes.CDLL(None).syscall
_RANGE: Final = (ctypes.c_uint64 * 2)()
_STAT: Final = (ctypes.c_uint64 * 5)()
_PROBE: Final = bytearray(1)
_NOTHING: Final = (0, 0)


class PageCache:
    """What was seen to be cached, one range of bytes for each file.

    A file that is closed may leave its descriptor to another, and memory that is short may take pages away: until the
    second is over, the loop then waits for the disk where it sends such bytes.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._known: dict[int, tuple[int, int]] = {}
        self._known_until_s = 0.0

    def has(self, file: SendableFile, position: int, length: int) -> bool:
        """Whether all of it is cached, or was within the last second."""
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

"""The bytes of a connection: how it receives and sends them, and the parts that are not sent yet.

A transport never blocks: `receive`, `send` and `send_file` raise BlockingIOError if nothing can be done now, and
OSError if the other side is gone. TLS has another implementation (`tls_stream`); callers do not distinguish the two.

Small parts are sent together in one `send`, file slices by `sendfile`. Each turn of the event loop sends a bounded
number of bytes.

Threads read uncached records into the page cache, piece by piece, before the event loop sends them. `sendfile` of
uncached records would block the event loop, and with it all other clients, until the disk has answered.

`cachestat` and RWF_NOWAIT ask the kernel whether records are in the page cache; on a file system that does not support
them (tmpfs), all records count as cached. Checking the pages of 1 MiB takes 10 us or more, a tenth of the time to send
them. The result for a cached range is therefore kept for up to a second; consumers and followers often read the same
range at the end of a log.
"""

import asyncio
import ctypes
import mmap
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final, Protocol

from barnabas_broker.wire.framing import Buffer, FileSlice, Part, SendableFile
from barnabas_core.loop_turns import SENT_BYTES


class Transport(Protocol):
    """A connected byte stream on an event loop."""

    @property
    def receive(self) -> Callable[[memoryview], int]:
        """Receive into a buffer; return the number of bytes, 0 if the other side has closed the connection."""
        ...

    @property
    def send(self) -> Callable[[Buffer], int]:
        """Send bytes from the beginning of a buffer; return how many bytes were sent."""
        ...

    def peek(self, buffer: memoryview) -> int:
        """Copy received bytes into the buffer without consuming them; return their number, 0 at EOF."""
        ...

    def has_ended(self) -> bool:
        """True if the other side has closed the connection, and all its bytes are received."""
        ...

    def send_before_more(self, part: Buffer) -> int:
        """Send like `send`, but allow the kernel to wait for more bytes, which follow at once."""
        ...

    def send_file(self, part: FileSlice, bytes_max: int) -> int:
        """Send at most `bytes_max` of a file slice; return the number of bytes, 0 at the end of the file."""
        ...

    def call_when_readable(self, callback: Callable[[], object]) -> None:
        """Call `callback` in each turn of the loop in which something can be received."""
        ...

    def ignore_readable(self) -> None:
        """Remove the callback for receiving."""
        ...

    def readable_from(self, size_bytes: int) -> None:
        """Hint that the callback for receiving need not be called before `size_bytes` bytes have arrived."""
        ...

    def call_when_writable(self, callback: Callable[[], object]) -> None:
        """Call `callback` in each turn of the loop in which something can be sent."""
        ...

    def ignore_writable(self) -> None:
        """Remove the callback for sending."""
        ...

    def close(self) -> None:
        """Close the connection; no callback is called after that."""
        ...


class PlainTransport:
    """A plain TCP stream; files go from the page cache to the socket by `sendfile`."""

    __slots__ = ("_fd", "_loop", "_socket", "receive", "send")

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        self._loop = loop
        self._socket = connected
        self._fd = connected.fileno()
        self.receive: Callable[[memoryview], int] = connected.recv_into  # A wrapper would add a call to each receive.
        self.send: Callable[[Buffer], int] = connected.send

    def peek(self, buffer: memoryview) -> int:
        """Copy received bytes with MSG_PEEK, without consuming them."""
        return self._socket.recv_into(buffer, 0, socket.MSG_PEEK)

    def has_ended(self) -> bool:
        """True if a peek returns no byte. Raise OSError if the connection was reset."""
        try:
            return not self.peek(memoryview(bytearray(1)))
        except BlockingIOError:
            return False

    def send_before_more(self, part: Buffer) -> int:
        """Send bytes with MSG_MORE, because more bytes follow."""
        return self._socket.send(part, socket.MSG_MORE)

    def send_file(self, part: FileSlice, bytes_max: int) -> int:
        """Send by `sendfile`, with the descriptor that the socket has now.

        After the socket is closed, `_fd` may belong to another file.
        """
        return os.sendfile(self._socket.fileno(), part.file.fileno(), part.position, bytes_max)

    def call_when_readable(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the event loop finds the socket readable."""
        self._loop.add_reader(self._fd, callback)

    def ignore_readable(self) -> None:
        """Remove the callback that is called when the socket is readable."""
        self._loop.remove_reader(self._fd)

    def readable_from(self, size_bytes: int) -> None:
        """Set SO_RCVLOWAT, below which the socket does not count as readable."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(size_bytes, 1))

    def call_when_writable(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the event loop finds the socket writable."""
        self._loop.add_writer(self._fd, callback)

    def ignore_writable(self) -> None:
        """Remove the callback that is called when the socket is writable."""
        self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """Remove both callbacks and close the socket."""
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._socket.close()


async def connect(loop: asyncio.AbstractEventLoop, address: tuple[str, int]) -> socket.socket:
    """Connect to the first of the host's addresses that accepts a connection; raise OSError if there is none."""
    failure: OSError | None = None
    try:
        places = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # The host name is invalid: a label is empty or too long.
        raise OSError(f"{address[0]} is not a host name: {error}") from error
    for family, _, _, _, place in places:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(made, place)
        except OSError as error:
            made.close()
            failure = error
        except asyncio.CancelledError:
            made.close()
            raise
        else:
            return made
    raise failure or OSError(f"the host {address[0]} has no IP address")


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
    """The threads that read file slices of one device into the page cache.

    They are daemons, so the process can exit while a disk hangs.
    """

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


_NO_PARTS: Final[deque[Part]] = deque()
"""The unsent parts of a connection that has none, which are never changed; a deque of its own takes 0.6 KB."""


class Outbox:
    """The unsent parts of responses, in order. `flush` raises OSError if the connection is broken."""

    __slots__ = (
        "_buffer",
        "_held_bytes",
        "_page_cache",
        "_send",
        "_transport",
        "_warm_bytes",
        "bytes_sent",
        "cold",
        "unsent",
    )

    def __init__(self, transport: Transport, gather_buffer: memoryview, page_cache: PageCache) -> None:
        self._buffer = gather_buffer
        self._page_cache = page_cache
        self._transport = transport
        self._send = transport.send
        self.unsent = _NO_PARTS
        """The parts of responses that the kernel has not accepted for sending yet."""
        self.bytes_sent = 0
        self._held_bytes = 0
        self._warm_bytes = 0
        """The number of bytes at the start of the first file slice that are known to be in the page cache."""
        self.cold: FileSlice | None = None
        """The file slice that must be read from the disk before anything more is sent."""

    @property
    def held_bytes(self) -> int:
        """The memory in bytes that the unsent responses take up; file slices in the responses take up none."""
        return self._held_bytes if self.unsent else 0

    def clear(self) -> None:
        """Drop all parts of responses that are not sent yet."""
        self.unsent = _NO_PARTS

    def add(self, parts: list[Part]) -> None:
        """Append `parts` to the unsent ones."""
        self.unsent = self.unsent or deque()
        self.unsent.extend(parts)
        self._held_bytes += memory_bytes(parts)

    def put(self, part: Buffer) -> bool:
        """Send a response of one part; return True if everything was sent, otherwise keep a copy of the rest.

        This method and `put_parts` may be called only while `unsent` is empty.
        """
        try:
            sent = self._send(part)
        except BlockingIOError:
            sent = 0
        self.bytes_sent += sent
        if sent == len(part):
            return True
        rest = bytes(memoryview(part)[sent:])  # A copy, because the buffer may be reused.
        self.unsent = deque((rest,))
        self._held_bytes = len(rest)
        return False

    def put_parts(self, parts: list[Part]) -> bool:
        """Send parts, small ones together; return True if everything was sent, otherwise keep the rest."""
        if len(parts) == 1 and not isinstance(parts[0], FileSlice):
            return self.put(parts[0])
        gathered = self._gathered(parts)
        if gathered is not None:
            return self.put(gathered)
        self.unsent = deque(parts)
        if self.flush():
            return True
        self._held_bytes = memory_bytes(self.unsent)
        return False

    def _gathered(self, parts: list[Part]) -> memoryview | None:
        """Copy all parts into the shared gather buffer, and return the copy.

        Return None if the parts do not fit, or if a file slice is not in the page cache.
        """
        total = sum([part.length if isinstance(part, FileSlice) else len(part) for part in parts])
        return self._buffer[:total] if total <= len(self._buffer) and _fill(self._buffer, parts) else None

    def flush(self) -> bool:
        """Send about SENT_BYTES; return True if nothing is left to send.

        Less is sent if the socket's buffer is full, or if the next file slice is not in the page cache (`cold`).
        """
        budget = SENT_BYTES
        try:
            while self.unsent and budget > 0 and self.cold is None:
                part = self.unsent[0]
                budget -= self._send_slice(part, budget) if isinstance(part, FileSlice) else self._send_bytes(part)
        except BlockingIOError:
            return False
        if not self.unsent:
            self.unsent = _NO_PARTS
        return not self.unsent

    def warmed(self, size_bytes: int) -> None:
        """Record that the first `size_bytes` of the file slice `cold` were read from the disk into the page cache."""
        self.cold = None
        self._warm_bytes = size_bytes

    def _send_bytes(self, part: Buffer) -> int:
        sent = self._transport.send_before_more(part) if len(self.unsent) > 1 else self._send(part)
        self.bytes_sent += sent
        if sent == len(part):
            self._held_bytes -= _size_in_memory(part)
            self.unsent.popleft()
        else:
            self.unsent[0] = memoryview(part)[sent:]
        return sent

    def _send_slice(self, part: FileSlice, budget: int) -> int:
        file, position, length = part
        if not self._warm_bytes:
            piece_bytes = min(length, PIECE_BYTES)
            if not self._page_cache.has(file, position, piece_bytes):
                self.cold = part
                return 0
            self._warm_bytes = piece_bytes
        sent = self._transport.send_file(part, min(self._warm_bytes, budget))
        if sent == 0:
            raise ConnectionAbortedError(f"the log file ended {length} bytes before the end of the records to send")
        self._warm_bytes -= sent
        self.bytes_sent += sent
        if sent == length:
            self.unsent.popleft()
        else:
            self.unsent[0] = FileSlice(file, position + sent, length - sent)
        return sent


def memory_bytes(parts: Iterable[Part]) -> int:
    """Return the memory in bytes that parts of responses take up; file slices take up none."""
    return sum(_size_in_memory(part) for part in parts if not isinstance(part, FileSlice))


def _size_in_memory(part: Buffer) -> int:
    """Return the size of the whole buffer of a part, because even a view of its last bytes keeps it all in memory."""
    return len(part.obj) if isinstance(part, memoryview) else len(part)  # type: ignore[arg-type]


def _fill(buffer: memoryview, parts: list[Part]) -> bool:
    """Copy all parts of a response into the buffer; return False if a file slice is not in the page cache."""
    end = 0
    for part in parts:
        start = end
        if isinstance(part, FileSlice):
            end += part.length
            if not read_if_cached(part, buffer[start:end]):
                return False
        else:
            end += len(part)
            buffer[start:end] = part
    return True

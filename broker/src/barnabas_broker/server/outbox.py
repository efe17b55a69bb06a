"""Send the unsent parts of a connection: small parts together in one `send`, file slices by `sendfile`.

Each turn of the event loop sends a bounded number of bytes.
"""

from collections import deque
from collections.abc import Iterable

from barnabas_broker.server.cold_reads import PIECE_BYTES
from barnabas_broker.server.page_cache import PageCache, read_if_cached
from barnabas_broker.server.transport import Transport
from barnabas_broker.wire.framing import Buffer, FileSlice, Part
from barnabas_core.fair_turns import SENT_BYTES


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
        self.unsent: deque[Part] = deque()
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
        self.unsent.clear()

    def add(self, parts: list[Part]) -> None:
        """Append `parts` to the unsent ones."""
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
        self.unsent.append(rest)
        self._held_bytes = len(rest)
        return False

    def put_parts(self, parts: list[Part]) -> bool:
        """Send parts, small ones together; return True if everything was sent, otherwise keep the rest."""
        if len(parts) == 1 and not isinstance(parts[0], FileSlice):
            return self.put(parts[0])
        gathered = self._gathered(parts)
        if gathered is not None:
            return self.put(gathered)
        self.unsent.extend(parts)
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

"""Send and receive over TLS after the handshake.

A TlsStream cannot peek, so a peek of this transport decrypts bytes and keeps them until they are received.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from barnabas_broker.server.tls_stream import TlsStream
from barnabas_broker.wire.framing import Buffer, FileSlice
from barnabas_core.fair_turns import DECRYPTED_BYTES

PEEKED_BYTES_MAX: Final = 16 * 1024
"""The maximum number of decrypted bytes that a connection holds before they are received."""
WRITE_BYTES: Final = 128 * 1024
"""The maximum bytes that one call encrypts and sends, so that a large response does not block the event loop."""


class TlsTransport:
    """A connected TLS stream."""

    __slots__ = ("_fd", "_is_called_soon", "_loop", "_peeked", "_readable", "_stream")

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: TlsStream) -> None:
        self._loop = loop
        self._stream = stream
        self._fd = stream.fileno()
        self._peeked = bytearray()
        self._readable: Callable[[], object] | None = None
        self._is_called_soon = False

    def receive(self, buffer: memoryview) -> int:
        """Receive what has arrived, as far as the buffer has room, and at most DECRYPTED_BYTES."""
        buffer = buffer[:DECRYPTED_BYTES]
        have = self._take_peeked(buffer)
        try:
            have += self._stream.receive_into(buffer[have:])
        except BlockingIOError:
            if not have:
                raise
        if have == len(buffer):
            self._call_soon()
        return have

    def _take_peeked(self, buffer: memoryview) -> int:
        taken = min(len(self._peeked), len(buffer))
        if taken:
            buffer[:taken] = self._peeked[:taken]
            del self._peeked[:taken]
        return taken

    def peek(self, buffer: memoryview) -> int:
        """Copy decrypted bytes into the buffer, at most PEEKED_BYTES_MAX, without consuming them."""
        room = memoryview(bytearray(PEEKED_BYTES_MAX - len(self._peeked)))
        try:
            self._peeked += room[: self._stream.receive_into(room)]
        except BlockingIOError:
            if not self._peeked:
                raise
        seen = min(len(self._peeked), len(buffer))
        buffer[:seen] = self._peeked[:seen]
        return seen

    def has_ended(self) -> bool:
        """True if the other side has closed the connection, and all its bytes are received."""
        try:
            return not self.peek(memoryview(bytearray(1)))
        except BlockingIOError:
            return False

    def send(self, part: Buffer) -> int:
        """Send up to WRITE_BYTES from the beginning of `part`; return how many bytes were sent.

        After BlockingIOError the caller must pass the same bytes again.
        """
        return self._stream.send(memoryview(part)[:WRITE_BYTES])

    send_before_more = send

    def send_file(self, part: FileSlice, bytes_max: int) -> int:
        """Read a file slice, which is in the page cache, then encrypt and send it."""
        if self._stream.is_blocked:
            return self._stream.send_blocked()
        read = os.pread(part.file.fileno(), min(bytes_max, part.length, WRITE_BYTES), part.position)
        return self._stream.send(memoryview(read)) if read else 0

    def call_when_readable(self, callback: Callable[[], object]) -> None:
        """Call `callback` when bytes arrive, or if received bytes are still in memory, unseen by the selector."""
        self._readable = callback
        self._loop.add_reader(self._fd, callback)
        self._call_soon()

    def _call_soon(self) -> None:
        if self._readable is not None and not self._is_called_soon and (self._peeked or self._stream.has_received):
            self._is_called_soon = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        self._is_called_soon = False
        if self._readable is not None:
            self._readable()

    def ignore_readable(self) -> None:
        """Remove the callback for receiving."""
        self._readable = None
        self._loop.remove_reader(self._fd)

    def readable_from(self, size_bytes: int) -> None:
        """Do nothing: `size_bytes` counts decrypted bytes, but the socket option SO_RCVLOWAT counts encrypted bytes."""

    def call_when_writable(self, callback: Callable[[], object]) -> None:
        """Call `callback` in each turn of the loop in which something can be sent."""
        self._loop.add_writer(self._fd, callback)

    def ignore_writable(self) -> None:
        """Remove the callback for sending."""
        self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """Close the connection with a TLS close_notify, without waiting for the other side's close_notify."""
        self._readable = None
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._stream.close()

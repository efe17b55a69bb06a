"""Send and receive over TLS after the handshake, over a socket that never blocks.

OpenSSL returns at most one record at a time and has no peek. If the socket is full, OpenSSL wants the same bytes again,
so callers must repeat them after BlockingIOError.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from barnabas_broker.server.transport import Sent
from barnabas_broker.wire.parts import FileSlice

PEEKED_BYTES_MAX: Final = 16 * 1024
"""The most decrypted bytes that a connection holds before they are received: one TLS record."""
WRITE_BYTES: Final = 128 * 1024
"""The bytes of one write, which OpenSSL splits into eight records."""
_WANTS: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsTransport:
    """A connected TLS stream."""

    __slots__ = ("_blocked_bytes", "_fd", "_is_called_soon", "_loop", "_peeked", "_readable", "_tls")

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: ssl.SSLSocket) -> None:
        self._loop = loop
        self._tls = tls
        self._fd = tls.fileno()
        self._peeked = bytearray()
        self._readable: Callable[[], object] | None = None
        self._is_called_soon = False
        self._blocked_bytes = 0
        """The size of the write for which the socket had no room; 0 if the last write succeeded."""

    def receive(self, buffer: memoryview) -> int:
        """Receive all records that have arrived, as far as the buffer has room."""
        have = self._take_peeked(buffer)
        size = len(buffer)
        try:
            while have < size and (received := self._tls.recv_into(buffer[have:])):
                have += received
        except _WANTS:
            if not have:
                raise BlockingIOError from None
        self._call_soon()
        return have

    def _take_peeked(self, buffer: memoryview) -> int:
        taken = min(len(self._peeked), len(buffer))
        if taken:
            buffer[:taken] = self._peeked[:taken]
            del self._peeked[:taken]
        return taken

    def peek(self, buffer: memoryview) -> int:
        """Copy decrypted bytes into the buffer, at most one record, without consuming them."""
        room = PEEKED_BYTES_MAX - len(self._peeked)
        if room > 0:
            try:
                self._peeked += self._tls.recv(room)
            except _WANTS:
                if not self._peeked:
                    raise BlockingIOError from None
        seen = min(len(self._peeked), len(buffer))
        buffer[:seen] = self._peeked[:seen]
        return seen

    def has_ended(self) -> bool:
        """True if the other side has closed and all its bytes are received."""
        try:
            return not self.peek(memoryview(bytearray(1)))
        except BlockingIOError:
            return False

    def send(self, part: Sent) -> int:
        """Send the first bytes as whole TLS records; after BlockingIOError, send the same bytes again."""
        return self._send(memoryview(part)[: self._blocked_bytes or WRITE_BYTES])

    send_before_more = send

    def send_file(self, part: FileSlice, bytes_max: int) -> int:
        """Read a file slice, which is in the page cache, then encrypt and send it."""
        wanted = self._blocked_bytes or min(bytes_max, part.length, WRITE_BYTES)
        read = os.pread(part.file.fileno(), wanted, part.position)
        return self._send(memoryview(read)) if read else 0

    def _send(self, part: memoryview) -> int:
        try:
            sent = self._tls.send(part)
        except _WANTS:
            self._blocked_bytes = len(part)
            raise BlockingIOError from None
        self._blocked_bytes = 0
        return sent

    def call_when_readable(self, callback: Callable[[], object]) -> None:
        """Call `callback` when bytes arrive, and for decrypted bytes, which the selector does not see."""
        self._readable = callback
        self._loop.add_reader(self._fd, callback)
        self._call_soon()

    def _call_soon(self) -> None:
        if self._readable is not None and not self._is_called_soon and (self._peeked or self._tls.pending()):
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
        """Do nothing, because SO_RCVLOWAT would count encrypted bytes."""

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
        if not self._blocked_bytes:
            with suppress(OSError, ValueError):
                self._tls.unwrap()
        self._tls.close()

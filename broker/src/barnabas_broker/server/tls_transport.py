"""TLS behind `Transport`, once the handshake is done: records in and out of a socket that never blocks.

OpenSSL gives at most one record at a time, knows no peek, and takes a write as a whole: where the socket has no room it
asks for the same bytes again, which is what callers do after BlockingIOError.
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
"""The most decrypted bytes that a connection holds before they are read: one record."""
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
        """The size of the write that the socket had no room for."""

    def receive(self, buffer: memoryview) -> int:
        """Take all that has come in, record by record, as far as there is room."""
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
        """Show one record at most; it stays here, decrypted, to be received."""
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
        """True if the other side has closed, and all bytes before that are received."""
        try:
            return not self.peek(memoryview(bytearray(1)))
        except BlockingIOError:
            return False

    def send(self, part: Sent) -> int:
        """Send the first bytes, whole TLS records; after BlockingIOError send the same bytes again."""
        return self._send(memoryview(part)[: self._blocked_bytes or WRITE_BYTES])

    send_before_more = send

    def send_file(self, part: FileSlice, bytes_max: int) -> int:
        """Send a slice: the page cache gives the bytes, and they are encrypted here."""
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
        """Call it for bytes that are decrypted already, too, which the selector does not see."""
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
        """Remove the callback for bytes to receive."""
        self._readable = None
        self._loop.remove_reader(self._fd)

    def readable_from(self, size_bytes: int) -> None:
        """Do nothing: the system could only count encrypted bytes."""

    def call_when_writable(self, callback: Callable[[], object]) -> None:
        """Call it in each turn in which something can be sent."""
        self._loop.add_writer(self._fd, callback)

    def ignore_writable(self) -> None:
        """Remove the callback for a writable socket."""
        self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """Close the connection with a TLS close_notify, without a wait for the other side's."""
        self._readable = None
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        if not self._blocked_bytes:
            with suppress(OSError, ValueError):
                self._tls.unwrap()
        self._tls.close()

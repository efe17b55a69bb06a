"""The interface through which connections send and receive bytes, and its implementation for plain TCP.

A transport never blocks: `receive`, `send` and `send_file` raise BlockingIOError if nothing can be done now, and
OSError if the other side is gone. TLS has another implementation (`tls_transport`); callers do not distinguish the two.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Protocol

from barnabas_broker.wire.framing import Buffer, FileSlice


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

"""How bytes get in and out of one connection: the interface that connections and links use, and plain TCP behind it.

A transport never blocks: `receive`, `send` and `send_file` raise BlockingIOError where nothing can be done now, and
OSError where the other side is gone. TLS is another transport; nothing above it knows which one it has.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Protocol

from barnabas_broker.wire.parts import FileSlice

Sent = bytes | bytearray | memoryview


class Transport(Protocol):
    """One connected byte stream, on one event loop."""

    @property
    def receive(self) -> Callable[[memoryview], int]:
        """Takes what has come in, into a buffer; how many bytes, 0 where the other side has ended."""
        ...

    @property
    def send(self) -> Callable[[Sent], int]:
        """Takes the beginning of some bytes; how many."""
        ...

    def peek(self, buffer: memoryview) -> int:
        """As `receive`, and what was seen stays to be received."""
        ...

    def has_ended(self) -> bool:
        """True once the other side has ended and all that came before is received."""
        ...

    def send_before_more(self, part: Sent) -> int:
        """As `send`, where more follows at once: it may wait for that."""
        ...

    def send_file(self, part: FileSlice, bytes_max: int) -> int:
        """Send the beginning of a slice of a file, at most `bytes_max`; how many bytes, 0 where the file has ended."""
        ...

    def call_when_readable(self, callback: Callable[[], object]) -> None:
        """Call it in each turn in which there is something to receive."""
        ...

    def ignore_readable(self) -> None:
        """Call nobody when there is."""
        ...

    def readable_from(self, size_bytes: int) -> None:
        """A hint: to call somebody is of no use before so much has come in."""
        ...

    def call_when_writable(self, callback: Callable[[], object]) -> None:
        """Call it in each turn in which something can be sent."""
        ...

    def ignore_writable(self) -> None:
        """Call nobody when there is. Harmless where nobody is called."""
        ...

    def close(self) -> None:
        """End the connection; no callback comes any more."""
        ...


class PlainTransport:
    """TCP as it is; files go from the page cache to the socket by `sendfile`."""

    __slots__ = ("_fd", "_loop", "_socket", "receive", "send")

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        self._loop = loop
        self._socket = connected
        self._fd = connected.fileno()
        self.receive: Callable[[memoryview], int] = connected.recv_into  # The socket's own: no call of ours between.
        self.send: Callable[[Sent], int] = connected.send

    def peek(self, buffer: memoryview) -> int:
        """As `Transport` says."""
        return self._socket.recv_into(buffer, 0, socket.MSG_PEEK)

    def has_ended(self) -> bool:
        """As `Transport` says."""
        try:
            return not self.peek(memoryview(bytearray(1)))
        except BlockingIOError:
            return False

    def send_before_more(self, part: Sent) -> int:
        """As `Transport` says."""
        return self._socket.send(part, socket.MSG_MORE)

    def send_file(self, part: FileSlice, bytes_max: int) -> int:
        """As `Transport` says. By the socket, for its descriptor may be another's once it is closed."""
        return os.sendfile(self._socket.fileno(), part.file.fileno(), part.position, bytes_max)

    def call_when_readable(self, callback: Callable[[], object]) -> None:
        """As `Transport` says."""
        self._loop.add_reader(self._fd, callback)

    def ignore_readable(self) -> None:
        """As `Transport` says."""
        self._loop.remove_reader(self._fd)

    def readable_from(self, size_bytes: int) -> None:
        """As `Transport` says."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(size_bytes, 1))

    def call_when_writable(self, callback: Callable[[], object]) -> None:
        """As `Transport` says."""
        self._loop.add_writer(self._fd, callback)

    def ignore_writable(self) -> None:
        """As `Transport` says."""
        self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """As `Transport` says."""
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._socket.close()


async def connect(loop: asyncio.AbstractEventLoop, address: tuple[str, int]) -> socket.socket:
    """Connect to the first of the host's addresses that answers. OSError."""
    failure: OSError | None = None
    try:
        places = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # Not even a name: a label of it is empty or too long.
        raise OSError(f"{address[0]} is no host name: {error}") from error
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
    raise failure or OSError(f"{address[0]} has no address")

"""Links to other brokers over sockets on the event loop: what followers fetch by (`replication.links`).

Responses are received into one buffer, which grows to the largest and is used again; parsed in place, nothing of them
is copied.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

SIZE_BYTES: Final = 4
_SIZE: Final = struct.Struct(">i")
FIRST_BUFFER_BYTES: Final = 64 * 1024
RESPONSE_BYTES_MAX: Final = 2**30

OnResponse = Callable[[memoryview], None]
OnClosed = Callable[[str], None]


class PeerLinks:
    """`address_of` gives host and port of a broker, None when it is not known."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address_of: Callable[[int], tuple[str, int] | None]) -> None:
        self._loop = loop
        self._address_of = address_of

    def open(self, broker_id: int, on_closed: OnClosed) -> "PeerLink":
        """A link that is on its way to where the broker is now."""
        return PeerLink(self._loop, broker_id, self._address_of(broker_id), on_closed)


class PeerLink:
    """One connection; closed for good when it breaks."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker_id: int,
        address: tuple[str, int] | None,
        on_closed: OnClosed,
    ) -> None:
        self._loop = loop
        self._broker_id = broker_id
        self._on_closed: OnClosed | None = on_closed
        self._socket: socket.socket | None = None
        self._waiting: deque[OnResponse] = deque()
        self._unsent = bytearray()
        self._buffer = bytearray(FIRST_BUFFER_BYTES)
        self._have = 0
        self._connecting = loop.create_task(self._connect(address))

    def send(self, frame: bytes | bytearray, on_response: OnResponse) -> None:
        """Send a request, once connected."""
        self._waiting.append(on_response)
        sent = 0
        if self._socket is not None and not self._unsent:
            try:
                sent = self._socket.send(frame)
            except BlockingIOError:
                pass
            except OSError as error:
                self._loop.call_soon(self._break, f"cannot send: {error}")
                return
            if sent < len(frame):
                self._loop.add_writer(self._socket.fileno(), self._writable)
        self._unsent += frame[sent:]

    def close(self) -> None:
        """No callback comes any more."""
        self._on_closed = None
        self._waiting.clear()
        self._connecting.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None

    async def _connect(self, address: tuple[str, int] | None) -> None:
        try:
            connected = await self._reach(address)
        except OSError as error:
            self._break(f"cannot connect: {error}")
            return
        self._socket = connected
        self._loop.add_reader(connected.fileno(), self._readable)
        self._writable()

    async def _reach(self, address: tuple[str, int] | None) -> socket.socket:
        """Connect to the first of the host's addresses that answers."""
        if address is None:
            raise OSError(f"broker {self._broker_id} has no address for brokers")
        failure: OSError | None = None
        for family, _, _, _, place in await self._loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
            made = socket.socket(family, socket.SOCK_STREAM)
            try:
                made.setblocking(False)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._loop.sock_connect(made, place)
            except OSError as error:
                made.close()
                failure = error
            except asyncio.CancelledError:
                made.close()
                raise
            else:
                return made
        raise failure or OSError(f"{address[0]} has no address")

    def _break(self, reason: str) -> None:
        on_closed = self._on_closed
        self.close()
        if on_closed is not None:
            on_closed(reason)

    def _writable(self) -> None:
        """Send what waits; what the socket does not take goes when it does."""
        if self._socket is None or not self._unsent:
            return
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._break(f"cannot send: {error}")
            return
        if sent == len(self._unsent):
            self._unsent = bytearray()
            self._loop.remove_writer(self._socket.fileno())
        else:
            del self._unsent[:sent]
            self._loop.add_writer(self._socket.fileno(), self._writable)

    def _readable(self) -> None:
        assert self._socket is not None
        try:
            received = self._socket.recv_into(memoryview(self._buffer)[self._have :])
        except BlockingIOError:
            return
        except OSError as error:
            self._break(str(error))
            return
        if not received:
            self._break("closed by the other side")
            return
        self._have += received
        try:
            self._take_responses()
        except Exception:
            log.exception("bug: an answer of broker %d", self._broker_id)
            self._break("a bug in what became of its answer")

    def _take_responses(self) -> None:
        """Hand out the whole responses; what is left moves to the front of a buffer that is large enough."""
        position, have, buffer = 0, self._have, self._buffer
        needed = SIZE_BYTES
        while have - position >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(buffer, position)
            if not 0 < size <= RESPONSE_BYTES_MAX or not self._waiting:
                self._break(f"{size} bytes, with {len(self._waiting)} requests not answered: no response")
                return
            needed = SIZE_BYTES + size
            if have - position < needed:
                break
            self._waiting.popleft()(memoryview(buffer)[position + SIZE_BYTES : position + needed])
            if self._socket is None:
                return
            position += needed
        rest = memoryview(buffer)[position:have]
        if needed > len(buffer):
            self._buffer = bytearray(needed)
            self._buffer[: len(rest)] = rest
        elif position:
            buffer[: len(rest)] = bytes(rest)
        self._have = len(rest)

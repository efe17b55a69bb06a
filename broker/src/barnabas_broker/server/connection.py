"""One client's connection: bytes in, requests out to the dispatcher, answers back in the order of the requests.

Reads go into one scratch buffer that all connections share; only a request that is not whole yet takes a buffer of its
own. A connection is muted while an answer is outstanding or unsent, so that a client that does not read cannot fill our
memory. A handler may let it read on, as Produce does while its batches are replicated: one round then carries all that
came in. Answers keep the order of the requests.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from barnabas_broker.handlers.batch_trust import ConnectionTrust
from barnabas_broker.handlers.exchange import CloseConnection
from barnabas_broker.server.buffers import BufferPool
from barnabas_broker.server.outbox import Outbox
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.parts import Part

log = logging.getLogger(__name__)

SCRATCH_BYTES: Final = 256 * 1024
SIZE_BYTES: Final = 4
LATE_ANSWERS_MAX: Final = 64
"""Outstanding at once, of requests that let the connection read on."""
_SIZE: Final = struct.Struct(">i")


class LateAnswer:
    """Keeps the place of an answer among the others; `parts` is None until it is there, when `on_answer` is called."""

    __slots__ = ("mutes", "on_answer", "parts")

    def __init__(self, *, mutes: bool) -> None:
        self.mutes = mutes
        self.parts: list[Part] | None = None
        self.on_answer: Callable[[], object] | None = None


class Dispatch(Protocol):
    """Answers one request, `buffer[start:end]`, by `connection.respond` or later by what `connection.defer` gave."""

    def __call__(self, connection: "Connection", buffer: memoryview, start: int, end: int) -> None:
        """May raise MalformedRequest or CloseConnection."""
        ...


class Connection:
    """A socket on the event loop. Made by the listener; closed by either side, by an error or when idle."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client_socket: socket.socket,
        peer: str,
        listener_name: str,
        dispatch: Dispatch,
        scratch: memoryview,
        pool: BufferPool,
        request_bytes_max: int,
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self._loop = loop
        self._socket: socket.socket | None = client_socket
        self._fd = client_socket.fileno()
        self._receive = client_socket.recv_into
        self.peer = peer
        self.listener_name = listener_name
        self.client_id: str | None = None
        self.trust: ConnectionTrust | None = None
        self._dispatch = dispatch
        self._scratch = scratch
        self._pool = pool
        self._request_bytes_max = request_bytes_max
        self._on_closed = on_closed
        self._outbox = Outbox(client_socket)
        self._partial: bytearray | None = None
        self._partial_have = 0
        self._late: deque[LateAnswer] = deque()
        self._deferred: LateAnswer | None = None
        self._mutes = 0
        self._answers_soon = False
        self._starved = False
        self._reading = True
        self.was_active = True
        """Whether anything came in since the listener looked last."""
        self.idle_looks = 0
        loop.add_reader(self._fd, self._readable)

    @property
    def is_closed(self) -> bool:
        """Whether the socket is gone."""
        return self._socket is None

    @property
    def bytes_sent(self) -> int:
        """Bytes handed to the kernel so far."""
        return self._outbox.bytes_sent

    def respond(self, parts: list[Part]) -> None:
        """Send an answer, after those that are outstanding; reading pauses while one is not sent whole.

        Nothing happens when the connection is closed.
        """
        if self._late:
            late = LateAnswer(mutes=False)
            late.parts = parts
            self._late.append(late)
        elif self._socket is not None:
            self._send(parts)

    def _send(self, parts: list[Part]) -> None:
        try:
            if not self._outbox.put(parts):
                self._pause_reading()
                self._loop.add_writer(self._fd, self._writable)
        except OSError as error:
            self.close(f"could not send: {error}")

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        """The answer comes later, through the returned call, an empty list for none.

        No further request is read before it, unless the handler lets the connection read on.
        """
        late = LateAnswer(mutes=not reads_on)
        self._late.append(late)
        self._deferred = self._deferred or late
        self._mutes += late.mutes
        if late.mutes or len(self._late) >= LATE_ANSWERS_MAX:
            self._pause_reading()
        return partial(self._answer_late, late)

    def take_deferred(self) -> LateAnswer | None:
        """What was deferred first since the last call: for who dispatches, request by request."""
        late, self._deferred = self._deferred, None
        return late

    def _answer_late(self, late: LateAnswer, parts: list[Part]) -> None:
        late.parts = parts
        if late.on_answer is not None:
            late.on_answer()
        self._mutes -= late.mutes
        if len(self._late) == 1:
            self._send_late()
        elif not self._answers_soon:  # Many are committed in one turn: one send for all.
            self._answers_soon = True
            self._loop.call_soon(self._send_late)

    def _send_late(self) -> None:
        """Send the answers that have none before them outstanding, and read on if that may be."""
        self._answers_soon = False
        if self._socket is None:
            return
        ready: list[Part] = []
        while self._late and self._late[0].parts is not None:
            ready += self._late.popleft().parts or ()
        if ready:
            self._send(ready)
        self._resume()

    def close(self, reason: str | None = None) -> None:
        """Close the socket and give back all memory; `reason`, if any, is one line in the log."""
        if self._socket is None:
            return
        if reason:
            log.info("closing connection of %s: %s", self.peer, reason)
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._socket.close()
        self._socket = None
        self._late.clear()
        self._release_partial()
        self._on_closed(self)

    def _readable(self) -> None:
        self.was_active = True
        try:
            if self._partial is not None:
                self._read_into_partial(self._partial)
            elif self._pool.is_exhausted:
                self._wait_for_memory()
            else:
                scratch = self._scratch
                received = self._receive(scratch)
                consumed = self._process(scratch, received) if received else self._end()
                if consumed < received and self._socket is not None:
                    self._keep(scratch[consumed:received])
        except BlockingIOError:
            pass
        except (OSError, MalformedRequest, CloseConnection) as error:
            self.close(str(error))

    def _end(self) -> int:
        """The client has closed its side."""
        self.close()
        return 0

    def _read_into_partial(self, partial: bytearray) -> None:
        received = self._receive(memoryview(partial)[self._partial_have :])
        if not received:
            self.close()
            return
        self._partial_have += received
        self._process_partial()

    def _process_partial(self) -> None:
        """Dispatch what is whole in the partial buffer; keep the rest, in a larger buffer if it must grow."""
        partial = self._partial
        if partial is None:
            return
        view = memoryview(partial)
        have = self._partial_have
        consumed = self._process(view, have)
        if self._socket is None:
            return
        if consumed == have:
            self._release_partial()
        elif consumed or have == len(partial):
            self._keep(view[consumed:have])

    def _process(self, buffer: memoryview, have: int) -> int:
        """Dispatch the whole requests in `buffer[:have]` until an answer is outstanding; bytes consumed."""
        position = 0
        while have - position >= SIZE_BYTES and self._reading:
            (size,) = _SIZE.unpack_from(buffer, position)
            if not 0 < size <= self._request_bytes_max:
                raise MalformedRequest(f"request of {size} bytes; 1 to {self._request_bytes_max} are allowed")
            end = position + SIZE_BYTES + size
            if end > have:
                break
            self._dispatch(self, buffer, position + SIZE_BYTES, end)
            position = end
        return position

    def _keep(self, rest: memoryview) -> None:
        """Hold `rest`, the start of a request or requests that wait for an answer, in a buffer of our own."""
        have = len(rest)
        needed = have + 1
        if have >= SIZE_BYTES:
            needed = max(needed, SIZE_BYTES + int(_SIZE.unpack_from(rest, 0)[0]))
        old = self._partial
        if old is not None and len(old) >= min(needed, 2 * have):
            memoryview(old)[:have] = rest
        else:
            buffer = self._pool.acquire(needed, have, self)
            if buffer is None:  # Only for a buffer that should grow: it stays, full, until there is memory.
                self._wait_for_memory()
                return
            buffer[:have] = rest
            self._release_partial()
            self._partial = buffer
        self._partial_have = have

    def _wait_for_memory(self) -> None:
        """Too many bytes wait in half-arrived requests: read on when some are gone."""
        self._starved = True
        self._pause_reading()
        self._pool.when_free(self._memory_is_free)

    def _memory_is_free(self) -> None:
        self._starved = False
        self._loop.call_soon(self._resume)

    def _release_partial(self) -> None:
        if self._partial is not None:
            self._pool.release(self._partial)
            self._partial = None
            self._partial_have = 0

    def _writable(self) -> None:
        try:
            if self._outbox.flush():
                self._loop.remove_writer(self._fd)
                self._resume()
        except OSError as error:
            self.close(f"could not send: {error}")

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _resume(self) -> None:
        """Read on once no answer is outstanding or unsent, beginning with requests that came in meanwhile."""
        is_full = self._mutes or len(self._late) >= LATE_ANSWERS_MAX
        waits = is_full or self._starved or not self._outbox.is_empty
        if self._socket is None or waits or self._reading:
            return
        self._reading = True
        self._loop.add_reader(self._fd, self._readable)
        try:
            self._process_partial()
        except (OSError, MalformedRequest, CloseConnection) as error:
            self.close(str(error))

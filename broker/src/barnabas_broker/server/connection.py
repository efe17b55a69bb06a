"""One client's connection: bytes in, requests out to the dispatcher, answers back in the order of the requests.

Reads go into one scratch buffer that all connections share. Of a request that is not whole yet a few bytes are kept as
they are; only more than that takes a buffer of the pool. Where the pool has no room, a request that fits into the
scratch buffer stays with the kernel until it is whole, so it is always served; a larger one waits for room.

A connection is muted while an answer is outstanding or unsent (`answers`). Who keeps us waiting is closed by
`slow_clients`.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from time import monotonic
from typing import Final

from barnabas_broker.handlers.batch_trust import ConnectionTrust
from barnabas_broker.handlers.channel import Client
from barnabas_broker.handlers.close_connection import CloseConnection
from barnabas_broker.server.answers import Answers
from barnabas_broker.server.buffers import BufferPool
from barnabas_broker.server.cold_reads import ColdReads
from barnabas_broker.server.slow_clients import SlowClients
from barnabas_broker.server.transport import Transport
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_core.fair_turns import CONNECTION_S

log = logging.getLogger(__name__)

SCRATCH_BYTES: Final = 256 * 1024
KEPT_BYTES_MAX: Final = 1024
"""The largest start of a request that is kept beside the pool, so that 10,000 clients cost 10 MiB, not 640."""
SIZE_BYTES: Final = 4
_unpack_size: Final = struct.Struct(">i").unpack_from

Dispatch = Callable[["Connection", memoryview, int, int], None]
"""Answers one request, `buffer[start:end]`, at once or later. It may raise MalformedRequest or CloseConnection."""


class Connection:
    """Requests in and answers out. Made by the listener; closed by either side, by an error, when idle or too slow."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        client: Client,
        dispatch: Dispatch,
        scratch: memoryview,
        pool: BufferPool,
        slow_clients: SlowClients,
        cold_reads: ColdReads,
        request_bytes_max: int,
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._slow_clients = slow_clients
        self.answers = answers = Answers(loop, transport, slow_clients, cold_reads, self)
        self.respond = answers.respond
        self.defer = answers.defer
        self.deferred = answers.deferred
        self._receive = transport.receive
        self.client = client
        self.trust: ConnectionTrust | None = None
        self.dispatch = dispatch
        self._scratch = scratch
        self._pool = pool
        self.request_bytes_max = request_bytes_max
        self._on_closed = on_closed
        self._start = bytearray()
        """The bytes of the next requests that have arrived, as long as they are few."""
        self._partial: bytearray | None = None
        self._partial_have = 0
        self._whole_bytes = 0
        """Readable only when so many bytes have come in, where it is set."""
        self._starved = False
        self._others_first = False
        self._reading = True
        self.was_active = True
        """True if anything has arrived since the listener's last check."""
        self._bytes_sent_before = 0
        self.idle_looks = 0
        """The number of the listener's checks since anything arrived or was sent."""
        transport.call_when_readable(self._readable)

    @property
    def peer(self) -> str:
        """The client's address, `host:port`."""
        return self.client.address

    def is_gone(self) -> bool:
        """True if the connection is closed, or was reset while it is not read, so that no response can arrive."""
        return self.has_ended() and self.is_closed

    def has_ended(self) -> bool:
        """True if the client has closed its side, as far as the socket shows that without a read."""
        try:
            return self.is_closed or self._transport.has_ended()
        except OSError as error:
            self.close(str(error))  # The socket reports an error only once.
            return True

    @property
    def may_be_abandoned(self) -> bool:
        """Return True if the client has ended its side while nothing is read, and nothing is on its way to it.

        A response that waits behind an outstanding one is not on its way.
        """
        return not self._reading and not self.answers.is_sending and self.has_ended()

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed."""
        return not self.answers.is_open

    @property
    def bytes_sent(self) -> int:
        """Bytes handed to the kernel so far."""
        return self.answers.bytes_sent

    @property
    def unsent_bytes(self) -> int:
        """The memory of complete answers that are not sent yet."""
        return self.answers.unsent_bytes

    @property
    def has_unsent(self) -> bool:
        """True if a complete answer is not sent yet."""
        return self.answers.has_unsent

    @property
    def begun_bytes(self) -> int:
        """The received bytes of the request that is not complete yet."""
        return self._partial_have if self._partial is not None else len(self._start)

    @property
    def holds_buffer(self) -> bool:
        """True if it has a buffer of the pool."""
        return self._partial is not None

    @property
    def waits_for_client(self) -> bool:
        """True if the client has to send the rest of a request."""
        return self._reading

    def looked_at(self) -> None:
        """Count a check that finds no activity. A client that still reads a long answer is not idle."""
        bytes_sent = self.bytes_sent
        is_idle = not self.was_active and bytes_sent == self._bytes_sent_before
        self.idle_looks = self.idle_looks + 1 if is_idle else 0
        self.was_active, self._bytes_sent_before = False, bytes_sent

    def close(self, reason: str | None = None) -> None:
        """Close it and give back all memory; `reason`, if any, is one line in the log."""
        if self.is_closed:
            return
        if reason:
            log.info("closing connection of %s: %s", self.peer, reason)
        self._transport.close()
        self._reading = False
        self.answers.close()
        self._start = bytearray()
        self._release_partial()
        self._pool.forget(self)
        self._slow_clients.forget(self)
        self._on_closed(self)

    def _readable(self) -> None:
        self.was_active = True
        try:
            if self._partial is not None:
                self._read_into_partial(self._partial)
            elif self._pool.is_exhausted:
                self._read_what_is_whole()
            elif self._start or self._whole_bytes:
                self._read_after_start()
            else:
                scratch = self._scratch
                received = self._receive(scratch)
                consumed = self._process(scratch, received) if received else self._end()
                if consumed < received and not self.is_closed:
                    self._keep(scratch[consumed:received])
        except BlockingIOError:
            pass
        except (OSError, MalformedRequest, CloseConnection) as error:
            self.close(str(error))

    def _end(self) -> int:
        """Close the connection of a client that has closed its side, after the outstanding answers are sent."""
        if not self.answers.are_outstanding:
            self.close()
            return 0
        self.pause_reading()
        self._start = bytearray()
        self._release_partial()
        self._slow_clients.ended(self)
        return 0

    def _read_after_start(self) -> None:
        """Read behind the bytes of a request that are kept, and process both."""
        self._wait_for_bytes(0)
        scratch, start = self._scratch, self._start
        kept = len(start)
        received = self._receive(scratch[kept:])
        if not received:
            self._end()
            return
        scratch[:kept] = start
        have = kept + received
        self._start = bytearray()
        consumed = self._process(scratch, have)
        if self.is_closed:
            return
        if consumed:
            self._slow_clients.ended(self)
        if consumed < have:
            self._keep(scratch[consumed:have])

    def _read_what_is_whole(self) -> None:
        """The pool has no room: take whole requests from the kernel, and leave the rest there."""
        scratch, kept = self._scratch, len(self._start)
        waited_bytes = self._whole_bytes
        self._wait_for_bytes(0)
        seen = self._transport.peek(scratch[kept:])
        if not seen:
            self._end()
            return
        scratch[:kept] = self._start
        have = kept + seen
        consumed = self._process(scratch, have)
        if self.is_closed:
            return
        if consumed:
            self._start = bytearray()
            self._slow_clients.ended(self)
        rest = bytearray(scratch[consumed:have])
        if len(rest) <= KEPT_BYTES_MAX:
            self._take(seen)
            self._start = rest
            if rest:
                self._slow_clients.began(self)
            return
        could_not_hold = waited_bytes > 0 and not consumed  # The kernel's buffer is too small for the whole request.
        needed = SIZE_BYTES + int(_unpack_size(rest)[0])
        if could_not_hold and needed <= SCRATCH_BYTES and self._pool.has_reserve:
            self._take(seen)
            self._start = bytearray()
            self._keep(memoryview(rest), whole=True)
            return
        self._take(max(consumed - kept, 0))
        if not self._reading:
            return
        if needed > SCRATCH_BYTES or could_not_hold:
            self._wait_for_memory()
        else:
            self._wait_for_bytes(needed - len(self._start))
        self._slow_clients.began(self)

    def _take(self, size_bytes: int) -> None:
        """Receive bytes that were processed already, so that they leave the kernel."""
        if size_bytes:
            self._receive(self._scratch[:size_bytes])

    def _wait_for_bytes(self, whole_bytes: int) -> None:
        if whole_bytes != self._whole_bytes and not self.is_closed:
            self._whole_bytes = whole_bytes
            self._transport.readable_from(whole_bytes)

    def _read_into_partial(self, partial: bytearray) -> None:
        received = self._receive(memoryview(partial)[self._partial_have :])
        if not received:
            self._end()
            return
        self._partial_have += received
        self._process_partial()

    def _process_partial(self) -> None:
        """Dispatch complete requests of the partial buffer; keep the rest, in a larger buffer if needed."""
        partial = self._partial
        if partial is None:
            self._process_start()
            return
        view = memoryview(partial)
        have = self._partial_have
        consumed = self._process(view, have)
        if self.is_closed:
            return
        if consumed:
            self._slow_clients.ended(self)
        if consumed == have:
            self._release_partial()
        elif consumed or have == len(partial):
            self._keep(view[consumed:have])

    def _process_start(self) -> None:
        """Process the kept bytes in place: another connection's request may be in the scratch buffer just now."""
        start = self._start
        consumed = self._process(memoryview(start), len(start))
        if consumed and not self.is_closed:
            self._start = start[consumed:]

    def _process(self, buffer: memoryview, have: int) -> int:
        """Dispatch the whole requests in `buffer[:have]` until an answer is outstanding; bytes consumed."""
        position = 0
        while have - position >= SIZE_BYTES and self._reading:
            (size,) = _unpack_size(buffer, position)
            if not 0 < size <= self.request_bytes_max:
                raise MalformedRequest(f"request of {size} bytes; 1 to {self.request_bytes_max} are allowed")
            end: int = position + SIZE_BYTES + size
            if end > have:
                break
            self.dispatch(self, buffer, position + SIZE_BYTES, end)
            if end == have:
                return end
            if not position:
                until_s = monotonic() + CONNECTION_S
            elif monotonic() > until_s:
                self._go_on_next_turn()
            position = end
        return position

    def _go_on_next_turn(self) -> None:
        """The others first: this client has sent many requests at once, or some that take long."""
        self._others_first = True
        self.pause_reading()
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._others_first = False
        self.resume()

    def _keep(self, rest: memoryview, *, whole: bool = False) -> None:
        """Hold `rest`, the start of a request or requests that wait for an answer, until there is more of it.

        With room for the `whole` request where it could not grow later.
        """
        have = len(rest)
        needed = have + 1
        if have >= SIZE_BYTES:
            needed = max(needed, SIZE_BYTES + int(_unpack_size(rest)[0]))
        old = self._partial
        if have <= KEPT_BYTES_MAX and (old is None or needed <= SCRATCH_BYTES):
            self._start = bytearray(rest)
            self._release_partial()
            self._slow_clients.began(self)
            return
        if old is not None and len(old) >= min(needed, 2 * have):
            memoryview(old)[:have] = rest
        else:
            buffer = self._pool.acquire(needed, needed if whole else have, self, must=old is None)
            if buffer is None:  # The buffer cannot grow yet: keep the full one until there is memory.
                self._wait_for_memory()
                return
            buffer[:have] = rest
            if old is not None:
                self._pool.release(old, self, has_another=True)
            self._partial = buffer
        self._partial_have = have
        self._slow_clients.began(self)

    def _wait_for_memory(self) -> None:
        """Stop reading until memory is free: too many bytes wait in half-arrived requests."""
        self._starved = True
        self.pause_reading()
        self._pool.when_free(self, self._memory_is_free)

    def _memory_is_free(self) -> None:
        """Read at once, before the next connection that waits takes the memory."""
        self._starved = False
        self.resume()
        if self._reading and self._partial is None:
            self._readable()

    def _release_partial(self) -> None:
        if self._partial is not None:
            self._pool.release(self._partial, self)
            self._partial = None
            self._partial_have = 0

    def pause_reading(self) -> None:
        """Take no further request."""
        if self._reading:
            self._reading = False
            self._transport.ignore_readable()

    def resume(self) -> None:
        """Read again once no answer is outstanding or unsent, beginning with requests that were read already."""
        if self.is_closed or self._reading or self._starved or self._others_first or self.answers.must_go_first:
            return
        self._reading = True
        self._transport.call_when_readable(self._readable)
        self._slow_clients.ended(self)  # The client is not to blame, as this broker did not read.
        try:
            self._process_partial()
            if self._start or self._partial is not None:
                self._slow_clients.began(self)
        except (OSError, MalformedRequest, CloseConnection) as error:
            self.close(str(error))

"""Read the requests of one client's connection, dispatch them, and send the responses in the order of the requests.

All connections receive into one shared scratch buffer. The connection keeps up to KEPT_BYTES_MAX of an incomplete
request itself, and takes a buffer of the pool for more. While the pool is exhausted, a request that fits into the
scratch buffer stays in the kernel's socket buffer until it is complete, and needs no memory of the pool; a larger
request waits for memory.

While a response is outstanding or unsent, `answers` may stop the reading of requests, and closes connections
that send or read too slowly.

The requests of all connections together have a share of each turn of the event loop. A connection that becomes readable
when the share is used up leaves the turn. In the next turns the connections that have left read first, in the order in
which they have left.
"""

import asyncio
import functools
import logging
import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import Final

from barnabas_broker.handlers.batch_trust import ConnectionTrust
from barnabas_broker.handlers.channel import Client
from barnabas_broker.handlers.large_responses import CloseConnection, SharedTurn
from barnabas_broker.server.answers import Answers, SlowClients
from barnabas_broker.server.connection_bounds import BufferPool, CallSoon, RequestBuffer
from barnabas_broker.server.transport import ColdReads, Transport
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_core.loop_turns import CONNECTION_S, LOOP_SHARE, MOVED_BYTES


class WatchedConnection(ABC):
    """The client of a connection, and whether the connection is open and active."""

    def __init__(self, client: Client, transport: Transport, answers: Answers) -> None:
        self.client = client
        self.answers = answers
        self._transport = transport
        self.was_active = True
        """True if anything has arrived since the listener's last check."""
        self._bytes_sent_before = 0
        self.idle_checks = 0
        """The number of idle checks by the listener since bytes were last received or sent."""

    @abstractmethod
    def close(self, reason: str | None = None) -> None:
        """Close the connection; log the `reason`, if any."""

    @property
    def peer(self) -> str:
        """The client's address, `host:port`."""
        return self.client.address

    def is_gone(self) -> bool:
        """True if the connection is closed or was reset, so that no response can arrive."""
        return self.has_ended() and self.is_closed

    def has_ended(self) -> bool:
        """True if the client has closed its side, tested without consuming bytes; close a connection that was reset."""
        try:
            return self.is_closed or self._transport.has_ended()
        except OSError as error:
            self.close(str(error))  # The socket reports an error only once, so close now.
            return True

    @property
    def is_closed(self) -> bool:
        """True if the connection is closed."""
        return not self.answers.is_open

    @property
    def bytes_sent(self) -> int:
        """The number of bytes handed to the kernel so far."""
        return self.answers.bytes_sent

    @property
    def unsent_bytes(self) -> int:
        """The memory in bytes that finished but unsent responses hold."""
        return self.answers.unsent_bytes

    @property
    def has_unsent(self) -> bool:
        """True if a finished response is not sent yet."""
        return self.answers.has_unsent

    def count_idle(self) -> None:
        """Count an idle check, or reset the count after activity; a client that reads a long response is active."""
        bytes_sent = self.bytes_sent
        is_idle = not self.was_active and bytes_sent == self._bytes_sent_before
        self.idle_checks = self.idle_checks + 1 if is_idle else 0
        self.was_active, self._bytes_sent_before = False, bytes_sent


class TurnShare:
    """The connections that have left a turn of the event loop."""

    def __init__(self, call_soon: CallSoon) -> None:
        self._call_soon = call_soon
        self._left: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    @property
    def is_behind(self) -> bool:
        """True if connections wait for a turn."""
        return bool(self._left)

    def leave(self, go_on: Callable[[], object]) -> None:
        """Call `go_on` in the next turn of the event loop that has time left."""
        self._left.append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        LOOP_SHARE.extend(CONNECTION_S)  # At least one connection goes on in each turn.
        for _ in range(len(self._left)):
            self._left.popleft()()
            if LOOP_SHARE.is_used_up():
                break
        if self._left:
            self._schedule()


log = logging.getLogger(__name__)

SCRATCH_BYTES: Final = 256 * 1024
KEPT_BYTES_MAX: Final = 1024
"""The maximum size of an incomplete request that is kept outside the buffer pool, whose buffers have 64 KiB or more."""
SIZE_BYTES: Final = 4
_unpack_size: Final = struct.Struct(">i").unpack_from


def _first_end(buffer: RequestBuffer) -> int:
    """Return the end of the first request in the buffer."""
    return SIZE_BYTES + int(_unpack_size(buffer)[0])


Dispatch = Callable[["Connection", memoryview, int, int], None]
"""A function that answers the request in `buffer[start:end]`, or raises MalformedRequest or CloseConnection."""


class Connection(WatchedConnection):
    """One client's connection.

    Either side may close it; an error, idleness or slowness of the client closes it, too.
    """

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
        share: TurnShare,
        request_bytes_max: int,
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self._share = share
        answers = Answers(loop, transport, slow_clients, cold_reads, self)
        super().__init__(client, transport, answers)
        self._slow_clients = slow_clients
        self.answer = answers.answer
        self.answer_soon = answers.answer_soon
        self.defer = answers.defer
        self.deferred = answers.deferred
        self._receive = transport.receive
        self.trust: ConnectionTrust | None = None
        self.turn: SharedTurn | None = None
        self.dispatch = dispatch
        self._scratch = scratch
        self._pool = pool
        self.request_bytes_max = request_bytes_max
        self.when_closed: list[Callable[..., object]] = [on_closed]
        self._start = bytearray()
        """The received bytes that are not processed yet, at most KEPT_BYTES_MAX; more bytes are kept in `_partial`."""
        self._partial: RequestBuffer | None = None
        self._partial_have = 0
        self._whole_bytes = 0
        """The number of received bytes below which the socket does not count as readable; 0 for no limit."""
        self._starved = False
        self._others_first = False
        self._is_moving = False
        """True while the bytes of an incomplete request are copied to a larger buffer."""
        self._large: Callable[[memoryview], object] | None = None
        """The function that answers the large request at the start of `_partial`, once the bytes are kept there."""
        self._reading = True
        transport.call_when_readable(self._readable)

    @property
    def begun_bytes(self) -> int:
        """The number of bytes received of the incomplete request."""
        return self._partial_have if self._partial is not None else len(self._start)

    @property
    def holds_buffer(self) -> bool:
        """True if the connection holds a buffer of the pool."""
        return self._partial is not None

    @property
    def waits_for_client(self) -> bool:
        """True if the broker reads from the connection; then only the client can delay an incomplete request."""
        return self._reading

    def close(self, reason: str | None = None) -> None:
        """Close the connection and free its memory; log the `reason`, if any."""
        if self.answers.ready:
            self.answers.flush()
        if self.is_closed:
            return
        if reason:
            log.info("closing the connection of %s: %s", self.peer, reason)
        self._transport.close()
        self._reading = False
        self.answers.close()
        self._large = None
        self._start = bytearray()
        self._release_partial()
        self._pool.forget(self)
        self._slow_clients.forget(self)
        while self.when_closed:  # Whatever these functions hold is freed with the connection.
            self.when_closed.pop()(self)

    def _readable(self) -> None:
        if perf_counter() > LOOP_SHARE.ends_s:
            self._go_on_next_turn()
            return
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
        """Handle the EOF of the client: close the connection once the outstanding responses are sent."""
        if not self.answers.are_outstanding:
            self.close()
            return 0
        self.pause_reading()
        self._start = bytearray()
        self._release_partial()
        self._slow_clients.ended(self)
        return 0

    def _read_after_start(self) -> None:
        """Receive more bytes of the incomplete request in `_start`, and process the requests that are now complete."""
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
        """Process complete requests while memory is exhausted; leave a long incomplete one in the socket's buffer."""
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
        could_not_hold = could_not_hold or self._large is not None
        needed = SIZE_BYTES + int(_unpack_size(rest)[0])
        if could_not_hold and needed <= SCRATCH_BYTES and self._pool.has_reserve:
            self._take(seen)
            self._start = bytearray()
            self._keep(memoryview(rest), whole=True)
            return
        self._take(max(consumed - kept, 0))
        if not self._reading and self._large is None:
            return
        self._large = None
        if needed > SCRATCH_BYTES or could_not_hold:
            self._wait_for_memory()
        else:
            self._wait_for_bytes(needed - len(self._start))
        self._slow_clients.began(self)

    def _take(self, size_bytes: int) -> None:
        if size_bytes:  # A peek has copied the bytes already.
            self._receive(self._scratch[:size_bytes])

    def _wait_for_bytes(self, whole_bytes: int) -> None:
        if whole_bytes != self._whole_bytes and not self.is_closed:
            self._whole_bytes = whole_bytes
            self._transport.readable_from(whole_bytes)

    def _read_into_partial(self, partial: RequestBuffer) -> None:
        received = self._receive(memoryview(partial)[self._partial_have :])
        if not received:
            self._end()
            return
        self._partial_have += received
        self._process_partial()

    def _process_partial(self) -> None:
        """Dispatch the complete requests in the connection's buffer; keep the bytes of an incomplete request."""
        partial, have = self._partial, self._partial_have
        if partial is None:
            self._process_start()
            return
        view = memoryview(partial)
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
        """Process the requests in `_start` itself, because the scratch buffer may hold another connection's request."""
        start = self._start
        consumed = self._process(memoryview(start), len(start))
        if consumed and not self.is_closed:
            self._start = start[consumed:]

    def _process(self, buffer: memoryview, have: int) -> int:
        """Dispatch the complete requests in `buffer[:have]` until reading is paused; return the consumed bytes."""
        position = 0
        while (start := position + SIZE_BYTES) <= have and self._reading:
            (size,) = _unpack_size(buffer, position)
            if not 0 < size <= self.request_bytes_max:
                raise MalformedRequest(f"a request has {size} bytes; 1 to {self.request_bytes_max} are allowed")
            end: int = start + size
            if end > have:
                break
            self.dispatch(self, buffer, start, end)
            if self._large is not None:
                break
            if end == have:  # The usual case: one request was received.
                position = have
                break
            if not position:
                until_s, half = monotonic() + CONNECTION_S, have >> 1
            elif monotonic() > until_s:
                self._go_on_next_turn()
            if end >= half and self.answers.ready:
                self.answers.flush()  # The client can go on while the broker handles the second half of its requests.
                half = have
            position = end
        if self.answers.ready:
            self.answers.flush()
        return position

    def _go_on_next_turn(self) -> None:
        self._others_first = True
        self.pause_reading()
        self._share.leave(self._go_on)

    def _go_on(self) -> None:
        if self._is_moving:
            return
        self._others_first = False
        if self._large is None or self.is_closed:
            self._resume_and_read()
            return
        partial, answer, self._large = self._partial, self._large, None
        assert partial is not None, "the bytes of a large request are kept"
        answer(memoryview(partial)[SIZE_BYTES : _first_end(partial)])

    def answer_in_turns(self, answer: Callable[[memoryview], object]) -> None:
        """Keep the bytes of the current request, read no further one, and call `answer` with it in a later turn.

        `answer` must defer the response, close the connection at an error, and call `request_is_read` before it sends
        the response.
        """
        self._large = answer
        self._go_on_next_turn()

    def request_is_read(self) -> None:
        """Free the bytes of the large request. Raise CloseConnection if they are lost, as the connection is closed."""
        if self._partial is None:
            raise CloseConnection("the client has disconnected")
        rest = memoryview(self._partial)[_first_end(self._partial) : self._partial_have]
        if rest:
            self._keep(rest)
        else:
            self._release_partial()

    def _keep(self, rest: memoryview, *, whole: bool = False) -> None:
        """Store `rest`, the start of an incomplete request; if `whole`, in a buffer with room for the whole request."""
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
            if buffer is None:  # The buffer cannot grow, so the request waits until memory is free.
                assert old is not None, "a request without a buffer always gets one"
                memoryview(old)[:have] = rest
                self._partial_have = have
                self._wait_for_memory()
                return
            self._partial = buffer
            if old is not None and have > MOVED_BYTES:
                self._is_moving = self._others_first = True
                self.pause_reading()
                self._move_some(old, rest, 0)
            else:
                buffer[:have] = rest
                if old is not None:
                    self._pool.release(old, self, has_another=True)
        self._partial_have = have
        self._slow_clients.began(self)

    def _move_some(self, old: RequestBuffer, rest: memoryview, begin: int) -> None:
        """Copy a portion of `rest`, which is in the buffer `old`, to the new buffer; read on after the last one."""
        if self._partial is None:  # The connection was closed.
            self._pool.release(old, self)
            return
        end = min(begin + MOVED_BYTES, len(rest))
        self._partial[begin:end] = rest[begin:end]
        if end < len(rest):
            self._share.leave(functools.partial(self._move_some, old, rest, end))
            return
        self._pool.release(old, self, has_another=True)
        self._is_moving = self._others_first = False
        self._resume_and_read()

    def _wait_for_memory(self) -> None:
        self._starved = True
        self.pause_reading()
        self._pool.when_free(self, self._memory_is_free)

    def _memory_is_free(self) -> None:
        """Read at once, before the next connection in the queue takes the free memory of the buffer pool."""
        self._starved = False
        self._resume_and_read()

    def _resume_and_read(self) -> None:
        self.resume()
        if self._reading and self._partial is None:
            self._readable()

    def _release_partial(self) -> None:
        if self._partial is not None:
            self._pool.release(self._partial, self)
            self._partial = None
            self._partial_have = 0

    def pause_reading(self) -> None:
        """Stop reading requests."""
        if self._reading:
            self._reading = False
            self._transport.ignore_readable()

    def resume(self) -> None:
        """Read again unless another reason to pause remains; begin with requests that have already been received."""
        if self.is_closed or self._reading or self._starved or self._others_first or self.answers.must_go_first:
            return
        self._reading = True
        self._transport.call_when_readable(self._readable)
        self._slow_clients.ended(self)  # The broker had paused reading, so the client was not slow.
        try:
            self._process_partial()
            if self._start or self._partial is not None:
                self._slow_clients.began(self)
        except (OSError, MalformedRequest, CloseConnection) as error:
            self.close(str(error))

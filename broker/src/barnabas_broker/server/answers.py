"""The responses of one connection, sent in the order of its requests, and the bounds of clients that are slow.

A connection reads no further request while a response is outstanding or unsent, so that a client that does not read
cannot fill the broker's memory. A handler may let the connection read on: Produce does so while its batches are
replicated, so that one replication round carries the batches of several requests. Small responses to requests that were
received together are sent together, because a `send` costs more than most of the work for a request.

A request must arrive at a minimum rate once it has begun. A client may leave its responses unread while memory is
sufficient, as a consumer does that is busy with its records. When memory is short, the clients that have read nothing
for the longest time are closed. `connections.max.idle.ms` covers connections without traffic in either direction.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from barnabas_broker.handlers.channel import GiveUp
from barnabas_broker.server.connection_bounds import BufferPool
from barnabas_broker.server.transport import ColdReads, Outbox, Transport, memory_bytes
from barnabas_broker.wire.framing import Part

log = logging.getLogger(__name__)

SLOW_CHECK_S: Final = 0.25
"""The period of `check` in seconds; the check skips clients that have been slow for at most PATIENCE_S."""
REQUEST_S_MAX: Final = 30.0
"""The seconds within which a complete request must arrive, plus 1 s for every REQUEST_BYTES_A_S_MIN bytes received.

30 s is also the default of the clients' request.timeout.ms.
"""
REQUEST_BYTES_A_S_MIN: Final = 16 * 1024
"""The minimum rate, in bytes per second, at which a request must arrive.

A request may take REQUEST_S_MAX, plus 1 s for every 16 KiB received; a request of 100 MB may take about 100 minutes.
"""
PATIENCE_S: Final = 1.0
SHORT_BYTES_A_S_MIN: Final = 128 * 1024
"""The minimum rate in bytes per second, after PATIENCE_S, of a client that holds a buffer while memory is short.

Slower clients are closed.
"""
ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
"""The limit in bytes for the unsent responses of all clients; above twice the limit, `check` runs at once."""
NAMED_MAX: Final = 3
"""The maximum number of clients that one log line names."""


class SlowClient(Protocol):
    """The interface of a connection: the methods and properties that `SlowClients` uses."""

    @property
    def peer(self) -> str:
        """The client's address, `host:port`."""
        ...

    @property
    def begun_bytes(self) -> int:
        """The number of bytes received of an incomplete request."""
        ...

    @property
    def holds_buffer(self) -> bool:
        """True if the connection holds a buffer of the pool for an incomplete request."""
        ...

    @property
    def waits_for_client(self) -> bool:
        """True if the client has to send the rest of a request; False if the broker has to read or respond."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """The memory in bytes that finished but unsent responses hold."""
        ...

    @property
    def has_unsent(self) -> bool:
        """True if a finished response is not sent yet."""
        ...

    @property
    def bytes_sent(self) -> int:
        """The number of bytes that the connection has sent since it was opened."""
        ...

    def close(self, reason: str | None = None) -> None:
        """Close the connection; log the `reason`, if any."""
        ...


class Unread(NamedTuple):
    """The unsent responses of a client at the last check."""

    since_s: float
    bytes_sent: int
    """The number of bytes sent by the time of the last check; a higher number shows that the client reads."""
    held_bytes: int


class SlowClients:
    """The connections with incomplete requests or unsent responses.

    The listener calls `check` every SLOW_CHECK_S seconds.
    """

    def __init__(
        self, pool: BufferPool, now_s: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self._pool = pool
        self._now_s = now_s
        self._call_soon = call_soon
        self._began_s: dict[SlowClient, float] = {}
        """The time at which each incomplete request began, the oldest first."""
        self._unread: dict[SlowClient, Unread] = {}
        self._checks_soon = False
        self.answer_bytes = 0
        """The memory in bytes that all unsent responses hold."""
        self.closed_total = 0

    def began(self, client: SlowClient) -> None:
        """Begin the timing of an incomplete request, unless it has begun already."""
        if client not in self._began_s:
            self._began_s[client] = self._now_s()

    def ended(self, client: SlowClient) -> None:
        """Stop the timing of the client's incomplete request."""
        self._began_s.pop(client, None)

    def holds_answers(self, client: SlowClient) -> None:
        """Record the memory of a client's unsent responses, and reset the time since the client last read."""
        before = self._unread.pop(client, None)
        if before is not None:
            self.answer_bytes -= before.held_bytes
        if client.has_unsent:
            now = self._unread[client] = Unread(self._now_s(), client.bytes_sent, client.unsent_bytes)
            self.answer_bytes += now.held_bytes
        if self.answer_bytes > 2 * ANSWER_BYTES_MAX and not self._checks_soon:
            self._checks_soon = True
            self._call_soon(self.check)

    def forget(self, client: SlowClient) -> None:
        """Remove a closed connection."""
        self._began_s.pop(client, None)
        before = self._unread.pop(client, None)
        if before is not None:
            self.answer_bytes -= before.held_bytes

    def check(self) -> None:
        """Close the clients that send or read too slowly."""
        self._checks_soon = False
        now_s = self._now_s()
        self._close(
            [client for client, since_s in self._older(self._began_s, now_s) if self._is_late(client, now_s - since_s)],
            f"the clients sent requests too slowly: below {REQUEST_BYTES_A_S_MIN} bytes/s after the first"
            f" {REQUEST_S_MAX:.0f} s, or below {SHORT_BYTES_A_S_MIN} bytes/s after the first {PATIENCE_S:.0f} s"
            f" while memory is short",
        )
        self._check_readers(now_s)
        self._close(
            self._unread_too_long(now_s),
            f"the clients do not read their responses, and memory is short: {self.answer_bytes} bytes wait to be sent",
        )

    def _older(self, clients: dict[SlowClient, float], now_s: float) -> Iterable[tuple[SlowClient, float]]:
        """Return the clients that were added to `clients` more than PATIENCE_S ago, with the times of the additions.

        `clients` must be in the order of these times, oldest first.
        """
        return takewhile(lambda entry: now_s - entry[1] > PATIENCE_S, clients.items())

    def _is_late(self, client: SlowClient, age_s: float) -> bool:
        """True if the client took too long to send a request.

        While the broker has paused reading from the connection, the client is late only if it holds a buffer, memory is
        short, and REQUEST_S_MAX is over.
        """
        is_costly = self._pool.is_short and client.holds_buffer
        if not client.waits_for_client:
            return is_costly and age_s > REQUEST_S_MAX
        allowed_s, rate = (PATIENCE_S, SHORT_BYTES_A_S_MIN) if is_costly else (REQUEST_S_MAX, REQUEST_BYTES_A_S_MIN)
        return age_s > allowed_s + client.begun_bytes / rate

    def _check_readers(self, now_s: float) -> None:
        """Record the current time for each client that has read responses since the last check for slow clients.

        Examine all clients if the unsent responses exceed ANSWER_BYTES_MAX. Otherwise examine only the clients whose
        recorded time is more than PATIENCE_S ago.
        """
        is_much = self.answer_bytes > ANSWER_BYTES_MAX
        checked = takewhile(lambda entry: is_much or now_s - entry[1].since_s > PATIENCE_S, self._unread.items())
        for client in [client for client, unread in checked if client.bytes_sent != unread.bytes_sent]:
            self.holds_answers(client)

    def _unread_too_long(self, now_s: float) -> list[SlowClient]:
        late: list[SlowClient] = []
        left = self.answer_bytes
        for client, unread in self._unread.items():
            has_patience = now_s - unread.since_s <= PATIENCE_S
            is_needed = client.holds_buffer and self._pool.is_short and not has_patience
            if left > (2 * ANSWER_BYTES_MAX if has_patience else ANSWER_BYTES_MAX) or is_needed:
                late.append(client)
                left -= unread.held_bytes
            elif has_patience:
                break
        return late

    def _close(self, clients: list[SlowClient], reason: str) -> None:
        if not clients:
            return
        self.closed_total += len(clients)
        named = ", ".join(client.peer for client in clients[:NAMED_MAX])
        others = f" and {len(clients) - NAMED_MAX} more" if len(clients) > NAMED_MAX else ""
        for client in clients:
            client.close()
        log.warning("closed the connections of %s%s: %s", named, others, reason)


LATE_ANSWERS_MAX: Final = 64
"""The number of outstanding responses at which a connection stops reading requests."""
LATE_BYTES_MAX: Final = 1024 * 1024
"""The limit for the bytes of finished responses that wait for an earlier response; reading pauses at the limit."""


class LateAnswer:
    """A deferred response, which keeps its place in the order of requests; `parts` is None until it is finished.

    `on_answer` is called when the response is finished, and `give_up` if the connection closes earlier.
    """

    __slots__ = ("give_up", "mutes", "on_answer", "parts")

    def __init__(self, *, mutes: bool) -> None:
        self.mutes = mutes
        self.parts: list[Part] | None = None
        self.on_answer: Callable[[], object] | None = None
        self.give_up: GiveUp | None = None


class Asker(SlowClient, Protocol):
    """The methods of a connection that `Answers` calls."""

    def pause_reading(self) -> None:
        """Stop reading requests."""
        ...

    def resume(self) -> None:
        """Resume reading unless another reason to pause remains."""
        ...


class Answers:
    """The responses of one connection. `close` drops all responses and the reference to the connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        slow_clients: SlowClients,
        cold_reads: ColdReads,
        asker: Asker,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._asker = asker
        self.is_open = True
        self._slow_clients = slow_clients
        self._cold_reads = cold_reads
        self._outbox = Outbox(transport, cold_reads.gather_buffer, cold_reads.page_cache)
        self._late: list[LateAnswer] = []
        """The deferred responses, and those behind them: so few that a list is enough. An empty deque takes 0.6 KB."""
        self._late_bytes = 0
        self.ready = bytearray()
        """The small responses that the next `flush` sends together."""
        self.deferred: list[LateAnswer] = []
        """The deferred responses of the current request, which the dispatcher takes after each request."""
        self._mutes = 0
        self._throttle: asyncio.TimerHandle | None = None
        """The timer of the throttle; while it is set, no request is read."""
        self._answers_soon = False

    @property
    def bytes_sent(self) -> int:
        """The number of bytes handed to the kernel so far."""
        return self._outbox.bytes_sent

    @property
    def is_sending(self) -> bool:
        """True while the kernel has not taken all bytes of a response."""
        return bool(self._outbox.unsent)

    @property
    def are_outstanding(self) -> bool:
        """True while a response is unfinished, or waits for an earlier one."""
        return bool(self._late)

    @property
    def unsent_bytes(self) -> int:
        """The memory in bytes that finished but unsent responses hold."""
        return self._outbox.held_bytes + self._late_bytes + len(self.ready)

    @property
    def has_unsent(self) -> bool:
        """True if a finished response is not sent yet."""
        return bool(self._outbox.unsent) or self._late_bytes > 0

    @property
    def must_go_first(self) -> bool:
        """True while no further request may be read."""
        return self._mutes > 0 or self._has_enough_late or self._throttle is not None or bool(self._outbox.unsent)

    def answer(self, parts: list[Part]) -> None:
        """Send a response after the outstanding ones; stop reading requests until the socket has taken all bytes.

        Do nothing if the connection is closed.
        """
        if self._late:
            self._queue_late(parts)
        elif self.is_open:
            self._send(parts)

    def answer_soon(self, response: bytes | bytearray) -> None:
        """Send a small response after the outstanding ones, with those to requests that were received with its request.

        The connection calls `flush` half-way through the received bytes, and after the last request in them.
        """
        if self._late:
            self._queue_late([response])
        else:
            self.ready += response

    def flush(self) -> None:
        """Send the small responses that are ready; drop them if the connection is closed."""
        ready, self.ready = self.ready, bytearray()
        outbox = self._outbox
        if outbox.unsent:
            self._send([ready])
        elif self.is_open:
            try:
                if not outbox.put(ready):
                    self._holds_rest()
            except OSError as error:
                self._broken(error)

    def _queue_late(self, parts: list[Part]) -> None:
        late = LateAnswer(mutes=False)
        late.parts = parts
        self._late.append(late)
        self._late_bytes += memory_bytes(parts)
        self._slow_clients.holds_answers(self._asker)
        if self._has_enough_late:
            self._asker.pause_reading()

    @property
    def _has_enough_late(self) -> bool:
        return len(self._late) >= LATE_ANSWERS_MAX or self._late_bytes >= LATE_BYTES_MAX

    def _send(self, parts: list[Part]) -> None:
        outbox = self._outbox
        if self.ready:
            parts, self.ready = [self.ready, *parts], bytearray()
        try:
            if outbox.unsent:  # Earlier bytes that wait for the socket or the disk must be sent first.
                outbox.add(parts)
                self._holds_answers()
            elif not outbox.put_parts(parts):
                self._holds_rest()
        except OSError as error:
            self._broken(error)

    def _broken(self, error: OSError) -> None:
        self._asker.close(f"the response could not be sent: {error}")

    def _holds_answers(self) -> None:
        self._slow_clients.holds_answers(self._asker)
        self._asker.pause_reading()

    def _holds_rest(self) -> None:
        self._holds_answers()
        self._send_rest()

    def _send_rest(self) -> None:
        """Send the unsent parts once the socket is writable, or once uncached records have been read from the disk."""
        if self._outbox.cold is None:
            self._transport.call_when_writable(self._writable)
        else:
            self._transport.ignore_writable()
            self._cold_reads.fetch(self._outbox.cold, self._warmed)

    def _warmed(self, size_bytes: int) -> None:
        if self.is_open:
            self._outbox.warmed(size_bytes)
            self._writable()
            if self.is_open and self._outbox.cold is None and self._outbox.unsent:
                self._transport.call_when_writable(self._writable)

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        """Return a callback that takes the parts of the response and sends them; for an empty list it sends nothing.

        The connection reads no further request before the callback is called, unless `reads_on` is True.
        """
        late = LateAnswer(mutes=not reads_on)
        self._late.append(late)
        self.deferred.append(late)
        self._mutes += late.mutes
        if self.is_open and (late.mutes or len(self._late) >= LATE_ANSWERS_MAX):
            self._asker.pause_reading()
        return partial(self._answer_late, late)

    def mute(self, seconds: float) -> None:
        """Read no further request for `seconds`; a longer throttle that is already set remains."""
        until_s = self._loop.time() + seconds
        if not self.is_open or (self._throttle is not None and self._throttle.when() >= until_s):
            return
        if self._throttle is not None:
            self._throttle.cancel()
        self._throttle = self._loop.call_at(until_s, self._unmute)
        self._asker.pause_reading()

    def _unmute(self) -> None:
        self._throttle = None
        self._asker.resume()

    def _answer_late(self, late: LateAnswer, parts: list[Part]) -> None:
        late.parts = parts
        late.give_up = None
        if late.on_answer is not None:
            late.on_answer()
        self._mutes -= late.mutes
        if len(self._late) == 1:
            self._send_late()
        elif not self._answers_soon:  # Responses that finish in the same turn of the loop are sent together.
            self._answers_soon = True
            self._loop.call_soon(self._send_late)

    def _send_late(self) -> None:
        """Send the finished responses up to the first unfinished one; resume reading unless it must stay paused."""
        self._answers_soon = False
        if not self.is_open:
            return
        late = self._late
        ready: list[Part] = []
        while late and (parts := late[0].parts) is not None:
            ready += parts
            del late[0]
        if late or self._late_bytes:
            self._count_late()
        if ready:
            self._send(ready)
        if self.is_open:
            self._asker.resume()

    def _count_late(self) -> None:
        """Count the bytes of finished responses that wait for an earlier response; pause reading at the limit."""
        late_bytes = sum([memory_bytes(late.parts) for late in self._late if late.parts])
        if late_bytes != self._late_bytes:
            self._late_bytes = late_bytes
            self._slow_clients.holds_answers(self._asker)
            if self._has_enough_late:
                self._asker.pause_reading()

    def _writable(self) -> None:
        try:
            if self._outbox.flush():
                self._transport.ignore_writable()
                self._slow_clients.holds_answers(self._asker)
                self._asker.resume()
            elif self._outbox.cold is not None:
                self._send_rest()
        except OSError as error:
            self._broken(error)

    def close(self) -> None:
        """Drop all responses and their memory; call `give_up` for each unfinished one."""
        self.is_open = False
        if self._throttle is not None:
            self._throttle.cancel()
        waits = [late.give_up for late in self._late if late.give_up is not None]
        for late in self._late:
            late.give_up = None  # Break the reference cycle through the response.
        self._late.clear()
        self._late_bytes = 0
        self._outbox.clear()
        del self._asker  # Break the reference cycle, so that the memory is freed at once.
        for give_up in waits:
            give_up()

"""Limit the memory of clients that send or read slowly, and close them when memory is short.

A request must arrive at a minimum rate once it has begun. A client may leave its responses unread while memory is
sufficient, as a consumer does that is busy with its records. When memory is short, the clients that have read nothing
for the longest time are closed. `connections.max.idle.ms` covers connections without traffic in either direction.
"""

import logging
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from barnabas_broker.server.buffers import BufferPool

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
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
    """The connections with incomplete requests or unsent responses. The listener calls `check` every LOOK_S seconds."""

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
        self._look_who_reads(now_s)
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

    def _look_who_reads(self, now_s: float) -> None:
        """Record the current time for each client that has read responses since the last check for slow clients.

        Examine all clients if the unsent responses exceed ANSWER_BYTES_MAX. Otherwise examine only the clients whose
        recorded time is more than PATIENCE_S ago.
        """
        is_much = self.answer_bytes > ANSWER_BYTES_MAX
        looked_at = takewhile(lambda entry: is_much or now_s - entry[1].since_s > PATIENCE_S, self._unread.items())
        for client in [client for client, unread in looked_at if client.bytes_sent != unread.bytes_sent]:
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

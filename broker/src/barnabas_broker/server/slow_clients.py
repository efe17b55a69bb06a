"""Clients that keep us waiting hold memory: here is for how long they may, and who goes first when it is short.

A request that has begun must come on at a minimum rate. Who does not read its answers may take its time, for a consumer
that works on what it has is none of our business, until memory is short: then those go that have read nothing for the
longest. `connections.max.idle.ms` is for connections on which nothing goes either way.
"""

import logging
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from barnabas_broker.server.buffers import BufferPool

log = logging.getLogger(__name__)

LOOK_S: Final = 0.25
"""A look concerns only who has been here for longer than PATIENCE_S."""
REQUEST_S_MAX: Final = 30.0
"""For a request that has begun; the clients themselves give one up after as long (their request.timeout.ms)."""
REQUEST_BYTES_A_S_MIN: Final = 16 * 1024
"""What has arrived at this rate earns more time: so 100 MB may take two hours, and a byte a second 30 s."""
PATIENCE_S: Final = 1.0
SHORT_BYTES_A_S_MIN: Final = 128 * 1024
"""Instead of these two, for who holds a buffer while memory is short and others wait for it."""
ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
"""Of all answers that are there and not sent. Twice as many are never held: then the oldest go at once."""
NAMED_MAX: Final = 3
"""Clients that one line of the log names."""


class SlowClient(Protocol):
    """What is asked of a connection."""

    @property
    def peer(self) -> str:
        """The client's address, `host:port`."""
        ...

    @property
    def begun_bytes(self) -> int:
        """The bytes that have arrived of a request that is not whole yet."""
        ...

    @property
    def holds_buffer(self) -> bool:
        """Whether the connection has a buffer of the pool for that request."""
        ...

    @property
    def waits_for_client(self) -> bool:
        """Whether the client has to send the rest of a request; otherwise the broker has to read or answer."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """The bytes of answers that are ready and not sent."""
        ...

    @property
    def has_unsent(self) -> bool:
        """Whether there is any answer that is not sent."""
        ...

    @property
    def bytes_sent(self) -> int:
        """How many bytes the connection has sent since it was opened."""
        ...

    def close(self, reason: str | None = None) -> None:
        """Closes the connection; the reason is one line in the log."""
        ...


class Unread(NamedTuple):
    """Answers of a client that are not sent, as they were when somebody looked."""

    since_s: float
    bytes_sent: int
    """By its connection: if there are more now, it has read."""
    held_bytes: int


class SlowClients:
    """All connections of a broker that hold memory for their client. `check` comes round every LOOK_S."""

    def __init__(
        self, pool: BufferPool, now_s: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self._pool = pool
        self._now_s = now_s
        self._call_soon = call_soon
        self._began_s: dict[SlowClient, float] = {}
        """When the request began that is not whole; the oldest first, here and below."""
        self._unread: dict[SlowClient, Unread] = {}
        self._checks_soon = False
        self.answer_bytes = 0
        """Of all answers that are not sent."""
        self.closed_total = 0

    def began(self, client: SlowClient) -> None:
        """It has sent a part of a request."""
        if client not in self._began_s:
            self._began_s[client] = self._now_s()

    def ended(self, client: SlowClient) -> None:
        """A request has come in whole: its client is not slow."""
        self._began_s.pop(client, None)

    def holds_answers(self, client: SlowClient) -> None:
        """There is one more that is not sent, or all are. What goes piece by piece is seen by `check`."""
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
        """A connection was closed: it is watched no longer."""
        self._began_s.pop(client, None)
        before = self._unread.pop(client, None)
        if before is not None:
            self.answer_bytes -= before.held_bytes

    def check(self) -> None:
        """Close who is too slow."""
        self._checks_soon = False
        now_s = self._now_s()
        self._close(
            [client for client, since_s in self._older(self._began_s, now_s) if self._is_late(client, now_s - since_s)],
            f"their requests came in too slowly: less than {REQUEST_BYTES_A_S_MIN} bytes a second in"
            f" {REQUEST_S_MAX:.0f} s, or {SHORT_BYTES_A_S_MIN} in {PATIENCE_S:.0f} s when memory is short",
        )
        self._look_who_reads(now_s)
        self._close(
            self._unread_too_long(now_s),
            f"they do not read their answers and memory is short: {self.answer_bytes} bytes wait to be sent",
        )

    def _older(self, clients: dict[SlowClient, float], now_s: float) -> Iterable[tuple[SlowClient, float]]:
        """Those that may be late, without a look at the others."""
        return takewhile(lambda entry: now_s - entry[1] > PATIENCE_S, clients.items())

    def _is_late(self, client: SlowClient, age_s: float) -> bool:
        """Where memory is short those that hold it go early; who waits for us, only then and late."""
        is_costly = self._pool.is_short and client.holds_buffer
        if not client.waits_for_client:
            return is_costly and age_s > REQUEST_S_MAX
        allowed_s, rate = (PATIENCE_S, SHORT_BYTES_A_S_MIN) if is_costly else (REQUEST_S_MAX, REQUEST_BYTES_A_S_MIN)
        return age_s > allowed_s + client.begun_bytes / rate

    def _look_who_reads(self, now_s: float) -> None:
        """Who does begins anew: of those that have been here for long, or of all where too much waits."""
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

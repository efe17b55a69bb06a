"""The state that all SASL sessions of a listener share: mechanisms, limits and counters; the thread for passwords."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from barnabas_broker.security.sasl.mechanism import Identity, Mechanism
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.newcomers import NetworkQueue, Newcomers, network_of
from barnabas_core.clock import Clock, Timers
from barnabas_core.loop_turns import ACCEPTED_CONNECTIONS

DEADLINE_S: Final = 30.0
"""The seconds in which a client must authenticate; Kafka allows connections.max.idle.ms, ten minutes by default."""
SESSION_MS_MAX: Final = 100 * 365 * 24 * 3600 * 1000
"""The longest lifetime of a session in ms; Java clients count nanoseconds in a long, which must not overflow."""

TLS: Final = "TLS"
"""The metric label of clients whose TLS handshake failed."""
NO_MECHANISM: Final = "none"
"""The metric label of clients that were refused before they chose a mechanism."""

SUBMITTED_MAX: Final = 2
"""The passwords that the thread has at once: it does not wait for the event loop between two of them."""

Conclusion = Callable[[Callable[[], bytes]], None]
"""A function that takes the outcome of a computation.

Its argument is a function that returns the computed bytes, or raises the error of the computation.
"""
InThread = Callable[[str, Callable[[], bytes], Conclusion], Callable[[], object]]
"""A function that runs a computation in a thread, and then passes the outcome to a `Conclusion` on the event loop.

The first argument is the address of the client. The result is a function that gives up the computation and the
`Conclusion`, and frees both.
"""


class PasswordThread:
    """A thread that hashes one password at a time, and starts with the first one.

    Addresses take turns, so that one that guesses passwords delays others by one password each. Hashing releases the
    GIL, so the event loop serves other clients meanwhile.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, "passwords")
        self._waiting: NetworkQueue[_Password] = NetworkQueue()
        self._submitted = 0

    def __call__(self, address: str, compute: Callable[[], bytes], conclude: Conclusion) -> Callable[[], None]:
        """Run `compute` in the thread, then `conclude` on the event loop; return a function that gives both up."""
        network, password = network_of(address), _Password(compute, conclude)
        self._waiting.add(network, password)
        self._submit()
        return lambda: self._give_up(network, password)

    def close(self) -> None:
        """End the thread; passwords that wait are not hashed any more."""
        self._waiting.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self) -> None:
        while self._waiting and self._submitted < SUBMITTED_MAX:
            password = self._waiting.take()
            self._submitted += 1
            done = self._thread.submit(password.run)
            done.add_done_callback(partial(self._done, password))

    def _done(self, password: "_Password", done: Future[bytes]) -> None:
        if not done.cancelled():
            with suppress(RuntimeError):  # The event loop may be closed already.
                self._loop.call_soon_threadsafe(self._conclude, password, done.result)

    def _conclude(self, password: "_Password", result: Callable[[], bytes]) -> None:
        self._submitted -= 1
        self._submit()
        conclude = password.conclude
        password.forget()
        if conclude is not None:
            conclude(result)

    def _give_up(self, network: str, password: "_Password") -> None:
        password.forget()
        self._waiting.discard(network, password)


@dataclass(slots=True, eq=False)
class _Password:
    """A password that the thread hashes; both fields are None once that is done or its client has gone."""

    compute: Callable[[], bytes] | None
    conclude: Conclusion | None

    def forget(self) -> None:
        """Free the password and its connection."""
        self.compute = self.conclude = None

    def run(self) -> bytes:
        """Compute the hash; compute nothing if the client has gone."""
        compute = self.compute
        return b"" if compute is None else compute()


class Logins:
    """The connections of a listener that have not authenticated yet; they are closed if they take too long."""

    def __init__(self, timers: Timers, clock: Clock, connections_max: int | None, deadline_s: float) -> None:
        self._timers = timers
        self._clock = clock
        self.connections: Newcomers[Connection] = Newcomers(connections_max)
        self._deadline_s = deadline_s
        self._is_timed = False

    def began(self, connection: Connection) -> None:
        """Add a new connection; close one of the address with the most connections if there are too many."""
        connection.when_closed.append(self.ended)
        one_too_many = self.connections.add(connection, connection.client.host, self._clock.monotonic_s())
        if one_too_many is not None:
            one_too_many.close("too many connections to the listener between brokers have not authenticated")
        self._check_at_deadline()

    def ended(self, connection: Connection) -> None:
        """Remove a connection that has authenticated or is closed."""
        self.connections.discard(connection)

    def _check_at_deadline(self) -> None:
        since_s = self.connections.oldest_since_s
        if since_s is not None and not self._is_timed:
            self._is_timed = True
            wait_s = max(since_s + self._deadline_s - self._clock.monotonic_s(), 0)
            self._timers.call_later(wait_s, self._check)

    def _check(self) -> None:
        """Close connections that are too late, a limited number in a turn of the event loop."""
        self._is_timed = False
        late = self.connections.added_before(self._clock.monotonic_s() - self._deadline_s)
        for connection in list(islice(late, ACCEPTED_CONNECTIONS)):
            connection.close(f"the client has not authenticated within {self._deadline_s:g} s")
        self._check_at_deadline()


@dataclass(slots=True)
class AuthenticationCounts:
    """The counts of successful and failed authentications and of expired sessions on one listener since the start."""

    succeeded_first: int = 0
    succeeded_again: int = 0
    failures: Counter[str] = field(default_factory=lambda: Counter({TLS: 0}))
    """The number of refused clients by mechanism."""
    expired: int = 0

    @property
    def failed(self) -> int:
        """The number of clients that were refused."""
        return self.failures.total()

    def succeeded(self, *, is_again: bool) -> None:
        """Count a client that has authenticated; `is_again` is True for a re-authentication."""
        if is_again:
            self.succeeded_again += 1
        else:
            self.succeeded_first += 1


@dataclass(frozen=True, slots=True)
class SaslListener:
    """A listener whose clients authenticate by SASL."""

    name: str
    mechanisms: Mapping[str, Mechanism]
    """The enabled mechanisms by name, in the order in which SaslHandshake lists them."""
    session_ms_max: Mapping[str, int]
    """The setting connections.max.reauth.ms of each mechanism; 0 means no limit."""
    refusal_delay_s: float
    frame_bytes_max: int
    clock: Clock
    timers: Timers
    in_thread: InThread
    """A function that runs the slow checks of passwords."""
    logins: Logins
    counts: AuthenticationCounts = field(default_factory=AuthenticationCounts)

    def session_end_s(self, mechanism: str, identity: Identity) -> float | None:
        """Return the monotonic time at which a session that begins now ends; None if it never ends (KIP-368)."""
        bounds_ms: list[int] = []
        if self.session_ms_max[mechanism] > 0:
            bounds_ms.append(self.session_ms_max[mechanism])
        if identity.expires_at_ms is not None:
            bounds_ms.append(max(identity.expires_at_ms - self.clock.now_ms(), 0))
        return self.clock.monotonic_s() + min(SESSION_MS_MAX, *bounds_ms) / 1000 if bounds_ms else None

"""The state that all SASL sessions of a listener share: mechanisms, limits and counters; the thread for passwords."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from barnabas_broker.security.sasl.mechanism import Identity, Mechanism
from barnabas_core.clock import Clock, Timers

DEADLINE_S: Final = 30.0
"""The seconds in which a client must authenticate; Kafka allows connections.max.idle.ms, ten minutes by default."""
SESSION_MS_MAX: Final = 100 * 365 * 24 * 3600 * 1000
"""The longest lifetime of a session in ms; Java clients count nanoseconds in a long, which must not overflow."""

TLS: Final = "TLS"
"""The metric label of clients whose TLS handshake failed."""
NO_MECHANISM: Final = "none"
"""The metric label of clients that were refused before they chose a mechanism."""


Conclusion = Callable[[Callable[[], bytes]], None]
"""A function that takes the outcome of a computation.

Its argument is a function that returns the computed bytes, or raises the error of the computation.
"""
InThread = Callable[[Callable[[], bytes], Conclusion, Callable[[], bool]], None]
"""A function that runs a computation in a thread, and then passes the outcome to a `Conclusion` on the event loop.

The third argument is a function that returns True if the client is gone. Then the computation and the `Conclusion` are
skipped.
"""


class PasswordThread:
    """A thread that hashes one password at a time, and starts with the first one.

    Hashing releases the GIL, so the event loop serves other clients meanwhile.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, "passwords")

    def __call__(self, compute: Callable[[], bytes], conclude: Conclusion, is_gone: Callable[[], bool]) -> None:
        """Run `compute` in the thread, then `conclude` on the event loop; run neither if the client is gone."""

        def ended(done: Future[bytes]) -> None:
            if not done.cancelled() and not is_gone():
                with suppress(RuntimeError):  # The event loop may be closed already.
                    self._loop.call_soon_threadsafe(conclude, done.result)

        self._thread.submit(lambda: b"" if is_gone() else compute()).add_done_callback(ended)

    def close(self) -> None:
        """End the thread; passwords that wait are not hashed any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


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
    deadline_s: float = DEADLINE_S
    counts: AuthenticationCounts = field(default_factory=AuthenticationCounts)

    def session_end_s(self, mechanism: str, identity: Identity) -> float | None:
        """Return the monotonic time at which a session that begins now ends; None if it never ends (KIP-368)."""
        bounds_ms: list[int] = []
        if self.session_ms_max[mechanism] > 0:
            bounds_ms.append(self.session_ms_max[mechanism])
        if identity.expires_at_ms is not None:
            bounds_ms.append(max(identity.expires_at_ms - self.clock.now_ms(), 0))
        return self.clock.monotonic_s() + min(SESSION_MS_MAX, *bounds_ms) / 1000 if bounds_ms else None

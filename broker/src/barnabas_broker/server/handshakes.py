"""Run TLS handshakes on the event loop, and limit their number, their duration and the time they take per turn.

Above HANDSHAKES_MAX the oldest handshake is ended, so that clients that never finish a handshake cannot keep others
out. Each periodic check logs all failed handshakes in one line, however many there are.
"""

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, NamedTuple

from barnabas_broker.server.tls_stream import TlsStream
from barnabas_broker.server.tls_transport import TlsTransport
from barnabas_core.fair_turns import LASTS_S

log = logging.getLogger(__name__)

HANDSHAKE_S_MAX: Final = 10.0
HANDSHAKES_MAX: Final = 1024
"""The maximum number of unfinished handshakes; each takes about 20 KiB."""
TOO_MANY: Final = "there were too many unfinished handshakes"
NAMED_MAX: Final = 3
"""The maximum number of failures that one log line names."""


class CertificateRefused(Exception):
    """The refusal of a certificate whose name no rule maps to a principal; the message contains the name."""


class ServerTls(NamedTuple):
    """The TLS context of a listener, and the function that maps a client's certificate to its principal."""

    context: ssl.SSLContext
    principal_of: Callable[[bytes | None], str]
    """A function that returns the principal for a DER certificate, or for None if the client has no certificate.

    The function may raise CertificateRefused.
    """


@dataclass(slots=True, eq=False)
class Handshake:
    """One unfinished TLS handshake.

    After a success `done` is called with the transport and the principal, and after a failure `failed`.
    """

    tls: TlsStream
    peer: str
    principal_of: Callable[[bytes | None], str]
    done: Callable[[TlsTransport, str], object]
    failed: Callable[[], object]
    began_s: float
    is_protected: bool


class Handshakes:
    """All unfinished handshakes of one broker's listeners, the oldest first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way: dict[Handshake, None] = {}
        self._ready: deque[Handshake] = deque()
        self._goes_on_soon = False
        self._failures: list[str] = []

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(
        self,
        connected: socket.socket,
        server: ServerTls,
        peer: str,
        done: Callable[[TlsTransport, str], object],
        failed: Callable[[], object],
        *,
        is_protected: bool = False,
    ) -> None:
        """Begin a handshake over a non-blocking socket; end the oldest handshake if there are HANDSHAKES_MAX.

        The handshakes of brokers are protected: one of them is ended only if all handshakes are protected.
        """
        if len(self._under_way) >= HANDSHAKES_MAX and not self.close_oldest(1):
            self._end(next(iter(self._under_way)), TOO_MANY)
        tls = TlsStream(connected, server.context, server_side=True)
        began_s = self._loop.time()
        handshake = Handshake(tls, peer, server.principal_of, done, failed, began_s, is_protected)
        self._under_way[handshake] = None
        self._loop.add_reader(tls.fileno(), self._is_ready, handshake)

    def close_oldest(self, count: int) -> int:
        """End up to `count` of the oldest handshakes, except those of brokers; return how many were ended."""
        oldest = list(islice((each for each in self._under_way if not each.is_protected), count))
        for handshake in oldest:
            self._end(handshake, TOO_MANY)
        return len(oldest)

    def check(self) -> None:
        """End handshakes that take too long, and log the failures since the last check."""
        since_s = self._loop.time() - HANDSHAKE_S_MAX
        for handshake in list(takewhile(lambda each: each.began_s < since_s, self._under_way)):
            self._end(handshake, f"the handshake took longer than {HANDSHAKE_S_MAX:.0f} s")
        if self._failures:
            more = f"; and {len(self._failures) - NAMED_MAX} more" if len(self._failures) > NAMED_MAX else ""
            log.warning("TLS handshakes failed: %s%s", "; ".join(self._failures[:NAMED_MAX]), more)
            self._failures.clear()

    def close(self) -> None:
        """End all handshakes."""
        for handshake in list(self._under_way):
            self._end(handshake, "the broker stops")

    def _is_ready(self, handshake: Handshake) -> None:
        """Remove the callbacks of the socket, and queue the handshake for its next step."""
        self._ignore(handshake)
        self._ready.append(handshake)
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._goes_on_soon:
            self._goes_on_soon = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Continue queued handshakes until LASTS_S seconds of this turn of the event loop are used up."""
        self._goes_on_soon = False
        until_s = self._loop.time() + LASTS_S
        while self._ready and self._loop.time() < until_s:
            handshake = self._ready.popleft()
            if handshake in self._under_way:
                self._step(handshake)
        if self._ready:
            self._go_on_soon()

    def _step(self, handshake: Handshake) -> None:
        tls = handshake.tls
        try:
            tls.shake_hands()
            principal = handshake.principal_of(tls.certificate())
        except ssl.SSLWantReadError:
            self._loop.add_reader(tls.fileno(), self._is_ready, handshake)
        except ssl.SSLWantWriteError:
            self._loop.add_writer(tls.fileno(), self._is_ready, handshake)
        except (OSError, CertificateRefused) as error:
            self._end(handshake, str(error))
        except Exception as error:  # A bug ends this handshake, not the broker.
            log.error("bug in the TLS handshake of %s", handshake.peer, exc_info=error)
            self._end(handshake, "an unexpected error in the broker")
        else:
            del self._under_way[handshake]
            handshake.done(TlsTransport(self._loop, tls), principal)

    def _ignore(self, handshake: Handshake) -> None:
        self._loop.remove_reader(handshake.tls.fileno())
        self._loop.remove_writer(handshake.tls.fileno())

    def _end(self, handshake: Handshake, reason: str) -> None:
        del self._under_way[handshake]
        self._ignore(handshake)
        handshake.tls.close()
        self._failures.append(f"{handshake.peer}: {reason}")
        handshake.failed()

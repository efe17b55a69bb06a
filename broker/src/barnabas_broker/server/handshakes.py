"""Run TLS handshakes on the event loop, and limit their number, their duration and the time they take per turn.

Clients that never finish a handshake cannot keep others out: listeners of brokers and of clients have a limit each, and
`newcomers` says whose handshake is ended at the limit. Each periodic check logs all failed handshakes in one line,
however many there are.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas_broker.server.newcomers import BROKERS_MAX, NetworkQueue, Newcomers, network_of
from barnabas_broker.server.tls_stream import TlsStream
from barnabas_broker.server.tls_transport import TlsTransport
from barnabas_core.fair_turns import LASTS_S

log = logging.getLogger(__name__)

HANDSHAKE_S_MAX: Final = 10.0
HANDSHAKES_MAX: Final = 1024
"""The maximum number of unfinished handshakes of clients; each takes about 20 KiB."""
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
    network: str
    principal_of: Callable[[bytes | None], str]
    done: Callable[[TlsTransport, str], object]
    failed: Callable[[], object]
    under_way: "Newcomers[Handshake]"
    """The unfinished handshakes of the same kind of listener; this one is among them until it ends."""


class Handshakes:
    """All unfinished handshakes of one broker's listeners."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._of_brokers: Newcomers[Handshake] = Newcomers(BROKERS_MAX)
        self._of_clients: Newcomers[Handshake] = Newcomers(HANDSHAKES_MAX)
        self._ready: NetworkQueue[Handshake] = NetworkQueue()
        """The handshakes that can continue; networks take turns, because a step signs with the private key."""
        self._goes_on_soon = False
        self._failures: list[str] = []

    def __len__(self) -> int:
        return len(self._of_brokers) + len(self._of_clients)

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
        """Begin a handshake over a non-blocking socket; end another of the same kind of listener if there are too many.

        The listener is protected if only brokers use it. `peer` is the client's `host:port`.
        """
        tls = TlsStream(connected, server.context, server_side=True)
        under_way = self._of_brokers if is_protected else self._of_clients
        address = peer.rpartition(":")[0]
        handshake = Handshake(tls, peer, network_of(address), server.principal_of, done, failed, under_way)
        self._loop.add_reader(tls.fileno(), self._is_ready, handshake)
        one_too_many = under_way.add(handshake, address, self._loop.time())
        if one_too_many is not None:
            self._end(one_too_many, TOO_MANY)

    def close_some(self, count: int) -> int:
        """End up to `count` handshakes, except those of brokers; return how many were ended."""
        closed = 0
        while closed < count and (handshake := self._of_clients.next_to_go()) is not None:
            self._end(handshake, TOO_MANY)
            closed += 1
        return closed

    def check(self) -> None:
        """End handshakes that take too long, and log the failures since the last check."""
        since_s = self._loop.time() - HANDSHAKE_S_MAX
        for handshake in [*self._of_brokers.added_before(since_s), *self._of_clients.added_before(since_s)]:
            self._end(handshake, f"the handshake took longer than {HANDSHAKE_S_MAX:.0f} s")
        if self._failures:
            more = f"; and {len(self._failures) - NAMED_MAX} more" if len(self._failures) > NAMED_MAX else ""
            log.warning("TLS handshakes failed: %s%s", "; ".join(self._failures[:NAMED_MAX]), more)
            self._failures.clear()

    def close(self) -> None:
        """End all handshakes."""
        for under_way in (self._of_brokers, self._of_clients):
            while (handshake := under_way.next_to_go()) is not None:
                self._end(handshake, "the broker stops")

    def _is_ready(self, handshake: Handshake) -> None:
        """Remove the callbacks of the socket, and queue the handshake for its next step."""
        self._ignore(handshake)
        self._ready.add(handshake.network, handshake)
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
            handshake = self._ready.take()
            if handshake in handshake.under_way:
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
            handshake.under_way.discard(handshake)
            handshake.done(TlsTransport(self._loop, tls), principal)

    def _ignore(self, handshake: Handshake) -> None:
        self._loop.remove_reader(handshake.tls.fileno())
        self._loop.remove_writer(handshake.tls.fileno())

    def _end(self, handshake: Handshake, reason: str) -> None:
        handshake.under_way.discard(handshake)
        self._ignore(handshake)
        handshake.tls.close()
        self._failures.append(f"{handshake.peer}: {reason}")
        handshake.failed()

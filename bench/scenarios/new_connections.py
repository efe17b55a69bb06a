"""New connections one after the other on a secured listener."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.clients.logins import handshakes, logins
from bench.metrics import Measurement
from bench.processes import cpu_seconds
from bench.scenarios.stand import Stand
from bench.secured_broker import SecuredBroker, WayIn
from harness.server_process import HERE


@dataclass(frozen=True, slots=True)
class Handshakes:
    """New TLS sessions with full handshakes."""

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Return the rates of one thread of openssl."""
        return _rates(stand, peer, lambda broker, s: handshakes(broker.bootstrap(WayIn.SSL), broker.authority, s))


@dataclass(frozen=True, slots=True)
class Logins:
    """New connections that authenticate by SCRAM over TLS."""

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Return the rates of one client."""
        return _rates(
            stand, peer, lambda broker, s: logins(HERE.host, broker.ports[WayIn.SASL_SSL], broker.authority, s)
        )


def _rates(stand: Stand, peer: str, load: Callable[[SecuredBroker, float], int]) -> Measurement:
    broker = stand.secured.standing(peer)
    cpu_s, began_s = cpu_seconds(broker.process.pid), time.monotonic()
    count = load(broker, stand.limits.run_s)
    seconds, cpu_s = time.monotonic() - began_s, cpu_seconds(broker.process.pid) - cpu_s
    return {"connections_per_s": count / seconds, "connections_per_cpu_s": count / cpu_s}

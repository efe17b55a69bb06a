"""Whether a connection may be accepted: how many there are, of one address too, and how fast they come, as in Kafka.

The listener between brokers, where it is not the clients' as well, is protected as in Kafka: it never waits for room or
for the rate, so that clients cannot keep brokers from each other.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

MAPPED_IPV4: Final = "::ffff:"
FULL_LOOK_S: Final = 1.0
"""At max.connections: look again after this, and whenever a connection closes."""


class ConnectionLimits(NamedTuple):
    """Settings of that name in Kafka; they may change at any time."""

    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_connection_creation_rate: int

    def of_address(self, address: str) -> int:
        """How many connections one address may have."""
        return self.max_connections_per_ip_overrides.get(address, self.max_connections_per_ip)


def plain_address(address: str) -> str:
    """Without what IPv6 puts before an IPv4 address."""
    return address.removeprefix(MAPPED_IPV4)


class Admission:
    """Counts connections. `protected_listener` is None where brokers and clients share one."""

    def __init__(self, protected_listener: str | None) -> None:
        self._protected_listener = protected_listener
        self._by_address: Counter[str] = Counter()
        self._rate_now_s = 0.0
        self._creations_left = 0.0
        self.total = 0

    def is_protected(self, listener_name: str) -> bool:
        """Whether it is the one between brokers."""
        return listener_name == self._protected_listener

    def wait_s(self, listener_name: str, limits: ConnectionLimits, now_s: float) -> float:
        """How long that listener should accept nothing; 0 for now."""
        if self.is_protected(listener_name):
            return 0.0
        if self.total >= limits.max_connections:
            return FULL_LOOK_S
        rate = limits.max_connection_creation_rate
        self._creations_left = min(self._creations_left + (now_s - self._rate_now_s) * rate, max(float(rate), 1.0))
        self._rate_now_s = now_s
        if self._creations_left >= 1.0:
            return 0.0
        return min((1.0 - self._creations_left) / rate, FULL_LOOK_S) if rate else FULL_LOOK_S

    def opened(self, address: str) -> None:
        """Accepted; one that is over the limit of its address counts for the rate, too."""
        self.total += 1
        self._creations_left -= 1.0
        self._by_address[address] += 1

    def closed(self, address: str) -> None:
        """A connection was closed: it counts no longer."""
        self.total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def is_over_address_limit(self, address: str, limits: ConnectionLimits) -> bool:
        """Whether the address has more than it may, the newest counted in."""
        return self._by_address[address] > limits.of_address(address)

    def excess(self, limits: ConnectionLimits) -> int:
        """So many have to go: the limit was lowered, or a protected listener has accepted some beyond it."""
        return max(self.total - limits.max_connections, 0)

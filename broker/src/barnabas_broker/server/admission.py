"""Limit the number of connections, in total and per address, and their creation rate, as in Kafka.

A listener that only brokers use is protected, as in Kafka: the total and the rate do not limit it, so that clients
cannot cut brokers off from each other.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

MAPPED_IPV4: Final = "::ffff:"
FULL_LOOK_S: Final = 1.0
"""The maximum seconds for which a listener accepts no connections after their number or creation rate reached a limit.

The listener accepts connections again as soon as a connection is closed.
"""


class ConnectionLimits(NamedTuple):
    """Kafka's connection limits; each field has the name of its setting, and all can change at run time."""

    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_connection_creation_rate: int

    def of_address(self, address: str) -> int:
        """Return the limit of connections for an address."""
        return self.max_connections_per_ip_overrides.get(address, self.max_connections_per_ip)


def plain_address(address: str) -> str:
    """Return the address without the prefix of IPv4-mapped IPv6 addresses."""
    return address.removeprefix(MAPPED_IPV4)


class Admission:
    """The counts of open connections, and the number of connections that may be created now.

    `protected_listener` is None if brokers and clients share a listener.
    """

    def __init__(self, protected_listener: str | None) -> None:
        self._protected_listener = protected_listener
        self._by_address: Counter[str] = Counter()
        self._rate_now_s = 0.0
        self._creations_left = 0.0
        self.total = 0

    def is_protected(self, listener_name: str) -> bool:
        """True if only brokers use the listener."""
        return listener_name == self._protected_listener

    def wait_s(self, listener_name: str, limits: ConnectionLimits, now_s: float) -> float:
        """Return the seconds for which the listener should accept nothing; 0 if it may accept now."""
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
        """Count an accepted connection, and subtract it from the connections that the creation rate allows now."""
        self.total += 1
        self._creations_left -= 1.0
        self._by_address[address] += 1

    def closed(self, address: str) -> None:
        """Subtract a closed connection from the counts."""
        self.total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def is_over_address_limit(self, address: str, limits: ConnectionLimits) -> bool:
        """True if the address has more connections than its limit, counting the newest one."""
        return self._by_address[address] > limits.of_address(address)

    def excess(self, limits: ConnectionLimits) -> int:
        """Return how many connections exceed max.connections."""
        return max(self.total - limits.max_connections, 0)

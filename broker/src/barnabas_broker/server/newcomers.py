"""The clients that have not authenticated yet: the oldest first, and fair between addresses.

At the limit the oldest client of the address with the most clients goes, so that an address that opens many connections
shuts out only itself.

The number of connections is limited, in total and per address, and so is their creation rate, as in Kafka. A listener
that only brokers use is protected, as in Kafka: the total and the rate do not limit it, so that clients cannot cut
brokers off from each other.
"""

import socket
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from itertools import takewhile
from typing import Final, Generic, NamedTuple, TypeVar

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


BROKERS_MAX: Final = 256
"""The limit on a listener that only brokers use. A client that does not authenticate there is none of them."""
_NETWORK_BYTES: Final = 8
"""The size of the part of an IPv6 address that one host usually has for itself."""

ClientT = TypeVar("ClientT", bound=Hashable)


class NetworkQueue(Generic[ClientT]):
    """Work of clients that have not authenticated; their networks take turns, and each is served in order."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[ClientT, None]] = {}
        """The work of each network, the oldest first; the network whose turn is next comes first."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, network: str, work: ClientT) -> None:
        """Queue some work of a network."""
        self._waiting.setdefault(network, {})[work] = None

    def take(self) -> ClientT:
        """Remove the oldest work of the network whose turn it is."""
        network = next(iter(self._waiting))
        of_network = self._waiting.pop(network)
        work = next(iter(of_network))
        del of_network[work]
        if of_network:
            self._waiting[network] = of_network
        return work

    def discard(self, network: str, work: ClientT) -> None:
        """Remove work that is given up, if it still waits."""
        of_network = self._waiting.get(network, {})
        if work in of_network:
            del of_network[work]
            if not of_network:
                del self._waiting[network]

    def clear(self) -> None:
        """Remove all work."""
        self._waiting.clear()


class Newcomer(NamedTuple):
    """The origin of a client, and the time since which it is a newcomer."""

    network: str
    since_s: float


class Newcomers(Generic[ClientT]):
    """The clients that have not authenticated yet; `clients_max` is None if their number has no limit."""

    def __init__(self, clients_max: int | None) -> None:
        self._clients_max = clients_max
        self._all: dict[ClientT, Newcomer] = {}
        self._by_network: dict[str, dict[ClientT, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, client: ClientT) -> bool:
        return client in self._all

    def add(self, client: ClientT, address: str, now_s: float) -> ClientT | None:
        """Add a client; return the client that must go because there are more than the limit, or None."""
        network = network_of(address)
        self._all[client] = Newcomer(network, now_s)
        self._by_network.setdefault(network, {})[client] = None
        is_over = self._clients_max is not None and len(self) > self._clients_max
        return self.next_to_go() if is_over else None

    def discard(self, client: ClientT) -> None:
        """Remove a client that has authenticated or gone, if it is still here."""
        newcomer = self._all.pop(client, None)
        if newcomer is not None:
            of_network = self._by_network[newcomer.network]
            del of_network[client]
            if not of_network:
                del self._by_network[newcomer.network]

    def next_to_go(self) -> ClientT | None:
        """Return the oldest client of the address with the most clients; None if there are no clients."""
        most = max(self._by_network.values(), key=len, default=())
        return next(iter(most), None)

    def added_before(self, time_s: float) -> Iterator[ClientT]:
        """Yield the clients that were added before a time, the oldest first."""
        return (client for client, _ in takewhile(lambda entry: entry[1].since_s <= time_s, self._all.items()))

    @property
    def oldest_since_s(self) -> float | None:
        """The time at which the oldest client was added; None if there are no clients."""
        return next((newcomer.since_s for newcomer in self._all.values()), None)


def network_of(address: str) -> str:
    """Return an IPv4 address as it is, and of an IPv6 address its first 64 bits, because a host may use all others."""
    plain = plain_address(address)
    if ":" not in plain:
        return plain
    return socket.inet_pton(socket.AF_INET6, plain.partition("%")[0])[:_NETWORK_BYTES].hex()

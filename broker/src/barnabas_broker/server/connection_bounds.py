"""The bounds of connections: how many may be open, and how much memory their incomplete requests may take.

The number of connections is limited, in total and per address, and so is their creation rate, as in Kafka. A listener
that only brokers use is protected, as in Kafka: the total and the rate do not limit it, so that clients cannot cut
brokers off from each other. Clients that have not authenticated yet have a limit of their own. There the oldest client
of the address with the most clients goes, so that an address that opens many connections shuts out only itself.

An idle connection holds no buffer. A buffer grows only as bytes arrive, and does not have the size that the request
announces. Connections that get no buffer wait in a queue; a few are woken per turn of the loop while memory is free.
"""

import socket
from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import takewhile
from mmap import mmap
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from barnabas_core.loop_turns import WOKEN_CONNECTIONS

MAPPED_IPV4: Final = "::ffff:"
FULL_CHECK_S: Final = 1.0
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
            return FULL_CHECK_S
        rate = limits.max_connection_creation_rate
        self._creations_left = min(self._creations_left + (now_s - self._rate_now_s) * rate, max(float(rate), 1.0))
        self._rate_now_s = now_s
        if self._creations_left >= 1.0:
            return 0.0
        return min((1.0 - self._creations_left) / rate, FULL_CHECK_S) if rate else FULL_CHECK_S

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


class Newcomer(msgspec.Struct, frozen=True):
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


FIRST_BUFFER_BYTES: Final = 64 * 1024
STEP_BYTES: Final = 64 * 1024
"""The unit of buffer sizes; rounded sizes let a later request use the same buffer."""
POOLED_BYTES_MAX: Final = 16 * 1024 * 1024
"""The limit in bytes for free buffers; the smallest are dropped first, because large ones cost the most to create."""
RESERVE_BYTES: Final = 32 * 1024 * 1024
"""The number of bytes above the limit that only small requests may use, so that they need not wait."""

MAPPED_ABOVE_BYTES: Final = 4 * 1024 * 1024
"""The size above which a buffer is mapped memory, whose pages the kernel clears one by one as bytes arrive.

A new bytearray is cleared at once, which takes 0.1 s for 100 MB.
"""

RequestBuffer = bytearray | mmap
CallSoon = Callable[[Callable[[], None]], object]


class BufferPool:
    """A pool of at most `bytes_max` bytes; one connection at a time may exceed the limit, to complete a request."""

    def __init__(self, bytes_max: int, call_soon: CallSoon) -> None:
        self._bytes_max = bytes_max
        self._call_soon = call_soon
        self._free: list[RequestBuffer] = []
        """The free buffers, smallest first."""
        self._free_bytes = 0
        self._waiting: dict[object, Callable[[], None]] = {}
        """The callbacks of the connections that wait for a buffer, in the order of arrival."""
        self._wakes_soon = False
        self._wakes_last = False
        self._overdrawn_by: object | None = None
        self.bytes_in_use = 0
        self.is_exhausted = False
        """True while a connection has made the pool exceed `bytes_max`; no other request should begin then."""

    @property
    def is_short(self) -> bool:
        """True if a connection waits for a buffer, or the next connection that needs one would have to wait."""
        return self.is_exhausted or bool(self._waiting)

    @property
    def has_reserve(self) -> bool:
        """True if a small request may get a buffer, even if the pool then exceeds `bytes_max`."""
        return self.bytes_in_use < self._bytes_max + RESERVE_BYTES

    def acquire(self, needed_bytes: int, have_bytes: int, owner: object, *, must: bool = False) -> RequestBuffer | None:
        """Return a buffer for a request of `needed_bytes`; `have_bytes` of the request have arrived.

        Only one connection at a time may exceed `bytes_max`, the limit of the pool. Return None if `owner` has to wait
        because another connection exceeds the limit. With `must=True` the connection never waits, because bytes that it
        has received would be lost.

        A free buffer is used again if the whole request fits into it; a new buffer may be smaller than the request.
        """
        index = next((index for index, each in enumerate(self._free) if len(each) >= needed_bytes), None)
        size = _size_for(needed_bytes, have_bytes) if index is None else len(self._free[index])
        if self.bytes_in_use + size > self._bytes_max:
            if not must and self._overdrawn_by not in (None, owner):
                return None
            self._overdrawn_by = self._overdrawn_by or owner
            self.is_exhausted = True
        self.bytes_in_use += size
        if index is None:
            return bytearray(size) if size <= MAPPED_ABOVE_BYTES else mmap(-1, size)
        self._free_bytes -= size
        return self._free.pop(index)

    def release(self, buffer: RequestBuffer, owner: object, *, has_another: bool = False) -> None:
        """Take back a buffer of the connection `owner`; wake waiting connections after this turn of the event loop.

        `has_another=True` means that the connection has moved its data to a larger buffer. If `acquire` has let the
        connection exceed the limit of the pool, the connection then keeps this permission.
        """
        self.bytes_in_use -= len(buffer)
        if (self._overdrawn_by is owner and not has_another) or self.bytes_in_use <= self._bytes_max:
            self._overdrawn_by = None
            self.is_exhausted = False
        insort(self._free, buffer, key=len)
        self._free_bytes += len(buffer)
        while self._free_bytes > POOLED_BYTES_MAX:
            self._free_bytes -= len(self._free.pop(0))
        self._wake_soon()

    def when_free(self, owner: object, wake: Callable[[], None]) -> None:
        """Schedule a single call of `wake`, for when memory for a buffer is free."""
        self._waiting[owner] = wake
        self._wake_soon()

    def forget(self, owner: object) -> None:
        """Remove a closed connection from the queue for buffers."""
        self._waiting.pop(owner, None)

    def _wake_soon(self) -> None:
        if self._waiting and not self.is_exhausted and not self._wakes_soon:
            self._wakes_soon = True
            self._call_soon(self._wake)

    def _wake(self) -> None:
        """Wake at most WOKEN_CONNECTIONS waiting connections, until one of them has taken the last free memory."""
        self._wakes_soon = False
        for _ in range(WOKEN_CONNECTIONS):
            if self.is_exhausted or not self._waiting:
                break
            self._waiting.pop(self._next_to_wake())()
        self._wake_soon()

    def _next_to_wake(self) -> object:
        """Return alternately the queue's first and last connection, so that slow clients do not delay a quick one."""
        self._wakes_last = not self._wakes_last
        return next(reversed(self._waiting) if self._wakes_last else iter(self._waiting))


def _size_for(needed_bytes: int, have_bytes: int) -> int:
    """Return the size of a new buffer: `needed_bytes`, or `max(FIRST_BUFFER_BYTES, 2 * have_bytes)` if this is less.

    The size is rounded up to a multiple of STEP_BYTES.
    """
    wanted = min(needed_bytes, max(FIRST_BUFFER_BYTES, 2 * have_bytes))
    return -(-wanted // STEP_BYTES) * STEP_BYTES

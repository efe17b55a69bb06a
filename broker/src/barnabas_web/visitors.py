"""The open connections of a port by the addresses of their clients, and the connections that are closed for others."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

RATES_KEPT: Final = 1024
"""The number of addresses whose rate of connections is known."""
PREFIX_BITS: Final = 64
"""The bits of an IPv6 address that count, because one client may have all addresses with the same prefix."""
CONNECTION_BYTES: Final = 64 * 1024
"""The bytes that one connection counts, with its TLS state and its buffers."""

ConnectionT = TypeVar("ConnectionT", bound=Hashable)


class Limits(NamedTuple):
    """The limits of a port."""

    bytes: int
    """The bytes of all connections, which are CONNECTION_BYTES each and the bytes of their requests."""
    rate: float
    """The connections of one address in a second; it may make twice as many at once."""


class _Held(NamedTuple):
    address: str
    bytes: int


class Visitors(Generic[ConnectionT]):
    """The open connections of a port, the oldest first.

    An address that connects too often is refused. If the connections together are too large, the oldest connection of
    the address with most bytes is closed. So a client that floods the port ends its own connections.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: dict[ConnectionT, _Held] = {}
        self._bytes: Counter[str] = Counter()
        self._due_s: OrderedDict[str, float] = OrderedDict()
        """The time at which an address has no connection left to wait for, as in GCRA."""

    def __iter__(self) -> Iterator[ConnectionT]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def may_enter(self, address: str, now_s: float) -> bool:
        """True if the address has not connected too often; count this connection."""
        due_s = max(self._due_s.pop(address, now_s), now_s)
        is_admitted = due_s - now_s < 2
        self._due_s[address] = due_s + 1 / self._limits.rate if is_admitted else due_s
        if len(self._due_s) > RATES_KEPT:
            self._due_s.popitem(last=False)
        return is_admitted

    def hold(self, connection: ConnectionT, address: str, size: int = CONNECTION_BYTES) -> list[ConnectionT]:
        """Add a connection, or more bytes of it; return the connections to close, which are no longer held."""
        before = self._held.get(connection, _Held(address, 0))
        self._held[connection] = before._replace(bytes=before.bytes + size)
        self._bytes[address] += size
        return list(self._superfluous())

    def leave(self, connection: ConnectionT) -> None:
        """Forget a connection, which may already be forgotten."""
        held = self._held.pop(connection, None)
        if held is not None:
            self._bytes[held.address] -= held.bytes
            if not self._bytes[held.address]:
                del self._bytes[held.address]

    def _superfluous(self) -> Iterator[ConnectionT]:
        while self._bytes.total() > self._limits.bytes:
            heaviest = max(self._bytes.values())
            full = {address for address, size in self._bytes.items() if size == heaviest}
            oldest = next(connection for connection, held in self._held.items() if held.address in full)
            self.leave(oldest)
            yield oldest


class Turns:
    """One piece of work at a time. Addresses take turns, so that many pieces of one address delay no other much."""

    def __init__(self) -> None:
        self._all = asyncio.Lock()
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for the turn of the address, in which the block runs."""
        own = self._of.setdefault(address, asyncio.Lock())
        async with own, self._all:
            yield


def address_of(host: str) -> str:
    """Return the address by which a client counts: an IPv4 address, or the prefix of an IPv6 address."""
    found = ip_address(host.partition("%")[0])
    if found.version == 4:
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else str(int(found) >> (128 - PREFIX_BITS))

"""The metadata store in memory: one `StoreState`, and a client of it for each incarnation of a broker.

Calls take time, may fail before or after they took effect, and fail altogether while the store is away. On one machine
leases end with their holder's process, as SQLite's do. On several, as in Kubernetes, a lease lasts from when a client
first saw it renewed, by the client's own clock. The watch and the listing of one client may be late by seconds. The
store may be put back to an older backup.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

from barnabas_broker.metadata.store.metadata_store import (
    ABSENT,
    Change,
    Changes,
    Document,
    HistoryCompacted,
    Lease,
    LeaseLost,
    Listing,
    StoreUnavailable,
    VersionConflict,
    Write,
)
from barnabas_core.clock import monotonic_ms
from simulation.loop import Host

BUMP: Final = 1_000_000_000
"""The number by which a restored store raises its revision, as `etcdutl snapshot restore --bump-revision` does."""

R = TypeVar("R")


class Held(NamedTuple):
    """A stored lease: `renewal` differs each time."""

    lease: Lease
    host: Host | None
    renewal: int


class StoreState:
    """The content of the store."""

    def __init__(self, random: Random, *, is_one_machine: bool) -> None:
        self.random = random
        self.is_one_machine = is_one_machine
        self.is_away = False
        self.failure_share = 0.0
        self.late_s: dict[str, float] = {}
        """The seconds by which each answer of a watch, and each listing, reaches a machine late, by its name."""
        self.revision = 0
        self.documents: dict[str, Document] = {}
        self.changes: list[Change] = []
        self.first_kept = 0
        self._leases: dict[str, Held] = {}
        self._renewals = 0
        self._changed = asyncio.Event()

    def write(self, writes: Sequence[Write]) -> list[int | VersionConflict]:
        """Write; each write succeeds or conflicts by itself."""
        results = [self._write(write) for write in writes]
        self._wake()
        return results

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _write(self, write: Write) -> int | VersionConflict:
        found = self.documents.get(write.key)
        actual = ABSENT if found is None else found.version
        if write.expected_version is not None and write.expected_version != actual:
            return VersionConflict(write.key, write.expected_version, actual)
        self.revision += 1
        self.changes.append(Change(self.revision, write.key, write.value))
        if write.value is None:
            self.documents.pop(write.key, None)
        else:
            self.documents[write.key] = Document(write.key, write.value, self.revision)
        return self.revision

    def forget_history(self) -> None:
        """Forget the history: watchers that have not seen everything list again."""
        self.first_kept = self.revision

    def put_back(self, documents: Mapping[str, Document]) -> None:
        """Replace the documents by those of a backup; watchers list again. Leases are in no backup.

        The revision is raised, as the how-to page on recovery demands.
        """
        self.documents = dict(documents)
        self.revision += BUMP
        self.forget_history()
        self._wake()

    def changed(self) -> asyncio.Event:
        """Return an event that the next write sets."""
        return self._changed

    def held(self, name: str) -> Held | None:
        """Return the last lease of this name, unless it was released, or its process is known to be gone."""
        found = self._leases.get(name)
        if found is None or not found.lease.holder or self._is_gone(found.host):
            return None
        return found

    def _is_gone(self, host: Host | None) -> bool:
        return self.is_one_machine and host is not None and host.is_dead

    def take(self, name: str, holder: str, duration_ms: int, expires_at_ms: int, host: Host | None) -> Lease:
        """Give a lease that nobody else has."""
        found = self._leases.get(name)
        token = 1 if found is None else found.lease.token + (found.lease.holder != holder)
        return self._keep(Lease(name, holder, token, duration_ms, expires_at_ms), host)

    def _keep(self, lease: Lease, host: Host | None) -> Lease:
        self._renewals += 1
        self._leases[lease.name] = Held(lease, host, self._renewals)
        return lease

    def renew(self, lease: Lease, expires_at_ms: int) -> Lease:
        found = self._leases.get(lease.name)
        if found is None or (found.lease.holder, found.lease.token) != (lease.holder, lease.token):
            raise LeaseLost(lease.name)
        return self._keep(lease._replace(expires_at_ms=expires_at_ms), found.host)

    def release(self, lease: Lease) -> None:
        found = self._leases.get(lease.name)
        if found is not None and (found.lease.holder, found.lease.token) == (lease.holder, lease.token):
            self._keep(lease._replace(holder=""), None)

    def all_held(self, prefix: str) -> list[Held]:
        """Return the leases by name."""
        found = (self.held(name) for name in sorted(self._leases) if name.startswith(prefix))
        return [each for each in found if each is not None]


class SimulatedStore:
    """The client of one broker, in the process `host`."""

    def __init__(self, state: StoreState, host: Host) -> None:
        self._state = state
        self._host = host
        self._closed = False
        self._followed: dict[str, Sequence[Lease]] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """The last renewal of each lease, and when this client first saw it."""

    async def _call(self, work: Callable[[], R]) -> R:
        state, random = self._state, self._state.random
        await asyncio.sleep(random.uniform(0.0003, 0.004))
        self._check()
        fails = random.random() < state.failure_share
        if fails and random.random() < 0.5:
            raise StoreUnavailable("it failed before anything was done")
        result = work()
        await asyncio.sleep(random.uniform(0.0003, 0.004))
        if fails:
            raise StoreUnavailable("it failed after it was done")
        return result

    def _check(self) -> None:
        if self._closed or self._state.is_away:
            raise StoreUnavailable("the store is away")

    async def get(self, key: str) -> Document | None:
        return await self._call(lambda: self._state.documents.get(key))

    async def listing(self) -> Listing:
        state = self._state

        def work() -> Listing:
            return Listing(state.revision, [document for _, document in sorted(state.documents.items())])

        listing = await self._call(work)
        await self._late()
        return listing

    async def put(self, key: str, value: bytes, expected_version: int | None = None) -> int:
        (result,) = await self.write([Write(key, value, expected_version)])
        if isinstance(result, VersionConflict):
            raise result
        return result

    async def write(self, writes: Sequence[Write]) -> list[int | VersionConflict]:
        return await self._call(lambda: self._state.write(writes))

    async def latest_revision(self) -> int:
        return await self._call(lambda: self._state.revision)

    async def watch(self, from_revision: int) -> AsyncIterator[Changes]:
        state, seen = self._state, from_revision
        while not self._closed:
            changed = state.changed()
            self._check()
            if seen < state.first_kept:
                raise HistoryCompacted(f"{seen} is before {state.first_kept}")
            if state.revision == seen:
                await changed.wait()
                await asyncio.sleep(state.random.uniform(0.0003, 0.02))
                continue
            news = [change for change in state.changes if change.revision > seen]
            seen = state.revision
            await self._late()
            yield Changes(seen, news)

    async def _late(self) -> None:
        """Wait as long as news are late on this machine."""
        late_s = self._state.late_s.get(self._host.name, 0.0)
        if late_s:
            await asyncio.sleep(late_s)

    def _seen_at_ms(self, held: Held) -> int:
        renewal, seen_at_ms = self._seen.get(held.lease.name, (-1, 0))
        if renewal != held.renewal:
            seen_at_ms = monotonic_ms(self._host)
            self._seen[held.lease.name] = held.renewal, seen_at_ms
        return seen_at_ms

    def _as_seen(self, held: Held) -> Lease:
        if self._state.is_one_machine:
            return held.lease
        return held.lease._replace(expires_at_ms=self._seen_at_ms(held) + held.lease.duration_ms)

    async def acquire_lease(self, name: str, holder: str, duration_ms: int) -> Lease | None:
        asked_at_ms = monotonic_ms(self._host)

        def work() -> Lease | None:
            held = self._state.held(name)
            found = None if held is None else self._as_seen(held)
            if found is not None and found.holder != holder and found.expires_at_ms > monotonic_ms(self._host):
                return None
            return self._state.take(name, holder, duration_ms, asked_at_ms + duration_ms, self._host)

        return await self._call(work)

    async def renew_lease(self, lease: Lease) -> Lease:
        expires_at_ms = monotonic_ms(self._host) + lease.duration_ms
        return await self._call(lambda: self._state.renew(lease, expires_at_ms))

    async def release_lease(self, lease: Lease) -> None:
        await self._call(lambda: self._state.release(lease))

    async def leases(self, prefix: str) -> Sequence[Lease]:
        return await self._call(lambda: [self._as_seen(held) for held in self._state.all_held(prefix)])

    async def followed_leases(self, prefix: str) -> Sequence[Lease]:
        """Return the leases, now and then as they were at the last call."""
        if self._state.is_one_machine or self._state.random.random() < 0.7 or prefix not in self._followed:
            self._followed[prefix] = await self.leases(prefix)
        return self._followed[prefix]

    async def close(self) -> None:
        self._closed = True
        self._state.changed().set()

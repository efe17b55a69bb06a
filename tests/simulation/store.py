"""The metadata store in memory: one `StoreState`, and a client of it for each life of a broker.

Calls take time, may fail before or after they took effect, and fail altogether while the store is away. Leases go by
the store's own clock; where `leases_end_with_process` they also end when their holder's process does, as SQLite's do.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import TypeVar

from barnabas_broker.metadata.store import (
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
from simulation.loop import Host

R = TypeVar("R")


class StoreState:
    """What is stored. `now_ms` is the store's clock."""

    def __init__(self, now_ms: Callable[[], int], random: Random, *, leases_end_with_process: bool) -> None:
        self.now_ms = now_ms
        self.random = random
        self.leases_end_with_process = leases_end_with_process
        self.is_away = False
        self.failure_share = 0.0
        self.revision = 0
        self.documents: dict[str, Document] = {}
        self.changes: list[Change] = []
        self.first_kept = 0
        self._leases: dict[str, tuple[Lease, Host | None]] = {}
        self._changed = asyncio.Event()

    def write(self, writes: Sequence[Write]) -> list[int | VersionConflict]:
        """Each passes or conflicts for itself."""
        results = [self._write(write) for write in writes]
        self._changed.set()
        self._changed = asyncio.Event()
        return results

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
        """Who has not seen everything lists anew."""
        self.first_kept = self.revision

    def changed(self) -> asyncio.Event:
        """Set at the next write."""
        return self._changed

    def acquire(self, name: str, holder: str, duration_ms: int, host: Host | None) -> Lease | None:
        now_ms = self.now_ms()
        found = self._leases.get(name)
        if found is not None and found[0].holder not in ("", holder) and not self._has_ended(*found, now_ms):
            return None
        token = 1 if found is None else found[0].token + (found[0].holder != holder)
        lease = Lease(name, holder, token, duration_ms, now_ms + duration_ms)
        self._leases[name] = lease, host
        return lease

    def _has_ended(self, lease: Lease, host: Host | None, now_ms: int) -> bool:
        return lease.expires_at_ms <= now_ms or self._is_gone(host)

    def _is_gone(self, host: Host | None) -> bool:
        return self.leases_end_with_process and host is not None and host.is_dead

    def renew(self, lease: Lease) -> Lease:
        found = self._leases.get(lease.name)
        if found is None or (found[0].holder, found[0].token) != (lease.holder, lease.token):
            raise LeaseLost(lease.name)
        renewed = lease._replace(expires_at_ms=self.now_ms() + lease.duration_ms)
        self._leases[lease.name] = renewed, found[1]
        return renewed

    def release(self, lease: Lease) -> None:
        found = self._leases.get(lease.name)
        if found is not None and (found[0].holder, found[0].token) == (lease.holder, lease.token):
            self._leases[lease.name] = lease._replace(holder="", expires_at_ms=0), None

    def leases(self, prefix: str) -> list[Lease]:
        held = [each for each in self._leases.values() if each[0].name.startswith(prefix) and each[0].holder]
        return sorted(lease for lease, host in held if not self._is_gone(host))


class SimulatedStore:
    """One broker's client. `host` is None for tests."""

    def __init__(self, state: StoreState, host: Host | None = None) -> None:
        self._state = state
        self._host = host
        self._closed = False

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

    async def listing(self, prefix: str) -> Listing:
        state = self._state

        def work() -> Listing:
            documents = [document for key, document in sorted(state.documents.items()) if key.startswith(prefix)]
            return Listing(state.revision, documents)

        return await self._call(work)

    async def put(self, key: str, value: bytes, expected_version: int | None = None) -> int:
        return await self._write_one(Write(key, value, expected_version))

    async def delete(self, key: str, expected_version: int | None = None) -> int:
        return await self._write_one(Write(key, None, expected_version))

    async def _write_one(self, write: Write) -> int:
        (result,) = await self.write([write])
        if isinstance(result, VersionConflict):
            raise result
        return result

    async def write(self, writes: Sequence[Write]) -> list[int | VersionConflict]:
        return await self._call(lambda: self._state.write(writes))

    async def latest_revision(self) -> int:
        return await self._call(lambda: self._state.revision)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
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
            yield Changes(seen, [change for change in news if change.key.startswith(prefix)])

    async def acquire_lease(self, name: str, holder: str, duration_ms: int) -> Lease | None:
        return await self._call(lambda: self._state.acquire(name, holder, duration_ms, self._host))

    async def renew_lease(self, lease: Lease) -> Lease:
        return await self._call(lambda: self._state.renew(lease))

    async def release_lease(self, lease: Lease) -> None:
        await self._call(lambda: self._state.release(lease))

    async def leases(self, prefix: str) -> Sequence[Lease]:
        return await self._call(lambda: self._state.leases(prefix))

    async def close(self) -> None:
        self._closed = True
        self._state.changed().set()

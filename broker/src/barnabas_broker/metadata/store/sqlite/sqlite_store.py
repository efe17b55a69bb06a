"""The metadata store of brokers on one machine: one SQLite file that their processes share.

All statements run in one worker thread, so that the event loop never waits for the disk. After a commit, the writer
signals all watching processes. Each watch also polls the revision every few seconds, in case a signal was lost.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

from barnabas_broker.metadata.store.metadata_store import (
    Changes,
    Document,
    Lease,
    Listing,
    StoreUnavailable,
    VersionConflict,
    Write,
)
from barnabas_broker.metadata.store.sqlite import statements
from barnabas_broker.metadata.store.sqlite.statements import Answer, ChangeSignal, clear_away, open_database, ring
from barnabas_core.clock import Clock, monotonic_ms

SAFETY_LOOK_S: Final = 5.0

P = ParamSpec("P")
R = TypeVar("R")


class SqliteStore:
    """A MetadataStore in SQLite. Leases use the time since the machine's boot, which all processes share."""

    def __init__(self, connection: sqlite3.Connection, path: Path, clock: Clock, worker: ThreadPoolExecutor) -> None:
        """Call `open` instead of this constructor."""
        self._connection = connection
        self._path = path
        self._clock = clock
        self._worker = worker
        self._rung = asyncio.Event()
        self._closed = False
        self._change_signal = ChangeSignal(asyncio.get_running_loop(), self._wake_watches)

    @classmethod
    async def open(cls, path: Path, clock: Clock, boot_id: str = "") -> Self:
        """Open the store in the file `path`, creating it if absent. Raises StoreUnavailable.

        `boot_id` is different after each boot of the machine; "" stands for an unknown id.
        """
        worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-store")
        try:
            connection = await asyncio.get_running_loop().run_in_executor(worker, open_database, path)
        except (OSError, sqlite3.Error) as error:
            worker.shutdown()
            raise StoreUnavailable(f"{path}: {error}") from error
        store = cls(connection, path, clock, worker)
        try:
            await store._run(statements.add_watcher, store._change_signal.address, boot_id, clock)
        except BaseException:
            await store.close()
            raise
        return store

    async def get(self, key: str) -> Document | None:
        """Return the value stored under a key with its version, or None if the key does not exist."""
        return await self._run(statements.get, key)

    async def listing(self) -> Listing:
        """Return all stored values, in the order of their keys."""
        return await self._run(statements.listing)

    async def put(self, key: str, value: bytes, expected_version: int | None = None) -> int:
        """Write the value of a key; return the new version.

        Raises VersionConflict if `expected_version` is given and differs from the stored version.
        """
        (result,) = await self.write([Write(key, value, expected_version)])
        if isinstance(result, VersionConflict):
            raise result
        return result

    async def write(self, writes: Sequence[Write]) -> list[int | VersionConflict]:
        """Write many keys in one call; return the revision or the conflict of each write."""
        return await self._run(_write_and_ring, writes)

    async def latest_revision(self) -> int:
        """Return the revision of the last change."""
        return await self._run(statements.latest_revision)

    async def watch(self, from_revision: int) -> AsyncIterator[Changes]:
        """Yield every change after `from_revision`, in order. Raises HistoryCompacted if some are no longer kept."""
        seen = from_revision
        while not self._closed:
            rung = self._rung
            changes = await self._run(statements.changes_since, seen)
            if changes.revision > seen:
                seen = changes.revision
                yield changes
            else:
                await _wait(rung, SAFETY_LOOK_S)

    async def acquire_lease(self, name: str, holder: str, duration_ms: int) -> Lease | None:
        """Acquire or renew a lease for `holder`; return None if another holder has it."""
        now_ms, address = monotonic_ms(self._clock), self._change_signal.address
        return await self._run(statements.acquire, name, holder, duration_ms, now_ms, address)

    async def renew_lease(self, lease: Lease) -> Lease:
        """Renew a lease: the duration begins again now. Raises LeaseLost if another holder has acquired the lease."""
        return await self._run(statements.renew, lease, monotonic_ms(self._clock))

    async def release_lease(self, lease: Lease) -> None:
        """Release the lease at once, or do nothing if the lease was lost."""
        await self._run(statements.release, lease)

    async def leases(self, prefix: str) -> Sequence[Lease]:
        """Return all leases whose name begins with `prefix`, except leases whose holder has certainly ended."""
        return await self._run(statements.below, prefix)

    async def followed_leases(self, prefix: str) -> Sequence[Lease]:
        """Return the current leases (`leases`) instead of cached leases, because a query of SQLite is cheap."""
        return await self.leases(prefix)

    async def close(self) -> None:
        """Release the leases of this process, end its watches, and close the file."""
        if self._closed:
            return
        with contextlib.suppress(StoreUnavailable):  # If this fails, the next writer releases the leases.
            await self._run(statements.release_all, self._change_signal.address)
            await self._run(statements.forget_watchers, [self._change_signal.address])
        self._closed = True
        self._wake_watches()
        self._change_signal.close()
        await asyncio.get_running_loop().run_in_executor(self._worker, self._connection.close)
        self._worker.shutdown()

    def _wake_watches(self) -> None:
        """Wake all watches of this process by setting the Event for which they wait.

        A new Event replaces the old Event for the next waits. A watch takes the Event before it polls the store, so the
        watch misses no write.
        """
        self._rung.set()
        self._rung = asyncio.Event()

    async def _run(self, work: Callable[Concatenate[sqlite3.Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `work` in the worker thread. Raises StoreUnavailable if SQLite fails, or if the store is closed."""
        if self._closed:
            raise StoreUnavailable(f"{self._path}: is closed")
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._worker, lambda: work(self._connection, *args, **kwargs))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the event or the timeout.

    In Python 3.11, `asyncio.wait_for` loses a cancellation that arrives together with the event.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


def _write_and_ring(connection: sqlite3.Connection, writes: Sequence[Write]) -> list[int | VersionConflict]:
    results = statements.write_all(connection, writes)
    addresses = statements.watchers(connection)
    gone = [address for address in addresses if ring(address) is Answer.GONE]
    for address in gone:
        statements.release_all(connection, address)  # A dead process cannot release its leases.
        clear_away(address)
    if gone:
        statements.forget_watchers(connection, gone)
    return results

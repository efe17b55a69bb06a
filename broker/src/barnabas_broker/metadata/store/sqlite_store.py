"""The metadata store of brokers on one machine: one SQLite file that their processes share.

All statements run in one worker thread, so that the event loop never waits for the disk. In WAL mode, readers and the
writer do not wait for each other. Each commit is a full sync, so that acknowledged writes survive a power failure.
After a commit, the writer signals all watching processes. Each watch also polls the revision every few seconds, in case
a signal was lost. Functions that take a connection may raise sqlite3.Error.

If the process of a holder has certainly ended, its lease ends early, so that a killed broker can start again at once.
Times are measured from the boot of the machine, so a reboot ends all leases.

Signals are datagrams. Each process has a datagram socket in a temporary directory of its own. A socket that refuses
datagrams proves that its process has ended, for whatever reason. A missing socket proves nothing, because somebody may
have removed the directory.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

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
from barnabas_core.clock import Clock, monotonic_ms

_SYNCED: Final = "PRAGMA synchronous = FULL"
BUSY_TIMEOUT_S: Final = 10.0
FORMAT: Final = 2

_TABLES: Final = """
CREATE TABLE documents (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE changes (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB);
CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, token INTEGER NOT NULL, duration_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL, address TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE watchers (address TEXT PRIMARY KEY, boot_id TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE TABLE revision (latest INTEGER NOT NULL, untrimmed_bytes INTEGER NOT NULL DEFAULT 0);
INSERT INTO revision VALUES (0, 0)
"""
_FROM_1_TO_2: Final = """
ALTER TABLE watchers ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';
ALTER TABLE revision ADD COLUMN untrimmed_bytes INTEGER NOT NULL DEFAULT 0
"""
"""The migration of the file from format 1 to format 2.

Brokers of the previous version that are already running can use the migrated file, but they cannot start on it.
"""
_SCRIPTS: Final[Mapping[int, str]] = {0: _TABLES, 1: _FROM_1_TO_2}
"""The SQL scripts that upgrade a file, by the format that the script upgrades from; a new file has format 0."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open the database at `path`; create or migrate the file if necessary. Raises sqlite3.Error and OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        _use_wal(connection)
        connection.execute(_SYNCED)
        with transaction(connection):
            _create_or_check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode; retry while another process switches it, because SQLite fails instead of waiting."""
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(0.005)


def _create_or_check(connection: sqlite3.Connection) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == FORMAT:
        return
    if found not in _SCRIPTS:
        raise sqlite3.DatabaseError(
            f"the file has format {found}, but this version reads only the formats 1 and {FORMAT}"
        )
    for statement in _SCRIPTS[found].split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {FORMAT}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block as one transaction, which excludes other writers."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def unsynced(connection: sqlite3.Connection) -> Iterator[None]:
    """Leave the commits in the `with` block unsynced; the next synced commit writes them to the disk, in order."""
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        connection.execute(_SYNCED)


HISTORY_CHANGES: Final = 20_000
HISTORY_BYTES: Final = 64 * 1024 * 1024
"""The limits of the history of changes, in number and size. A watcher that missed older changes has to list again."""
TRIM_EVERY_BYTES: Final = HISTORY_BYTES // 8
_TRIM_EVERY: Final = 1_000


def get(connection: sqlite3.Connection, key: str) -> Document | None:
    """Return the value stored under a key with its version, or None if the key does not exist."""
    row = connection.execute("SELECT key, value, version FROM documents WHERE key = ?", (key,)).fetchone()
    return None if row is None else Document(*row)


def listing(connection: sqlite3.Connection) -> Listing:
    """Return all stored values, in the order of their keys, and the latest revision of the store."""
    connection.execute("BEGIN")
    try:
        latest = latest_revision(connection)
        rows = connection.execute("SELECT key, value, version FROM documents ORDER BY key")
        return Listing(latest, [Document(*row) for row in rows])
    finally:
        connection.execute("COMMIT")


def changes_since(connection: sqlite3.Connection, seen: int) -> Changes:
    """Return the changes after revision `seen`. Raises HistoryCompacted if some are no longer kept."""
    latest = latest_revision(connection)
    if latest == seen:
        return Changes(seen, [])
    rows = connection.execute("SELECT revision, key, value FROM changes WHERE revision > ? ORDER BY revision", (seen,))
    changes = [Change(*row) for row in rows]
    # Each revision has one change, so a missing revision means that older changes were trimmed.
    if not changes or changes[0].revision != seen + 1:
        raise HistoryCompacted(f"the changes after revision {seen} are no longer kept; the latest revision is {latest}")
    return Changes(changes[-1].revision, changes)


def latest_revision(connection: sqlite3.Connection) -> int:
    """Return the revision of the last change."""
    (latest,) = connection.execute("SELECT latest FROM revision").fetchone()
    return int(latest)


def write_all(connection: sqlite3.Connection, writes: Sequence[Write]) -> list[int | VersionConflict]:
    """Apply all writes in one transaction, in which each write succeeds or conflicts independently."""
    with transaction(connection):
        before, untrimmed_bytes = connection.execute("SELECT latest, untrimmed_bytes FROM revision").fetchone()
        results: list[int | VersionConflict] = []
        latest = before
        for write in writes:
            conflict = _conflict(connection, write)
            if conflict is None:
                latest += 1
                _apply(connection, write, latest)
                untrimmed_bytes += len(write.value or b"")
            results.append(latest if conflict is None else conflict)
        if before // _TRIM_EVERY != latest // _TRIM_EVERY or untrimmed_bytes >= TRIM_EVERY_BYTES:
            _trim(connection, latest)
            untrimmed_bytes = 0
        connection.execute("UPDATE revision SET latest = ?, untrimmed_bytes = ?", (latest, untrimmed_bytes))
    return results


def _trim(connection: sqlite3.Connection, latest: int) -> None:
    """Delete the oldest changes from the history if there are too many or they are too large; keep the latest change.

    Adding up the lengths is cheap, because SQLite knows the length of a value without reading the value.
    """
    first_kept, size = max(latest - HISTORY_CHANGES + 1, 1), 0
    rows = connection.execute("SELECT revision, ifnull(length(value), 0) FROM changes ORDER BY revision DESC")
    for revision, value_bytes in rows:
        size += value_bytes
        if revision < first_kept or (size > HISTORY_BYTES and revision != latest):
            first_kept = revision + 1
            break
    rows.close()
    connection.execute("DELETE FROM changes WHERE revision < ?", (first_kept,))


def _conflict(connection: sqlite3.Connection, write: Write) -> VersionConflict | None:
    if write.expected_version is None:
        return None
    row = connection.execute("SELECT version FROM documents WHERE key = ?", (write.key,)).fetchone()
    actual = ABSENT if row is None else int(row[0])
    return None if actual == write.expected_version else VersionConflict(write.key, write.expected_version, actual)


def _apply(connection: sqlite3.Connection, write: Write, revision: int) -> None:
    if write.value is None:
        connection.execute("DELETE FROM documents WHERE key = ?", (write.key,))
    else:
        connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", (write.key, write.value, revision))
    connection.execute("INSERT INTO changes VALUES (?, ?, ?)", (revision, write.key, write.value))


_SIGNAL: Final = b"!"


class Answer(Enum):
    """The state of a process, found out by sending a signal to the process."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


class ChangeSignal:
    """The socket on which this process receives signals, which are datagrams from other processes.

    Signals call `on_signal` on the event loop; several signals that have arrived together cause one call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_signal: Callable[[], object]) -> None:
        self._loop = loop
        self._on_signal = on_signal
        self._directory = Path(tempfile.mkdtemp(prefix="barnabas-"))
        self.address: Final = str(self._directory / "bell")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self.address)
        loop.add_reader(self._socket, self._drain)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(1):
                pass
        self._on_signal()

    def close(self) -> None:
        """Close the socket; afterwards, this process no longer receives the datagrams of other processes."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def send_signal(address: str) -> Answer:
    """Wake the process at `address`; return whether the process is alive.

    The result is UNKNOWN if the socket is missing, or if this process has no file descriptors left.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bell:
            bell.sendto(_SIGNAL, address)
    except BlockingIOError:
        return Answer.ALIVE  # The process exists, but its queue of signals is full.
    except ConnectionRefusedError:
        return Answer.GONE
    except OSError:
        return Answer.UNKNOWN
    return Answer.ALIVE


def clear_away(address: str) -> None:
    """Remove the socket of a process that has ended, and the directory of the socket."""
    with contextlib.suppress(OSError):
        os.unlink(address)
        os.rmdir(os.path.dirname(address))


_COLUMNS = "name, holder, token, duration_ms, expires_at_ms"


def acquire(
    connection: sqlite3.Connection, name: str, holder: str, duration_ms: int, now_ms: int, address: str
) -> Lease | None:
    """Acquire or renew a lease for `holder`; return None if another holder has the lease.

    `address` is the address of the socket on which the holder's process receives signals of changes. A refused signal
    shows that the process has ended, so that another holder may acquire the lease.
    """
    with transaction(connection):
        row = connection.execute(f"SELECT {_COLUMNS}, address FROM leases WHERE name = ?", (name,)).fetchone()
        found = None if row is None else Lease(*row[:-1])
        if found is not None and found.holder != holder and not _ended(found, row[-1], now_ms):
            return None
        token = 1 if found is None else found.token + (found.holder != holder)
        lease = Lease(name, holder, token, duration_ms, now_ms + duration_ms)
        connection.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)", (*lease, address))
    return lease


def _ended(lease: Lease, address: str, now_ms: int) -> bool:
    return lease.expires_at_ms <= now_ms or send_signal(address) is Answer.GONE


def renew(connection: sqlite3.Connection, lease: Lease, now_ms: int) -> Lease:
    """Renew a lease: the duration begins again now. Raises LeaseLost if another holder has acquired the lease.

    The renewal is not synced, so that no process waits for the disk while it holds the only write lock. A power failure
    may undo the renewal, but the reboot ends all leases anyway.
    """
    renewed = lease._replace(expires_at_ms=now_ms + lease.duration_ms)
    with unsynced(connection), transaction(connection):
        cursor = connection.execute(
            "UPDATE leases SET expires_at_ms = ? WHERE name = ? AND holder = ? AND token = ?",
            (renewed.expires_at_ms, lease.name, lease.holder, lease.token),
        )
        if cursor.rowcount == 0:
            raise LeaseLost(f"the lease {lease.name} is no longer held by {lease.holder}")
    return renewed


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    """Expire a lease if it is still held. The row stays, so that its token is never used again."""
    with transaction(connection):
        connection.execute(
            "UPDATE leases SET expires_at_ms = 0, holder = '' WHERE name = ? AND holder = ? AND token = ?",
            (lease.name, lease.holder, lease.token),
        )


def release_all(connection: sqlite3.Connection, address: str) -> None:
    """Release all leases of the process at `address`."""
    with transaction(connection):
        connection.execute("UPDATE leases SET expires_at_ms = 0, holder = '' WHERE address = ?", (address,))


def below(connection: sqlite3.Connection, prefix: str) -> Sequence[Lease]:
    """Return all leases whose name begins with `prefix`, even expired ones, unless their process has ended."""
    rows = connection.execute(
        f"SELECT {_COLUMNS}, address FROM leases WHERE substr(name, 1, length(?1)) = ?1 AND holder != '' ORDER BY name",
        (prefix,),
    ).fetchall()
    return [Lease(*row[:-1]) for row in rows if send_signal(row[-1]) is not Answer.GONE]


def add_watcher(connection: sqlite3.Connection, address: str, boot_id: str, clock: Clock) -> None:
    """Add `address` to the socket addresses that every writer signals.

    End the leases from before the machine's last boot. A process with another boot id keeps its leases if its socket
    accepts a signal, because containers on one machine may have different boot ids.
    """
    _end_leases_of_other_uptimes(connection, clock)
    known = connection.execute("SELECT address, boot_id FROM watchers").fetchall()
    others = [each for each, of_boot in known if of_boot not in ("", boot_id) and send_signal(each) is not Answer.ALIVE]
    for each in others:
        release_all(connection, each)
    forget_watchers(connection, others)
    with transaction(connection):
        connection.execute("INSERT INTO watchers VALUES (?, ?)", (address, boot_id))


def _end_leases_of_other_uptimes(connection: sqlite3.Connection, clock: Clock) -> None:
    """End the leases from before the last boot of the machine.

    The monotonic clock starts again at each boot. A lease whose remaining time exceeds its duration is therefore from
    before the boot. The clock is read within the write transaction, because otherwise a lease that is renewed between
    the reading and the transaction would look like a lease from before the boot.
    """
    with transaction(connection):
        connection.execute(
            "UPDATE leases SET expires_at_ms = 0, holder = '' WHERE expires_at_ms > ? + duration_ms",
            (monotonic_ms(clock),),
        )


def watchers(connection: sqlite3.Connection) -> list[str]:
    """Return the socket addresses of the processes that must be signalled after a commit."""
    return [address for (address,) in connection.execute("SELECT address FROM watchers")]


def forget_watchers(connection: sqlite3.Connection, addresses: Iterable[str]) -> None:
    """Remove the socket addresses of processes that have ended or are about to end.

    Writers then send no more signals to these processes.
    """
    with transaction(connection):
        connection.executemany("DELETE FROM watchers WHERE address = ?", [(address,) for address in addresses])


SAFETY_POLL_S: Final = 5.0

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
        self._signalled = asyncio.Event()
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
            await store._run(add_watcher, store._change_signal.address, boot_id, clock)
        except BaseException:
            await store.close()
            raise
        return store

    async def get(self, key: str) -> Document | None:
        """Return the value stored under a key with its version, or None if the key does not exist."""
        return await self._run(get, key)

    async def listing(self) -> Listing:
        """Return all stored values, in the order of their keys."""
        return await self._run(listing)

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
        return await self._run(_write_and_signal, writes)

    async def latest_revision(self) -> int:
        """Return the revision of the last change."""
        return await self._run(latest_revision)

    async def watch(self, from_revision: int) -> AsyncIterator[Changes]:
        """Yield every change after `from_revision`, in order. Raises HistoryCompacted if some are no longer kept."""
        seen = from_revision
        while not self._closed:
            signalled = self._signalled
            changes = await self._run(changes_since, seen)
            if changes.revision > seen:
                seen = changes.revision
                yield changes
            else:
                await _wait(signalled, SAFETY_POLL_S)

    async def acquire_lease(self, name: str, holder: str, duration_ms: int) -> Lease | None:
        """Acquire or renew a lease for `holder`; return None if another holder has it."""
        now_ms, address = monotonic_ms(self._clock), self._change_signal.address
        return await self._run(acquire, name, holder, duration_ms, now_ms, address)

    async def renew_lease(self, lease: Lease) -> Lease:
        """Renew a lease: the duration begins again now. Raises LeaseLost if another holder has acquired the lease."""
        return await self._run(renew, lease, monotonic_ms(self._clock))

    async def release_lease(self, lease: Lease) -> None:
        """Release the lease at once, or do nothing if the lease was lost."""
        await self._run(release, lease)

    async def leases(self, prefix: str) -> Sequence[Lease]:
        """Return all leases whose name begins with `prefix`, except leases whose holder has certainly ended."""
        return await self._run(below, prefix)

    async def followed_leases(self, prefix: str) -> Sequence[Lease]:
        """Return the current leases (`leases`) instead of cached leases, because a query of SQLite is cheap."""
        return await self.leases(prefix)

    async def close(self) -> None:
        """Release the leases of this process, end its watches, and close the file."""
        if self._closed:
            return
        with contextlib.suppress(StoreUnavailable):  # If this fails, the next writer releases the leases.
            await self._run(release_all, self._change_signal.address)
            await self._run(forget_watchers, [self._change_signal.address])
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
        self._signalled.set()
        self._signalled = asyncio.Event()

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


def _write_and_signal(connection: sqlite3.Connection, writes: Sequence[Write]) -> list[int | VersionConflict]:
    results = write_all(connection, writes)
    addresses = watchers(connection)
    gone = [address for address in addresses if send_signal(address) is Answer.GONE]
    for address in gone:
        release_all(connection, address)  # A dead process cannot release its leases.
        clear_away(address)
    if gone:
        forget_watchers(connection, gone)
    return results

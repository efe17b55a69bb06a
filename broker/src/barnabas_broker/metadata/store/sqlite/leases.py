"""The SQLite store's leases and the doorbells of its processes, as statements on a connection. Raises sqlite3.Error.

A lease ends with its holder's process, too, even before it expires, where that process is gone for certain: so a
killed broker can start again at once. Times are those since the machine was started, so a lease ends with that, too.
"""

import sqlite3
from collections.abc import Iterable, Sequence

from barnabas_broker.metadata.store.metadata_store import Lease, LeaseLost
from barnabas_broker.metadata.store.sqlite.change_signal import Answer, ring
from barnabas_broker.metadata.store.sqlite.schema import transaction, unsynced
from barnabas_core.clock import Clock, monotonic_ms

_COLUMNS = "name, holder, token, duration_ms, expires_at_ms"


def acquire(
    connection: sqlite3.Connection, name: str, holder: str, duration_ms: int, now_ms: int, address: str
) -> Lease | None:
    """Acquire a lease for `holder`, whose doorbell is at `address`; return None if another holder has it."""
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
    return lease.expires_at_ms <= now_ms or ring(address) is Answer.GONE


def renew(connection: sqlite3.Connection, lease: Lease, now_ms: int) -> Lease:
    """Renew a lease from now on. Raises LeaseLost if another holder had it meanwhile.

    It is not synced: a power cut may undo it, and ends the lease anyway. So no process waits for the disk while it
    holds the only lock.
    """
    renewed = lease._replace(expires_at_ms=now_ms + lease.duration_ms)
    with unsynced(connection), transaction(connection):
        cursor = connection.execute(
            "UPDATE leases SET expires_at_ms = ? WHERE name = ? AND holder = ? AND token = ?",
            (renewed.expires_at_ms, lease.name, lease.holder, lease.token),
        )
        if cursor.rowcount == 0:
            raise LeaseLost(f"{lease.name}: {lease.holder} no longer holds it")
    return renewed


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    """Expire a lease if it is still held. Its row stays, so that its token is never used again."""
    with transaction(connection):
        connection.execute(
            "UPDATE leases SET expires_at_ms = 0, holder = '' WHERE name = ? AND holder = ? AND token = ?",
            (lease.name, lease.holder, lease.token),
        )


def release_all(connection: sqlite3.Connection, address: str) -> None:
    """Releases every lease of the process at `address`, which closes the store."""
    with transaction(connection):
        connection.execute("UPDATE leases SET expires_at_ms = 0, holder = '' WHERE address = ?", (address,))


def below(connection: sqlite3.Connection, prefix: str) -> Sequence[Lease]:
    """Return all leases whose name begins with `prefix`, expired ones, too, unless their process has ended."""
    rows = connection.execute(
        f"SELECT {_COLUMNS}, address FROM leases WHERE substr(name, 1, length(?1)) = ?1 AND holder != '' ORDER BY name",
        (prefix,),
    ).fetchall()
    return [Lease(*row[:-1]) for row in rows if ring(row[-1]) is not Answer.GONE]


def add_watcher(connection: sqlite3.Connection, address: str, boot_id: str, clock: Clock) -> None:
    """Let every writer ring at `address` from now on; end the leases from before the machine's boot.

    Containers may each have a boot id of their own: a process that answers is alive in any case.
    """
    _end_leases_of_other_uptimes(connection, clock)
    known = connection.execute("SELECT address, boot_id FROM watchers").fetchall()
    others = [each for each, of_boot in known if of_boot not in ("", boot_id) and ring(each) is not Answer.ALIVE]
    for each in others:
        release_all(connection, each)
    forget_watchers(connection, others)
    with transaction(connection):
        connection.execute("INSERT INTO watchers VALUES (?, ?)", (address, boot_id))


def _end_leases_of_other_uptimes(connection: sqlite3.Connection, clock: Clock) -> None:
    """End the leases that would last longer than any that was taken or renewed since the machine was started.

    The time is read inside the write transaction: otherwise a lease renewed after the reading would seem to last too
    long.
    """
    with transaction(connection):
        connection.execute(
            "UPDATE leases SET expires_at_ms = 0, holder = '' WHERE expires_at_ms > ? + duration_ms",
            (monotonic_ms(clock),),
        )


def watchers(connection: sqlite3.Connection) -> list[str]:
    """The doorbells to ring after a commit."""
    return [address for (address,) in connection.execute("SELECT address FROM watchers")]


def forget_watchers(connection: sqlite3.Connection, addresses: Iterable[str]) -> None:
    """Remove the addresses of processes that have ended, or are about to."""
    with transaction(connection):
        connection.executemany("DELETE FROM watchers WHERE address = ?", [(address,) for address in addresses])

"""The SQL statements for leases and watchers. All functions may raise sqlite3.Error.

If the process of a holder has certainly ended, its lease ends early, so that a killed broker can start again at once.
Times are measured from the boot of the machine, so a reboot ends all leases.
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
    return lease.expires_at_ms <= now_ms or ring(address) is Answer.GONE


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
    return [Lease(*row[:-1]) for row in rows if ring(row[-1]) is not Answer.GONE]


def add_watcher(connection: sqlite3.Connection, address: str, boot_id: str, clock: Clock) -> None:
    """Add `address` to the socket addresses that every writer signals.

    End the leases from before the machine's last boot. A process with another boot id keeps its leases if its socket
    accepts a signal, because containers on one machine may have different boot ids.
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

"""The database file of the SQLite store: its tables, its opening and its transactions.

Several processes use the same file. In WAL mode, readers and the writer do not wait for each other. Each commit is a
full sync, so that acknowledged writes survive a power failure.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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

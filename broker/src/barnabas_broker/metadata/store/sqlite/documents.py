"""The SQL statements for metadata documents and the history of changes. All functions may raise sqlite3.Error."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from barnabas_broker.metadata.store.metadata_store import (
    ABSENT,
    Change,
    Changes,
    Document,
    HistoryCompacted,
    Listing,
    VersionConflict,
    Write,
)
from barnabas_broker.metadata.store.sqlite.schema import transaction

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

"""The SQLite store passes the conformance tests, and several processes can share its file."""

import asyncio
import errno
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from store_conformance import OpenStore, StoreConformance, changes_until

from barnabas_broker.app.loop_turns import SystemClock
from barnabas_broker.metadata.store import sqlite_store
from barnabas_broker.metadata.store.metadata_store import HistoryCompacted, Lease, StoreUnavailable, Write
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from harness.deadline import PATIENCE_S
from harness.manual_clock import ManualClock

PRELUDE = """
import asyncio, sys
from pathlib import Path
from barnabas_broker.app.loop_turns import SystemClock
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from barnabas_broker.metadata.store.metadata_store import VersionConflict, Write

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]), SystemClock())
"""

INCREMENT = """
    for _ in range(int(sys.argv[2])):
        while True:
            document = await store.get("counter")
            value, version = (int(document.value), document.version) if document else (0, 0)
            try:
                await store.put("counter", b"%d" % (value + 1), version)
                break
            except VersionConflict:
                pass
    await store.close()
asyncio.run(main())
"""

WRITE_PAIRS = """
    number = 0
    while True:
        number += 1
        await store.write([Write("left", b"%d" % number), Write("right", b"%d" % number)])
        print(number, flush=True)
asyncio.run(main())
"""

TAKE_PRODUCER_IDS = """
    from barnabas_broker.metadata.controller.metadata_writer import allocate_block
    while True:
        print((await allocate_block(store, 0, 0)).start, flush=True)
asyncio.run(main())
"""

HOLD_LEASE = """
    lease = await store.acquire_lease("broker-1", "the first one", 3_600_000)
    print(lease.token, flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


FIRST_FORMAT = """
CREATE TABLE documents (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE changes (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB);
CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, token INTEGER NOT NULL, duration_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL, address TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE watchers (address TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE revision (latest INTEGER NOT NULL);
INSERT INTO revision VALUES (7);
INSERT INTO documents VALUES ('k', X'31', 7);
INSERT INTO changes VALUES (7, 'k', X'31');
INSERT INTO watchers VALUES ('/tmp/of/a/time/before');
PRAGMA user_version = 1
"""


def power_is_cut(store: SqliteStore) -> None:
    """Drop the state in memory and below the temporary folder, without a clean close of the store."""
    store._change_signal.close()
    store._connection.close()
    store._worker.shutdown()


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that is a minute ahead of the system clock, which other processes use."""
    clock = ManualClock()
    clock.passed_ms = 1000 * SystemClock().monotonic_s() + 60_000
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata" / "cluster.sqlite"


@pytest.fixture
async def open_store(path: Path, clock: ManualClock) -> AsyncIterator[OpenStore]:
    opened: list[SqliteStore] = []

    async def open_one() -> SqliteStore:
        store = await SqliteStore.open(path, clock)
        opened.append(store)
        return store

    yield open_one
    await (await open_one()).put("end", b"")  # Removes the sockets of killed processes.
    for store in opened:
        await store.close()


async def run_python(program: str, *arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", PRELUDE + program, *map(str, arguments), stdout=asyncio.subprocess.PIPE
    )


async def read_line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        return await process.stdout.readline()


async def kill(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.communicate()


class ClockBesideARenewal(ManualClock):
    """A clock; after each reading another process renews a lease a second later, unless it has to wait for a writer."""

    def __init__(self, path: Path, lease: Lease) -> None:
        super().__init__()
        self.path, self.lease = path, lease

    def monotonic_s(self) -> float:
        """Return the time of the reading."""
        read_s = super().monotonic_s()
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.path, timeout=0)) as connection:
            connection.isolation_level = None
            sqlite_store.renew(connection, self.lease, round(read_s * 1000) + 1_000)
        return read_s


class TestSqliteStore(StoreConformance):
    async def test_concurrent_processes_lose_no_update(self, path: Path, open_store: OpenStore) -> None:
        racers = [await run_python(INCREMENT, path, 50) for _ in range(2)]
        for racer in racers:
            await racer.communicate()
            assert racer.returncode == 0
        document = await (await open_store()).get("counter")
        assert document is not None
        assert document.value == b"100"

    async def test_a_watch_returns_changes_of_another_process(self, path: Path, open_store: OpenStore) -> None:
        store = await open_store()
        writer = await run_python(INCREMENT, path, 20)
        changes = await changes_until(store, 0, 20)
        assert [change.value for change in changes] == [b"%d" % number for number in range(1, 21)]
        await writer.communicate()

    async def test_a_killed_writer_leaves_only_complete_writes(self, path: Path, open_store: OpenStore) -> None:
        for _ in range(5):
            writer = await run_python(WRITE_PAIRS, path)
            confirmed = [await read_line(writer) for _ in range(5)]
            await kill(writer)
            store = await open_store()
            left, right = await store.get("left"), await store.get("right")
            assert left is not None
            assert right is not None
            assert left.value == right.value
            assert int(left.value) >= int(confirmed[-1])
            await store.put("left", b"0")  # No lock may be left.

    async def test_the_lease_of_a_killed_holder_can_be_acquired_immediately(
        self, path: Path, open_store: OpenStore, clock: ManualClock
    ) -> None:
        holder = await run_python(HOLD_LEASE, path)
        first_token = int(await read_line(holder))
        store = await open_store()
        clock.passed_ms = 0  # The lease is far from its expiry.
        assert await store.acquire_lease("broker-1", "the second one", 1000) is None
        await kill(holder)
        lease = await store.acquire_lease("broker-1", "the second one", 1000)
        assert lease is not None
        assert lease.token == first_token + 1

    async def test_the_leases_of_a_killed_holder_are_not_listed(self, path: Path, open_store: OpenStore) -> None:
        holder = await run_python(HOLD_LEASE, path)
        await read_line(holder)
        store = await open_store()
        assert [lease.name for lease in await store.leases("broker-")] == ["broker-1"]
        await kill(holder)
        assert await store.leases("broker-") == []

    async def test_closing_a_store_releases_its_leases(self, open_store: OpenStore) -> None:
        first, second = await open_store(), await open_store()
        assert await first.acquire_lease("broker-1", "a", 1000) is not None
        assert await second.acquire_lease("broker-1", "b", 1000) is None
        await first.close()
        assert await second.acquire_lease("broker-1", "b", 1000) is not None

    async def test_producer_ids_are_allocated_once_although_processes_are_killed(
        self, path: Path, open_store: OpenStore
    ) -> None:
        taken: list[int] = []
        for _ in range(4):
            takers = [await run_python(TAKE_PRODUCER_IDS, path) for _ in range(2)]
            taken += [int(await read_line(taker)) for taker in takers for _ in range(5)]
            for taker in takers:
                taker.send_signal(signal.SIGKILL)
                rest, _ = await taker.communicate()
                taken += [int(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
        assert len(taken) == len(set(taken))
        assert all(first % 1000 == 0 for first in taken)

    async def test_successive_watches_miss_no_change_of_other_processes(
        self, path: Path, open_store: OpenStore
    ) -> None:
        writers = [await run_python(INCREMENT, path, 40) for _ in range(2)]
        store = await open_store()
        seen: list[int] = []
        while len(seen) < 80:
            async with asyncio.timeout(PATIENCE_S):
                async for batch in store.watch(len(seen)):
                    seen += [int(change.value or b"") for change in batch.changes]
                    break
        assert seen == list(range(1, 81))
        for writer in writers:
            await writer.communicate()

    async def test_the_watcher_socket_of_a_killed_process_is_removed(self, path: Path, open_store: OpenStore) -> None:
        holder = await run_python(HOLD_LEASE, path)
        await read_line(holder)
        store = await open_store()
        with sqlite3.connect(path) as connection:
            before = [address for (address,) in connection.execute("SELECT address FROM watchers")]
        assert len(before) == 2
        await kill(holder)
        await store.put("k", b"1")
        with sqlite3.connect(path) as connection:
            after = [address for (address,) in connection.execute("SELECT address FROM watchers")]
        assert len(after) == 1
        assert [address for address in before if os.path.exists(address)] == after

    async def test_a_watch_from_a_trimmed_revision_raises_history_compacted(
        self, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_store, "HISTORY_CHANGES", 100)
        store = await open_store()
        await store.write([Write(f"k{number}", b"1") for number in range(2000)])
        with pytest.raises(HistoryCompacted):
            await changes_until(store, 1899, 2000)
        assert len(await changes_until(store, 1900, 2000)) == 100

    async def test_a_watch_from_a_future_revision_raises_history_compacted(self, open_store: OpenStore) -> None:
        store = await open_store()
        last = await store.put("k", b"1")
        with pytest.raises(HistoryCompacted):
            await changes_until(store, last + 5, last + 6)

    async def test_closing_the_store_ends_its_watches(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.put("k", b"1")
        watching = asyncio.create_task(changes_until(store, 0, 1_000_000))
        await changes_until(store, 0, 1)
        await store.close()
        async with asyncio.timeout(PATIENCE_S):
            assert len(await watching) == 1
        with pytest.raises(StoreUnavailable, match="is closed"):
            await store.get("k")

    async def test_the_error_for_a_file_that_is_not_a_database_names_it(self, path: Path, clock: ManualClock) -> None:
        path.parent.mkdir()
        path.write_bytes(b"this is no database" * 100)
        with pytest.raises(StoreUnavailable, match=str(path)):
            await SqliteStore.open(path, clock)

    async def test_a_store_of_another_format_is_refused(self, path: Path, clock: ManualClock) -> None:
        path.parent.mkdir()
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 77")
        with pytest.raises(StoreUnavailable, match="format 77, but this version reads only the formats 1 and 2"):
            await SqliteStore.open(path, clock)

    async def test_a_store_of_the_first_format_is_migrated(self, path: Path, open_store: OpenStore) -> None:
        path.parent.mkdir()
        with sqlite3.connect(path) as connection:
            connection.executescript(FIRST_FORMAT)
        store = await open_store()
        assert await store.get("k") == ("k", b"1", 7)
        assert await store.put("k", b"2", 7) == 8
        assert await store.acquire_lease("broker-1", "a", 1000) is not None
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (2,)

    async def test_leases_from_before_a_reboot_have_expired(self, path: Path, clock: ManualClock) -> None:
        clock.passed_ms = 900_000
        before = await SqliteStore.open(path, clock, "boot 1")
        assert await before.acquire_lease("broker-1", "a", 9_000) is not None
        power_is_cut(before)
        clock.passed_ms = 895_000  # At this time of the next uptime the old lease seems valid.
        after = await SqliteStore.open(path, clock, "boot 2")
        assert await after.leases("") == []
        lease = await after.acquire_lease("broker-1", "b", 9_000)
        assert lease is not None
        assert lease.token == 2
        with sqlite3.connect(path) as connection:
            assert len(connection.execute("SELECT address FROM watchers").fetchall()) == 1
        await after.close()

    async def test_a_lease_with_an_impossible_expiry_is_treated_as_from_another_uptime(
        self, path: Path, clock: ManualClock
    ) -> None:
        clock.passed_ms = 900_000
        before = await SqliteStore.open(path, clock)
        assert await before.acquire_lease("broker-1", "a", 9_000) is not None
        power_is_cut(before)
        clock.passed_ms = 0
        after = await SqliteStore.open(path, clock)
        assert await after.acquire_lease("broker-1", "b", 9_000) is not None
        await after.close()

    async def test_a_lease_with_another_boot_id_stays_valid_while_its_process_runs(
        self, path: Path, clock: ManualClock
    ) -> None:
        one = await SqliteStore.open(path, clock, "a container's boot id")
        assert await one.acquire_lease("broker-1", "a", 9_000) is not None
        other = await SqliteStore.open(path, clock, "another container's")
        assert await other.acquire_lease("broker-1", "b", 9_000) is None
        await other.close()
        await one.close()

    async def test_a_lease_renewed_while_another_process_opens_the_store_stays_valid(self, path: Path) -> None:
        one = await SqliteStore.open(path, ManualClock())
        lease = await one.acquire_lease("broker-1", "a", 9_000)
        assert lease is not None
        other = await SqliteStore.open(path, ClockBesideARenewal(path, lease))
        assert await one.renew_lease(lease)
        await other.close()
        await one.close()

    async def test_history_is_bounded_by_its_bytes(
        self, path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_store, "HISTORY_BYTES", 100_000)
        monkeypatch.setattr(sqlite_store, "TRIM_EVERY_BYTES", 20_000)
        store = await open_store()
        for _ in range(40):
            await store.put("k", b"1" * 10_000)
        with sqlite3.connect(path) as connection:
            (kept,) = connection.execute("SELECT sum(length(value)) FROM changes").fetchone()
        assert 80_000 <= kept <= 130_000
        assert len(await changes_until(store, 35, 40)) == 5

    async def test_a_watch_returns_a_document_that_is_larger_than_the_history(
        self, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_store, "HISTORY_BYTES", 100)
        monkeypatch.setattr(sqlite_store, "TRIM_EVERY_BYTES", 10)
        store = await open_store()
        for number in range(1, 4):
            last = await store.put("k", b"1" * 1000)
            assert len(await changes_until(store, number - 1, last)) == 1

    async def test_many_clients_can_create_the_store_concurrently(self, path: Path, open_store: OpenStore) -> None:
        stores = await asyncio.gather(*(open_store() for _ in range(8)))
        await stores[0].put("k", b"1")
        assert [await store.get("k") for store in stores] == [("k", b"1", 1)] * 8


async def test_a_process_without_file_descriptors_keeps_the_leases_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def used_up(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    store = await SqliteStore.open(tmp_path / "metadata.sqlite", SystemClock())
    other = await SqliteStore.open(tmp_path / "metadata.sqlite", SystemClock())
    try:
        lease = await other.acquire_lease("brokers/1", "other", 60_000)
        assert lease is not None
        with monkeypatch.context() as exhausted:
            exhausted.setattr(socket, "socket", used_up)
            assert await store.put("key", b"value")
            assert await store.leases("brokers/") == [lease]
    finally:
        await store.close()
        await other.close()

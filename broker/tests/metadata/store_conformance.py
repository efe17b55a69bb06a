"""The behaviour of every metadata store. The test class of a store inherits these tests, with a factory that opens it.

A factory opens another client of the same store, as another process would.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from barnabas_broker.metadata.store.metadata_store import (
    ABSENT,
    Change,
    LeaseLost,
    MetadataStore,
    VersionConflict,
    Write,
)
from harness.deadline import PATIENCE_S
from harness.manual_clock import ManualClock

OpenStore = Callable[[], Awaitable[MetadataStore]]


async def changes_until(store: MetadataStore, from_revision: int, last: int) -> list[Change]:
    """Return all changes of a new watch up to revision `last`."""
    seen: list[Change] = []
    async with asyncio.timeout(PATIENCE_S):
        async for batch in store.watch(from_revision):
            seen += batch.changes
            if batch.revision >= last:
                break
    return seen


async def next_changes(store: MetadataStore, from_revision: int, count: int) -> list[Change]:
    """Return at least the first `count` changes of a new watch."""
    seen: list[Change] = []
    async with asyncio.timeout(PATIENCE_S):
        async for batch in store.watch(from_revision):
            seen += batch.changes
            if len(seen) >= count:
                break
    return seen


async def delete(store: MetadataStore, key: str, expected_version: int | None = None) -> int:
    """Delete a key; return the revision of the store after that."""
    (result,) = await store.write([Write(key, None, expected_version)])
    if isinstance(result, VersionConflict):
        raise result
    return result


class StoreConformance:
    """A subclass must have the fixtures `open_store` and `clock`."""

    async def test_a_document_is_read_as_written(self, open_store: OpenStore) -> None:
        store = await open_store()
        value = b'{"n":1,"N":[null,true,{"deep":["\xc3\xa4",-9007199254740993,0.5]}],"":"","none":null}'
        version = await store.put("topics/a", value)
        document = await store.get("topics/a")
        assert document is not None
        assert (document.key, json.loads(document.value), document.version) == ("topics/a", json.loads(value), version)
        assert await store.get("topics/b") is None

    async def test_a_write_that_expects_another_version_is_refused(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await store.put("k", b"1", ABSENT)
        with pytest.raises(VersionConflict) as refused:
            await store.put("k", b"2", ABSENT)
        assert (refused.value.expected, refused.value.actual) == (ABSENT, first)
        second = await store.put("k", b"2", first)
        assert second > first
        with pytest.raises(VersionConflict):
            await delete(store, "k", first)
        await delete(store, "k", second)
        with pytest.raises(VersionConflict):
            await store.put("k", b"3", second)
        assert await store.get("k") is None

    async def test_a_write_without_an_expected_version_always_succeeds(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await store.put("k", b"1") < await store.put("k", b"2") < await delete(store, "k")
        assert await delete(store, "k") > 0

    async def test_each_of_several_writes_succeeds_or_fails_separately(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.put("b", b"0")
        first, conflict, third = await store.write([Write("a", b"1", 0), Write("b", b"1", 0), Write("c", b"1", 0)])
        assert isinstance(conflict, VersionConflict)
        assert conflict.key == "b"
        assert isinstance(first, int)
        assert isinstance(third, int)
        listing = await store.listing()
        assert [(document.key, document.value) for document in listing.documents] == [
            ("a", b"1"),
            ("b", b"0"),
            ("c", b"1"),
        ]
        assert listing.revision >= max(first, third)

    async def test_a_watch_returns_every_change_once_and_in_order(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        await store.put("topics/a", b"0")
        begin = (await store.listing()).revision
        watching = asyncio.create_task(next_changes(other, begin, 5))
        await store.put("topics/a", b"1")
        await store.put("topics/b", b"1")
        await delete(store, "topics/a")
        await store.write([Write("topics/c", b"1"), Write("topics/c", b"2")])
        changes = await watching
        assert [(change.key, change.value) for change in changes] == [
            ("topics/a", b"1"),
            ("topics/b", b"1"),
            ("topics/a", None),
            ("topics/c", b"1"),
            ("topics/c", b"2"),
        ]
        assert [change.revision for change in changes] == sorted({change.revision for change in changes})

    async def test_a_resumed_watch_misses_no_change(self, open_store: OpenStore) -> None:
        store = await open_store()
        begin = (await store.listing()).revision
        last = 0
        for number in range(10):
            last = await store.put(f"k{number % 3}", b"%d" % number)
        everything = await changes_until(store, begin, last)
        assert [change.value for change in everything] == [b"%d" % number for number in range(10)]
        for change in everything[:-1]:
            rest = await changes_until(await open_store(), change.revision, last)
            assert rest == [later for later in everything if later.revision > change.revision]

    async def test_watches_of_several_clients_see_writes_of_all(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        begin = (await stores[0].listing()).revision
        watches = [asyncio.create_task(next_changes(store, begin, 30)) for store in stores]
        await asyncio.gather(*(store.put(f"k{n}", b"%d" % m) for n, store in enumerate(stores) for m in range(10)))
        seen = await asyncio.gather(*watches)
        assert [len(changes) for changes in seen] == [30, 30, 30]
        assert seen[0] == seen[1] == seen[2]

    async def test_a_watch_reaches_the_latest_revision_without_further_writes(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        begin = (await store.listing()).revision
        await store.put("topics/a", b"1")
        await delete(store, "topics/a")
        latest = await other.latest_revision()
        assert [change.value for change in await changes_until(store, begin, latest)] == [b"1", None]

    async def test_the_revision_returned_by_a_delete_includes_the_delete(self, open_store: OpenStore) -> None:
        store = await open_store()
        version = await store.put("topics/a", b"1")
        begin = (await store.listing()).revision
        deleted = await delete(store, "topics/a", version)
        assert [change.value for change in await changes_until(store, begin, deleted)] == [None]

    async def test_only_one_of_concurrent_writes_to_the_same_version_succeeds(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]

        async def increment(store: MetadataStore) -> None:
            while True:
                document = await store.get("counter")
                value, version = (int(document.value), document.version) if document else (0, ABSENT)
                try:
                    await store.put("counter", b"%d" % (value + 1), version)
                    return
                except VersionConflict:
                    continue

        await asyncio.gather(*(increment(store) for store in stores for _ in range(3)))
        document = await stores[0].get("counter")
        assert document is not None
        assert document.value == b"12"

    async def test_a_lease_cannot_be_acquired_by_another_holder_until_it_expires(
        self, open_store: OpenStore, clock: ManualClock
    ) -> None:
        store, other = await open_store(), await open_store()
        lease = await store.acquire_lease("controller", "a", 1000)
        assert lease is not None
        assert await other.acquire_lease("controller", "b", 1000) is None
        clock.passed_ms += 999
        assert await other.acquire_lease("controller", "b", 1000) is None
        clock.passed_ms += 1
        taken = await other.acquire_lease("controller", "b", 1000)
        assert taken is not None
        assert taken.token > lease.token
        with pytest.raises(LeaseLost):
            await store.renew_lease(lease)

    async def test_a_renewed_lease_lasts_from_its_renewal(self, open_store: OpenStore, clock: ManualClock) -> None:
        store, other = await open_store(), await open_store()
        lease = await store.acquire_lease("controller", "a", 1000)
        assert lease is not None
        for _ in range(5):
            clock.passed_ms += 900
            lease = await store.renew_lease(lease)
            assert await other.acquire_lease("controller", "b", 1000) is None

    async def test_an_expired_lease_is_listed_until_another_holder_acquires_it(
        self, open_store: OpenStore, clock: ManualClock
    ) -> None:
        store, other = await open_store(), await open_store()
        lease = await store.acquire_lease("broker-1", "a", 1000)
        assert await other.leases("broker-") == [lease]
        clock.passed_ms += 5000
        assert await other.leases("broker-") == [lease]
        taken = await other.acquire_lease("broker-1", "b", 1000)
        assert await store.leases("broker-") == [taken]

    async def test_a_released_lease_can_be_acquired_immediately(self, open_store: OpenStore) -> None:
        store, other = await open_store(), await open_store()
        lease = await store.acquire_lease("controller", "a", 1000)
        assert lease is not None
        await store.release_lease(lease)
        assert await store.leases("") == []
        taken = await other.acquire_lease("controller", "b", 1000)
        assert taken is not None
        assert taken.token > lease.token
        await store.release_lease(lease)  # The release of a lost lease has no effect.
        assert [lease.holder for lease in await store.leases("contr")] == ["b"]

    async def test_a_holder_that_acquires_its_lease_again_keeps_it(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await store.acquire_lease("broker-1", "a", 1000)
        again = await store.acquire_lease("broker-1", "a", 1000)
        assert first == again

    async def test_only_one_of_several_clients_acquires_a_lease(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        leases = await asyncio.gather(*(s.acquire_lease("c", f"{n}", 1000) for n, s in enumerate(stores)))
        assert sum(lease is not None for lease in leases) == 1

    async def test_only_one_of_several_clients_acquires_an_expired_lease(
        self, open_store: OpenStore, clock: ManualClock
    ) -> None:
        stores = [await open_store() for _ in range(4)]
        assert await stores[0].acquire_lease("c", "first", 1000) is not None
        for store in stores:
            assert len(await store.leases("c")) == 1
        clock.passed_ms += 1000
        leases = await asyncio.gather(*(s.acquire_lease("c", f"{n}", 1000) for n, s in enumerate(stores)))
        assert sum(lease is not None for lease in leases) == 1

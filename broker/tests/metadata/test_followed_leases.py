"""Leases on a real API server: a store follows them by a watch, without further requests."""

import asyncio
from pathlib import Path

import pytest
from breaking_proxy import breaking_proxy
from kubernetes_stores import access_at
from store_conformance import OpenStore

from barnabas_broker.metadata.store.kubernetes.kubernetes_store import KubernetesStore
from barnabas_broker.metadata.store.kubernetes.leases import CURRENT_MS, ApiRequests
from barnabas_broker.metadata.store.metadata_store import KubernetesCluster, Lease, MetadataStore
from harness.deadline import PATIENCE_S
from harness.manual_clock import ManualClock


async def heard(store: MetadataStore, lease: Lease) -> None:
    """Wait until the followed leases of the store contain this one in its current state."""
    async with asyncio.timeout(PATIENCE_S):
        while lease not in await store.followed_leases(""):
            await asyncio.sleep(0.02)


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives the path of each GET of all stores."""
    paths: list[str] = []
    request = ApiRequests.request

    async def counted(self: ApiRequests, method: str, path: str, *more: object, **named: object) -> object:
        paths.extend([path] if method == "GET" else [])
        return await request(self, method, path, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(ApiRequests, "request", counted)
    return paths


async def heard_by_the_watch(holder: MetadataStore, follower: MetadataStore, lease: Lease, lists: list[str]) -> Lease:
    """Renew the lease until the follower notices it without a list, so that its watch has begun."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            lease = await holder.renew_lease(lease)
            lists.clear()
            await heard(follower, lease)
            if not lists:
                return lease


async def test_a_store_that_follows_leases_sees_every_change_without_further_lists(
    open_store: OpenStore, clock: ManualClock, lists: list[str]
) -> None:
    holder, follower = await open_store(), await open_store()
    lease = await holder.acquire_lease("broker-1", "a", 1000)
    assert lease is not None
    await heard(follower, lease)
    clock.passed_ms += 1
    lease = await heard_by_the_watch(holder, follower, lease, lists)
    for _ in range(3):
        clock.passed_ms += 1000
        lease = await holder.renew_lease(lease)
        await heard(follower, lease)
    await holder.release_lease(lease)
    async with asyncio.timeout(PATIENCE_S):
        while await follower.followed_leases(""):
            await asyncio.sleep(0.02)
    assert lists == []


async def test_a_store_lists_leases_again_if_its_watch_is_silent(
    open_store: OpenStore,
    clock: ManualClock,
    address: tuple[str, int],
    account: Path,
    location: KubernetesCluster,
) -> None:
    holder = await open_store()
    lease = await holder.acquire_lease("broker-1", "a", 1000)
    assert lease is not None
    async with breaking_proxy(address) as proxy:
        follower = KubernetesStore(location, access_at(("127.0.0.1", proxy.port), account), clock)
        await heard(follower, lease)
        proxy.break_all()
        clock.passed_ms += CURRENT_MS
        lease = await holder.renew_lease(lease)
        assert await follower.followed_leases("") == [lease]
        await follower.close()

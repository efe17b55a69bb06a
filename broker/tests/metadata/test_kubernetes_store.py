"""The Kubernetes store on a real API server, with a broker's service account, also passes the conformance tests."""

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path

import pytest
from kubernetes_stores import access_at
from kubernetes_topics import a_topic
from store_conformance import OpenStore, StoreConformance, changes_until, delete, next_changes

from barnabas_broker.metadata.store.kubernetes.kubernetes_store import KubernetesStore
from barnabas_broker.metadata.store.metadata_store import (
    ABSENT,
    HistoryCompacted,
    KubernetesCluster,
    MetadataStore,
    StoreUnavailable,
    VersionConflict,
    Write,
)
from harness.deadline import PATIENCE_S
from harness.manual_clock import ManualClock
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.helm import template


class TestKubernetesStore(StoreConformance):
    async def test_kubectl_shows_leaders_and_replicas_in_sync(
        self, plane: ControlPlane, open_store: OpenStore, location: KubernetesCluster
    ) -> None:
        store = await open_store()
        await a_topic(store, "Flights.2013_raw")
        await store.put("cluster", b'{"cluster_id":"x"}')
        printed = plane.kubectl("get", "sdoc", "-l", f"barnabas.dev/cluster={location.cluster}", "--no-headers")
        columns = [line.split()[1:-1] for line in printed.splitlines()]
        assert columns == [["cluster"], ["topics/Flights.2013_raw", "InSync", "2", "0:2", "6/6"]]

    async def test_clusters_in_one_namespace_do_not_see_each_other(
        self, open_store: OpenStore, address: tuple[str, int], account: Path, clock: ManualClock
    ) -> None:
        mine = await open_store()
        theirs = KubernetesStore(KubernetesCluster("default", "another"), access_at(address, account), clock)
        begin = (await mine.listing()).revision
        await theirs.put("cluster", b"1")
        await theirs.acquire_lease("controller", "a", 1000)
        assert await mine.get("cluster") is None
        assert await mine.leases("") == []
        assert await changes_until(mine, begin, await mine.latest_revision()) == []
        await theirs.close()

    async def test_a_document_that_the_api_server_refuses_is_not_a_version_conflict(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        version = await store.put("k", b"1")
        with pytest.raises(StoreUnavailable, match="k: "):
            await store.put("k", b'"' + b"x" * 2_000_000 + b'"', version)
        with pytest.raises(StoreUnavailable):
            await store.put("k", b'"' + b"x" * 2_000_000 + b'"')

    async def test_a_deleted_lease_is_lost_and_its_token_is_not_used_again(
        self, plane: ControlPlane, open_store: OpenStore, location: KubernetesCluster
    ) -> None:
        store = await open_store()
        lease = await store.acquire_lease("broker-1", "a", 1000)
        assert lease is not None
        plane.kubectl("delete", "lease", f"{location.cluster}.broker-1")
        assert await store.leases("") == []
        again = await store.acquire_lease("broker-1", "a", 1000)
        assert again is not None
        assert again.token > lease.token

    async def test_a_broker_that_restarts_in_its_pod_takes_over_its_lease_immediately(
        self, address: tuple[str, int], account: Path, location: KubernetesCluster, clock: ManualClock
    ) -> None:
        access = access_at(address, account)
        before, again, elsewhere, nowhere = (
            KubernetesStore(location, access, clock, pod_uid) for pod_uid in ("pod-a", "pod-a", "pod-b", "")
        )
        lease = await before.acquire_lease("broker-1", "first life", 1000)
        assert lease is not None
        assert await elsewhere.acquire_lease("broker-1", "other pod", 1000) is None
        assert await nowhere.acquire_lease("broker-1", "no pod", 1000) is None
        taken = await again.acquire_lease("broker-1", "second life", 1000)
        assert taken is not None
        assert taken.token > lease.token
        for store in (before, again, elsewhere, nowhere):
            await store.close()

    async def test_a_copy_of_an_object_is_not_treated_as_a_document(
        self, plane: ControlPlane, open_store: OpenStore, location: KubernetesCluster
    ) -> None:
        store = await open_store()
        await store.put("topics/a", b"1")
        begin = (await store.listing()).revision
        found = json.loads(plane.kubectl("get", "sdoc", f"{location.cluster}.topics.a", "-o", "json"))
        found["metadata"] = {"name": "backup", "labels": found["metadata"]["labels"]}
        plane.kubectl("create", "-f", "-", stdin=json.dumps(found))
        assert len((await store.listing()).documents) == 1
        assert await changes_until(store, begin, await store.latest_revision()) == []

    async def test_labels_set_by_others_are_kept(
        self, plane: ControlPlane, open_store: OpenStore, location: KubernetesCluster
    ) -> None:
        store = await open_store()
        await store.put("topics/a", b"1")
        plane.kubectl("label", "sdoc", f"{location.cluster}.topics.a", "team=air")
        await store.put("topics/a", b"2")
        assert "team=air" in plane.kubectl("get", "sdoc", f"{location.cluster}.topics.a", "--show-labels")

    async def test_a_document_without_its_label_vanishes_and_can_be_written_again(
        self, plane: ControlPlane, open_store: OpenStore, location: KubernetesCluster
    ) -> None:
        store = await open_store()
        begin = await store.put("topics/a", b"1")
        name = f"{location.cluster}.topics.a"
        for labels in ("barnabas.dev/cluster-", "team=air"):
            plane.kubectl("label", "sdoc", name, "barnabas.dev/cluster-", labels)
            assert (await store.listing()).documents == []
            changes = await changes_until(store, begin, await store.latest_revision())
            assert changes[-1].value is None
            begin = await store.put("topics/a", b"2", ABSENT)
            assert [each.value for each in (await store.listing()).documents] == [b"2"]
        assert "team=air" in plane.kubectl("get", "sdoc", name, "--show-labels")
        with pytest.raises(VersionConflict):
            await store.put("topics/a", b"3", ABSENT)

    async def test_twelve_concurrent_changes_of_one_document_are_all_applied(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        await stores[0].put("k", b"[]")

        async def add(store: MetadataStore, number: int) -> None:
            while True:
                found = await store.get("k")
                assert found is not None
                value = json.dumps([*json.loads(found.value), number]).encode()
                (result,) = await store.write([Write("k", value, found.version)])
                if isinstance(result, int):
                    return

        await asyncio.gather(*(add(store, 4 * n + m) for n, store in enumerate(stores) for m in range(4)))
        found = await stores[0].get("k")
        assert found is not None
        assert sorted(json.loads(found.value)) == list(range(12))

    async def test_a_watch_from_a_compacted_revision_raises_history_compacted(self, open_store: OpenStore) -> None:
        store = await open_store()
        for revision in (0, 1):
            with pytest.raises(HistoryCompacted):
                await next_changes(store, revision, 1)

    async def test_closing_the_store_ends_its_watches(self, open_store: OpenStore) -> None:
        store = await open_store()
        begin = (await store.listing()).revision
        last = await store.put("k", b"1")
        watching = asyncio.create_task(next_changes(store, begin, 2))
        await changes_until(store, begin, last)
        await store.close()
        async with asyncio.timeout(PATIENCE_S):
            await watching
        with pytest.raises(StoreUnavailable, match="is closed"):
            await store.get("k")


async def test_the_policy_denies_brokers_access_to_metadata_of_other_clusters(
    plane: ControlPlane, address: tuple[str, int], account: Path
) -> None:
    access, clock = access_at(address, account), ManualClock()
    own, other = (
        KubernetesStore(KubernetesCluster("default", name), access, clock) for name in ("demo-broker-1", "demo")
    )
    await other.put("topics/a", b"1")
    lease = await other.acquire_lease("controller", "a", 1000)
    assert lease is not None
    policy = template(
        "--namespace=default",
        "--api-versions=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
        "--show-only=templates/brokers-own-metadata.yaml",
    )
    plane.kubectl("apply", "-f-", stdin=policy)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await is_forbidden(other.put("topics/a", b"2")):
                await asyncio.sleep(0.1)
        assert await is_forbidden(delete(other, "topics/a"))
        assert await is_forbidden(other.put("topics/b", b"1", ABSENT))
        assert await is_forbidden(other.renew_lease(lease))
        assert await is_forbidden(other.acquire_lease("broker-1", "a", 1000))
        assert await own.put("topics/a", b"1") < await delete(own, "topics/a")
        mine = await own.acquire_lease("controller", "a", 1000)
        assert mine is not None
        await own.release_lease(await own.renew_lease(mine))
    finally:
        plane.kubectl("delete", "-f-", stdin=policy)
        async with asyncio.timeout(PATIENCE_S):
            while await is_forbidden(other.put("topics/a", b"3")):
                await asyncio.sleep(0.1)
        await own.close()
        await other.close()


async def is_forbidden(call: Awaitable[object]) -> bool:
    try:
        await call
    except StoreUnavailable as error:
        return " 403 " in str(error) and "must begin with demo-broker-1., " in str(error)
    return False

"""The Kubernetes store on a real API server, as a broker's service account: what every store does, and outages."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from breaking_proxy import breaking_proxy
from kubernetes_stores import access_at
from store_conformance import WAIT_S, ManualClock, OpenStore, StoreConformance, changes_until, next_changes

from barnabas_broker.metadata.documents import encode, tombstone_key, topic_key
from barnabas_broker.metadata.image import MetadataImage
from barnabas_broker.metadata.image_feed import ImageFeed, load
from barnabas_broker.metadata.kubernetes import store as store_module
from barnabas_broker.metadata.kubernetes.api import ApiRequests
from barnabas_broker.metadata.kubernetes.store import KubernetesStore
from barnabas_broker.metadata.location import KubernetesCluster
from barnabas_broker.metadata.model import PartitionState, TombstoneDocument, TopicDocument
from barnabas_broker.metadata.store import (
    ABSENT,
    HistoryCompacted,
    MetadataStore,
    StoreUnavailable,
    VersionConflict,
    Write,
)
from barnabas_kube.discovery import find_access
from e2e.control_plane import ControlPlane
from e2e.helm import template
from harness.deadline import wait_for

pytestmark = pytest.mark.anyio


@contextmanager
def frozen(plane: ControlPlane) -> Iterator[None]:
    """The API server neither answers nor ends its connections."""
    plane.daemons.send("kube-apiserver", signal.SIGSTOP)
    threads = Path(f"/proc/{plane.daemons.pid('kube-apiserver')}/task")
    try:
        wait_for(lambda: all(") T " in (each / "stat").read_text() for each in threads.iterdir()))
        yield
    finally:
        plane.daemons.send("kube-apiserver", signal.SIGCONT)


def id_of(name: str) -> UUID:
    return UUID(int=int.from_bytes(name.encode()))


async def a_topic(store: MetadataStore, name: str, leader: int = 0) -> int:
    partition = PartitionState(replicas=(0, 1, 2), leader=leader, leader_epoch=0, isr=(0, 1, 2))
    document = TopicDocument(name=name, topic_id=id_of(name), partitions=(partition, partition))
    return await store.put(topic_key(name), encode(document))


async def delete_topic(store: MetadataStore, name: str) -> None:
    topic_id = id_of(name)
    await store.put(tombstone_key(topic_id), encode(TombstoneDocument(name, topic_id, 0)))
    await store.delete(topic_key(name))


async def until_it_answers(store: MetadataStore) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                await store.listing("")
                return
            except StoreUnavailable:
                await asyncio.sleep(0.1)


class TestKubernetesStore(StoreConformance):
    async def test_people_see_leaders_and_replicas_in_sync(
        self, plane: ControlPlane, open_store: OpenStore, cluster: KubernetesCluster
    ) -> None:
        store = await open_store()
        await a_topic(store, "Flights.2013_raw")
        await store.put("cluster", b'{"cluster_id":"x"}')
        printed = plane.kubectl("get", "sdoc", "-l", f"barnabas.dev/cluster={cluster.cluster}", "--no-headers")
        columns = [line.split()[1:-1] for line in printed.splitlines()]
        assert columns == [["cluster"], ["topics/Flights.2013_raw", "InSync", "2", "0:2", "6/6"]]

    async def test_clusters_in_one_namespace_do_not_see_each_other(
        self, open_store: OpenStore, address: tuple[str, int], account: Path, clock: ManualClock
    ) -> None:
        mine = await open_store()
        theirs = KubernetesStore(KubernetesCluster("default", "another"), access_at(address, account), clock)
        begin = (await mine.listing("")).revision
        await theirs.put("cluster", b"1")
        await theirs.acquire_lease("controller", "a", 1000)
        assert await mine.get("cluster") is None
        assert await mine.leases("") == []
        assert await changes_until(mine, "", begin, await mine.latest_revision()) == []
        await theirs.close()

    async def test_what_the_api_server_does_not_take_is_no_conflict(self, open_store: OpenStore) -> None:
        store = await open_store()
        version = await store.put("k", b"1")
        with pytest.raises(StoreUnavailable, match="k: "):
            await store.put("k", b'"' + b"x" * 2_000_000 + b'"', version)
        with pytest.raises(StoreUnavailable):
            await store.put("k", b'"' + b"x" * 2_000_000 + b'"')

    async def test_a_lease_that_somebody_deletes_is_lost_and_its_token_does_not_come_again(
        self, plane: ControlPlane, open_store: OpenStore, cluster: KubernetesCluster
    ) -> None:
        store = await open_store()
        lease = await store.acquire_lease("broker-1", "a", 1000)
        assert lease is not None
        plane.kubectl("delete", "lease", f"{cluster.cluster}.broker-1")
        assert await store.leases("") == []
        again = await store.acquire_lease("broker-1", "a", 1000)
        assert again is not None
        assert again.token > lease.token

    async def test_who_starts_anew_in_a_pod_need_not_wait_for_the_lease_of_the_life_before(
        self, address: tuple[str, int], account: Path, cluster: KubernetesCluster, clock: ManualClock
    ) -> None:
        access = access_at(address, account)
        before, again, elsewhere, nowhere = (
            KubernetesStore(cluster, access, clock, pod_uid) for pod_uid in ("pod-a", "pod-a", "pod-b", "")
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

    async def test_a_copy_of_an_object_is_no_document(
        self, plane: ControlPlane, open_store: OpenStore, cluster: KubernetesCluster
    ) -> None:
        store = await open_store()
        await store.put("topics/a", b"1")
        begin = (await store.listing("")).revision
        found = json.loads(plane.kubectl("get", "sdoc", f"{cluster.cluster}.topics.a", "-o", "json"))
        found["metadata"] = {"name": "backup", "labels": found["metadata"]["labels"]}
        plane.kubectl("create", "-f", "-", stdin=json.dumps(found))
        assert len((await store.listing("")).documents) == 1
        assert await changes_until(store, "", begin, await store.latest_revision()) == []

    async def test_labels_and_owners_that_others_set_stay(
        self, plane: ControlPlane, open_store: OpenStore, cluster: KubernetesCluster
    ) -> None:
        store = await open_store()
        await store.put("topics/a", b"1")
        plane.kubectl("label", "sdoc", f"{cluster.cluster}.topics.a", "team=air")
        await store.put("topics/a", b"2")
        assert "team=air" in plane.kubectl("get", "sdoc", f"{cluster.cluster}.topics.a", "--show-labels")

    async def test_a_document_whose_label_is_taken_away_vanishes_and_can_be_written_anew(
        self, plane: ControlPlane, open_store: OpenStore, cluster: KubernetesCluster
    ) -> None:
        store = await open_store()
        begin = await store.put("topics/a", b"1")
        name = f"{cluster.cluster}.topics.a"
        for labels in ("barnabas.dev/cluster-", "team=air"):
            plane.kubectl("label", "sdoc", name, "barnabas.dev/cluster-", labels)
            assert (await store.listing("")).documents == []
            changes = await changes_until(store, "", begin, await store.latest_revision())
            assert changes[-1].value is None
            begin = await store.put("topics/a", b"2", ABSENT)
            assert [each.value for each in (await store.listing("")).documents] == [b"2"]
        assert "team=air" in plane.kubectl("get", "sdoc", name, "--show-labels")
        with pytest.raises(VersionConflict):
            await store.put("topics/a", b"3", ABSENT)

    async def test_twelve_changes_of_one_document_at_once_are_all_made(self, open_store: OpenStore) -> None:
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

    async def test_a_watch_from_before_what_is_kept_is_told_so(self, open_store: OpenStore) -> None:
        store = await open_store()
        for revision in (0, 1):
            with pytest.raises(HistoryCompacted):
                await next_changes(store, "", revision, 1)

    async def test_closing_ends_the_watches(self, open_store: OpenStore) -> None:
        store = await open_store()
        begin = (await store.listing("")).revision
        last = await store.put("k", b"1")
        watching = asyncio.create_task(next_changes(store, "", begin, 2))
        await changes_until(store, "", begin, last)
        await store.close()
        async with asyncio.timeout(WAIT_S):
            await watching
        with pytest.raises(StoreUnavailable, match="is closed"):
            await store.get("k")


class TestOutages:
    async def test_a_watch_whose_connection_breaks_goes_on_where_it_was(
        self, address: tuple[str, int], account: Path, open_store: OpenStore, cluster: KubernetesCluster
    ) -> None:
        writer = await open_store()
        begin = (await writer.listing("")).revision
        async with breaking_proxy(address) as proxy:
            store = KubernetesStore(cluster, access_at(("127.0.0.1", proxy.port), account), ManualClock())
            seen: list[bytes | None] = []
            revision = begin
            for number in range(40):
                last = await writer.put("k", b"%d" % number)
                if number % 4 == 0:
                    proxy.break_all()
                try:
                    async with asyncio.timeout(WAIT_S):
                        async for batch in store.watch("", revision):
                            seen += [change.value for change in batch.changes]
                            revision = batch.revision
                            if revision >= last:
                                break
                            if number % 4 == 1:
                                proxy.break_all()
                except StoreUnavailable:
                    continue
            assert seen == [b"%d" % number for number in range(len(seen))]
            assert proxy.connections_total > 5
            await store.close()

    async def test_a_watch_goes_on_when_the_server_ends_it(
        self, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "WATCH_S", 1)
        began: list[str] = []
        stream = ApiRequests.stream

        def counted(self: ApiRequests, path: str, query: Mapping[str, str]) -> AsyncIterator[list[bytes]]:
            began.append(query["resourceVersion"])
            return stream(self, path, query)

        monkeypatch.setattr(ApiRequests, "stream", counted)
        store, writer = await open_store(), await open_store()
        begin = (await store.listing("")).revision
        written = 0
        async with asyncio.timeout(WAIT_S):
            seen: list[bytes | None] = []
            watch = store.watch("", begin)
            while len(began) < 3:
                await writer.put("k", b"%d" % written)
                written += 1
                while len(seen) < written:
                    seen += [change.value for change in (await anext(watch)).changes]
        assert seen == [b"%d" % number for number in range(written)]

    async def test_an_image_follows_through_broken_connections(
        self, address: tuple[str, int], account: Path, open_store: OpenStore, cluster: KubernetesCluster
    ) -> None:
        writer = await open_store()
        async with breaking_proxy(address) as proxy:
            store = KubernetesStore(cluster, access_at(("127.0.0.1", proxy.port), account), ManualClock())
            image = MetadataImage()
            await load(image, store)
            following = asyncio.create_task(ImageFeed(image, store, lambda _: asyncio.sleep(0)).follow())
            for number in range(20):
                await image.reached(await a_topic(writer, f"t{number}"))
                proxy.break_all()
                await delete_topic(writer, f"t{number // 2}")
            async with asyncio.timeout(WAIT_S):
                await image.reached(await writer.latest_revision())
            assert sorted(image.topics) == sorted(f"t{number}" for number in range(10, 20))
            following.cancel()
            await store.close()

    async def test_a_frozen_api_server_is_noticed_and_nothing_is_lost(
        self, plane: ControlPlane, open_store: OpenStore, clock: ManualClock
    ) -> None:
        store, other = await open_store(), await open_store()
        begin = (await store.listing("")).revision
        lease = await store.acquire_lease("broker-1", "a", 1000)
        assert lease is not None
        assert await other.leases("") == [lease]
        with frozen(plane):
            calls = (store.get("k"), store.put("k", b"1", ABSENT), store.renew_lease(lease), store.leases(""))
            async with asyncio.timeout(WAIT_S):
                failures = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(failure) for failure in failures] == [StoreUnavailable] * 4
        assert all("no answer within" in str(failure) for failure in failures)
        await until_it_answers(store)
        clock.time_ms += 60_000
        renewed = await store.renew_lease(lease)
        assert await other.leases("") == [renewed], "who could not renew meanwhile goes on"
        last = await store.put("k", b"2")
        changes = await changes_until(other, "", begin, last)
        assert [change.value for change in changes] in ([b"2"], [b"1", b"2"]), "what timed out may be written or not"

    async def test_a_watch_of_a_frozen_api_server_ends_as_soon_as_a_call_times_out(
        self, plane: ControlPlane, open_store: OpenStore
    ) -> None:
        store = await open_store()
        begin = (await store.listing("")).revision
        last = await store.put("k", b"1")
        watch = store.watch("", begin)
        assert (await anext(watch)).revision == last
        with frozen(plane):
            waiting = asyncio.ensure_future(anext(watch))
            with pytest.raises(StoreUnavailable):
                await store.get("k")
            async with asyncio.timeout(WAIT_S):
                with pytest.raises(StoreUnavailable):
                    await waiting
        await until_it_answers(store)

    async def test_a_restarted_api_server_goes_on_with_what_it_had(
        self, plane: ControlPlane, open_store: OpenStore
    ) -> None:
        store = await open_store()
        image = MetadataImage()
        await a_topic(store, "before")
        await load(image, store)
        lease = await store.acquire_lease("broker-1", "a", 1000)
        assert lease is not None
        following = asyncio.create_task(ImageFeed(image, store, lambda _: asyncio.sleep(0.05)).follow())
        plane.stop_api_server()
        try:
            with pytest.raises(StoreUnavailable):
                await store.renew_lease(lease)
            assert list(image.topics) == ["before"]
        finally:
            plane.start_api_server()
            plane.await_ready()
        await until_it_answers(store)
        assert (await store.renew_lease(lease)).token == lease.token
        async with asyncio.timeout(WAIT_S):
            await image.reached(await a_topic(store, "after"))
        assert sorted(image.topics) == ["after", "before"]
        following.cancel()

    async def test_who_watched_an_etcd_that_was_put_back_lists_anew(self, open_store: OpenStore) -> None:
        """A watch from a revision that is still to come would be silent."""
        store = await open_store()
        begin = (await store.listing("")).revision
        with pytest.raises(HistoryCompacted, match="it was put back"):
            await anext(store.watch("", begin + 1_000_000))

    async def test_a_new_token_is_used_as_soon_as_it_is_there(
        self, address: tuple[str, int], account: Path, tmp_path: Path, cluster: KubernetesCluster
    ) -> None:
        (tmp_path / "ca.crt").write_text((account / "ca.crt").read_text())
        (tmp_path / "token").write_text("no longer valid")
        store = KubernetesStore(cluster, access_at(address, tmp_path), ManualClock())
        with pytest.raises(StoreUnavailable, match="401"):
            await store.listing("")
        (tmp_path / "token").unlink()
        with pytest.raises(StoreUnavailable, match=r"token: .*No such file"):
            await store.listing("")
        (tmp_path / "token").write_text((account / "token").read_text())
        assert (await store.listing("")).documents == []
        await store.close()

    async def test_an_account_without_rights_is_told_which(
        self, plane: ControlPlane, address: tuple[str, int], account: Path, tmp_path: Path, cluster: KubernetesCluster
    ) -> None:
        plane.kubectl("create", "serviceaccount", cluster.cluster)
        (tmp_path / "ca.crt").write_text((account / "ca.crt").read_text())
        (tmp_path / "token").write_text(plane.kubectl("create", "token", cluster.cluster))
        store = KubernetesStore(cluster, access_at(address, tmp_path), ManualClock())
        with pytest.raises(StoreUnavailable, match=r"403 .*cannot list resource .statedocuments"):
            await store.listing("")
        await store.close()

    async def test_a_missing_namespace_is_no_missing_document(
        self, address: tuple[str, int], account: Path, plane: ControlPlane
    ) -> None:
        admin = find_access({"KUBECONFIG": str(plane.kubeconfig)})
        store = KubernetesStore(KubernetesCluster("no-such-namespace", "demo"), admin, ManualClock())
        with pytest.raises(StoreUnavailable, match="no-such-namespace"):
            await store.put("k", b"1", ABSENT)
        with pytest.raises(StoreUnavailable, match="no-such-namespace"):
            await store.acquire_lease("controller", "a", 1000)
        await store.close()


async def test_the_policy_keeps_brokers_from_other_clusters_metadata(
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
        async with asyncio.timeout(WAIT_S):
            while not await is_forbidden(other.put("topics/a", b"2")):
                await asyncio.sleep(0.1)
        assert await is_forbidden(other.delete("topics/a"))
        assert await is_forbidden(other.put("topics/b", b"1", ABSENT))
        assert await is_forbidden(other.renew_lease(lease))
        assert await is_forbidden(other.acquire_lease("broker-1", "a", 1000))
        assert await own.put("topics/a", b"1") < await own.delete("topics/a")
        mine = await own.acquire_lease("controller", "a", 1000)
        assert mine is not None
        await own.release_lease(await own.renew_lease(mine))
    finally:
        plane.kubectl("delete", "-f-", stdin=policy)
        async with asyncio.timeout(WAIT_S):
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

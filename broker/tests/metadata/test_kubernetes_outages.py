"""The Kubernetes store while its API server is unavailable, slow or frozen, or has lost its history."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from breaking_proxy import breaking_proxy
from kubernetes_stores import access_at
from kubernetes_topics import a_topic, id_of
from store_conformance import OpenStore, changes_until, delete

from barnabas_broker.metadata.documents import encode, tombstone_key, topic_key
from barnabas_broker.metadata.image.image_feed import ImageFeed, load
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TombstoneDocument
from barnabas_broker.metadata.store.kubernetes import kubernetes_store as store_module
from barnabas_broker.metadata.store.kubernetes.kubernetes_store import KubernetesStore
from barnabas_broker.metadata.store.kubernetes.leases import ApiRequests
from barnabas_broker.metadata.store.metadata_store import (
    ABSENT,
    HistoryCompacted,
    KubernetesCluster,
    MetadataStore,
    StoreUnavailable,
)
from barnabas_kube.discovery import find_access
from harness.deadline import PATIENCE_S, wait_for
from harness.manual_clock import ManualClock
from local_kubernetes.control_plane import ControlPlane


@contextmanager
def frozen(plane: ControlPlane) -> Iterator[None]:
    """Freeze the API server: it neither responds nor closes its connections."""
    plane.daemons.send("kube-apiserver", signal.SIGSTOP)
    threads = Path(f"/proc/{plane.daemons.pid('kube-apiserver')}/task")
    try:
        wait_for(lambda: all(") T " in (each / "stat").read_text() for each in threads.iterdir()))
        yield
    finally:
        plane.daemons.send("kube-apiserver", signal.SIGCONT)


async def delete_topic(store: MetadataStore, name: str) -> None:
    topic_id = id_of(name)
    await store.put(tombstone_key(topic_id), encode(TombstoneDocument(name, topic_id, 0)))
    await delete(store, topic_key(name))


async def until_it_answers(store: MetadataStore) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await store.listing()
                return
            except StoreUnavailable:
                await asyncio.sleep(0.1)


class TestOutages:
    async def test_a_watch_resumes_at_its_revision_after_its_connection_broke(
        self, address: tuple[str, int], account: Path, open_store: OpenStore, location: KubernetesCluster
    ) -> None:
        writer = await open_store()
        begin = (await writer.listing()).revision
        async with breaking_proxy(address) as proxy:
            store = KubernetesStore(location, access_at(("127.0.0.1", proxy.port), account), ManualClock())
            seen: list[bytes | None] = []
            revision = begin
            for number in range(40):
                last = await writer.put("k", b"%d" % number)
                if number % 4 == 0:
                    proxy.break_all()
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        async for batch in store.watch(revision):
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

    async def test_a_watch_continues_when_the_server_ends_its_stream(
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
        begin = (await store.listing()).revision
        written = 0
        async with asyncio.timeout(PATIENCE_S):
            seen: list[bytes | None] = []
            watch = store.watch(begin)
            while len(began) < 3:
                await writer.put("k", b"%d" % written)
                written += 1
                while len(seen) < written:
                    seen += [change.value for change in (await anext(watch)).changes]
        assert seen == [b"%d" % number for number in range(written)]

    async def test_an_image_follows_the_store_despite_broken_connections(
        self, address: tuple[str, int], account: Path, open_store: OpenStore, location: KubernetesCluster
    ) -> None:
        writer = await open_store()
        async with breaking_proxy(address) as proxy:
            store = KubernetesStore(location, access_at(("127.0.0.1", proxy.port), account), ManualClock())
            image = MetadataImage()
            await load(image, store)
            following = asyncio.create_task(ImageFeed(image, store, lambda _: asyncio.sleep(0)).follow())
            for number in range(20):
                await image.reached(await a_topic(writer, f"t{number}"))
                proxy.break_all()
                await delete_topic(writer, f"t{number // 2}")
            async with asyncio.timeout(PATIENCE_S):
                await image.reached(await writer.latest_revision())
            assert sorted(image.topics) == sorted(f"t{number}" for number in range(10, 20))
            following.cancel()
            await store.close()

    async def test_calls_to_a_frozen_api_server_time_out_and_no_change_is_lost(
        self, plane: ControlPlane, open_store: OpenStore, clock: ManualClock
    ) -> None:
        store, other = await open_store(), await open_store()
        begin = (await store.listing()).revision
        lease = await store.acquire_lease("broker-1", "a", 1000)
        assert lease is not None
        assert await other.leases("") == [lease]
        with frozen(plane):
            calls = (store.get("k"), store.put("k", b"1", ABSENT), store.renew_lease(lease), store.leases(""))
            async with asyncio.timeout(PATIENCE_S):
                failures = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(failure) for failure in failures] == [StoreUnavailable] * 4
        assert all("no answer within" in str(failure) for failure in failures)
        await until_it_answers(store)
        clock.passed_ms += 60_000
        renewed = await store.renew_lease(lease)
        assert await other.leases("") == [renewed], "a holder can renew its lease after the outage"
        last = await store.put("k", b"2")
        changes = await changes_until(other, begin, last)
        assert [change.value for change in changes] in ([b"2"], [b"1", b"2"]), "the put that timed out may be stored"

    async def test_a_watch_of_a_frozen_api_server_ends_as_soon_as_a_call_times_out(
        self, plane: ControlPlane, open_store: OpenStore
    ) -> None:
        store = await open_store()
        begin = (await store.listing()).revision
        last = await store.put("k", b"1")
        watch = store.watch(begin)
        assert (await anext(watch)).revision == last
        with frozen(plane):
            waiting = asyncio.ensure_future(anext(watch))
            with pytest.raises(StoreUnavailable):
                await store.get("k")
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(StoreUnavailable):
                    await waiting
        await until_it_answers(store)

    async def test_leases_and_watches_continue_after_a_restart_of_the_api_server(
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
        async with asyncio.timeout(PATIENCE_S):
            await image.reached(await a_topic(store, "after"))
        assert sorted(image.topics) == ["after", "before"]
        following.cancel()

    async def test_a_watch_of_a_restored_older_etcd_raises_history_compacted(self, open_store: OpenStore) -> None:
        """A watch from a future revision would be silent."""
        store = await open_store()
        begin = (await store.listing()).revision
        with pytest.raises(HistoryCompacted, match="older data was restored"):
            await anext(store.watch(begin + 1_000_000))

    async def test_a_new_token_is_used_immediately(
        self, address: tuple[str, int], account: Path, tmp_path: Path, location: KubernetesCluster
    ) -> None:
        (tmp_path / "ca.crt").write_text((account / "ca.crt").read_text())
        (tmp_path / "token").write_text("no longer valid")
        store = KubernetesStore(location, access_at(address, tmp_path), ManualClock())
        with pytest.raises(StoreUnavailable, match="401"):
            await store.listing()
        (tmp_path / "token").unlink()
        with pytest.raises(StoreUnavailable, match=r"token: .*No such file"):
            await store.listing()
        (tmp_path / "token").write_text((account / "token").read_text())
        assert (await store.listing()).documents == []
        await store.close()

    async def test_the_error_for_an_account_without_rights_names_the_missing_right(
        self, plane: ControlPlane, address: tuple[str, int], account: Path, tmp_path: Path, location: KubernetesCluster
    ) -> None:
        plane.kubectl("create", "serviceaccount", location.cluster)
        (tmp_path / "ca.crt").write_text((account / "ca.crt").read_text())
        (tmp_path / "token").write_text(plane.kubectl("create", "token", location.cluster))
        store = KubernetesStore(location, access_at(address, tmp_path), ManualClock())
        with pytest.raises(StoreUnavailable, match=r"403 .*cannot list resource .statedocuments"):
            await store.listing()
        await store.close()

    async def test_a_missing_namespace_is_not_treated_as_a_missing_document(
        self, address: tuple[str, int], account: Path, plane: ControlPlane
    ) -> None:
        admin = find_access({"KUBECONFIG": str(plane.kubeconfig)})
        store = KubernetesStore(KubernetesCluster("no-such-namespace", "demo"), admin, ManualClock())
        with pytest.raises(StoreUnavailable, match="no-such-namespace"):
            await store.put("k", b"1", ABSENT)
        with pytest.raises(StoreUnavailable, match="no-such-namespace"):
            await store.acquire_lease("controller", "a", 1000)
        await store.close()

"""The watch on a real API server that refuses for longer than kopf tries by itself: it goes on afterwards."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import kopf
import pytest

from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.watch import kopf_registry as watch
from e2e.operators.refusing_proxy import RefusingProxy
from e2e.world import SECONDS_MAX, World, acts, world_of_one
from harness.deadline import wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane

CRDS = Path(__file__).resolve().parents[3] / "crds"
WAIT_S = 60.0
TRIES_OF_KOPF = 9
SOON_S = 0.02


class SoonClock(SystemClock):
    """Nobody sleeps for long."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, SOON_S))


class Heard:
    """In the place of workers: what the watch tells."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.failed: list[str] = []

    def resource_event(self, body: Mapping[str, Any], *, is_gone: bool) -> None:
        if not is_gone:
            self.names.add(body["metadata"]["name"])

    def object_event(self, body: Mapping[str, Any], *, is_gone: bool) -> None:
        """Nothing of them here."""


async def kopf_telling(heard: Heard, namespace: str, ending: asyncio.Event) -> None:
    """Watches as the operator does, until it is to end."""

    async def start() -> ClusterWorkers:
        return cast(ClusterWorkers, heard)

    async def stop() -> None:
        """There is nothing to end."""

    registry = watch.make_registry(start, stop, heard.failed.append, SoonClock())
    await kopf.operator(registry=registry, standalone=True, namespaces=[namespace], stop_flag=ending)


def manifest(name: str) -> str:
    topic = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": {"name": name}, "spec": {}}
    return json.dumps(topic)


def test_a_watch_that_was_refused_for_long_tells_what_changes_afterwards(
    api_server: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl, namespace, heard = api_server.kubectl, "refused-for-long", Heard()
    kubectl("apply", *(f"-f{file}" for file in sorted(CRDS.glob("*.yaml"))))
    wait_for(lambda: kubectl.ask("get", "topics,clusters").returncode == 0)
    kubectl("create", "namespace", namespace)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(watch, "BACKOFFS", watch.Backoffs((SOON_S,), SOON_S))
    watched = f"/apis/barnabas.dev/v1alpha1/namespaces/{namespace}/topics"

    async def until_heard(name: str) -> None:
        await asyncio.to_thread(kubectl, "-n", namespace, "apply", "-f-", stdin=manifest(name))
        async with asyncio.timeout(WAIT_S):
            while name not in heard.names:
                await asyncio.sleep(SOON_S)

    async def scenario() -> None:
        proxy, ending = RefusingProxy(api_server), asyncio.Event()
        async with proxy.running(tmp_path / "kubeconfig"):
            running = asyncio.create_task(kopf_telling(heard, namespace, ending))
            await until_heard("before")
            proxy.refuse(503)
            async with asyncio.timeout(WAIT_S):
                while proxy.refused[watched] <= 2 * TRIES_OF_KOPF:
                    await asyncio.sleep(SOON_S)
            proxy.open()
            await until_heard("after")
            ending.set()
            await running

    asyncio.run(scenario())


def paths_of(namespace: str) -> Iterator[str]:
    """Where what Clusters own is listed and watched."""
    for group, version, plural in watch.OBJECTS:
        root = f"apis/{group}" if group else "api"
        yield f"/{root}/{version}/namespaces/{namespace}/{plural}"


def test_of_what_clusters_own_the_api_server_is_asked_for_those_alone_that_carry_their_label(
    defined_api_server: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each Pod of everybody would be sent, and be dropped here."""
    namespace, ending = f"asked-{uuid4().hex[:8]}", asyncio.Event()
    defined_api_server.kubectl("create", "namespace", namespace)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    async def scenario() -> RefusingProxy:
        proxy = RefusingProxy(defined_api_server)
        async with proxy.running(tmp_path / "kubeconfig"):
            running = asyncio.create_task(kopf_telling(Heard(), namespace, ending))
            async with asyncio.timeout(WAIT_S):
                while not all(any("watch" in each for each in proxy.asked[path]) for path in paths_of(namespace)):
                    await asyncio.sleep(SOON_S)
            ending.set()
            await running
        return proxy

    proxy = asyncio.run(scenario())
    for path in paths_of(namespace):
        assert {each.get("labelSelector") for each in proxy.asked[path]} == {CLUSTER_LABEL}, path


@pytest.fixture
def world(defined_api_server: ControlPlane, broker: ServerProcess, tmp_path: Path) -> Iterator[World]:
    namespace = f"refused-{os.getpid()}-{uuid4().hex[:8]}"
    with world_of_one(defined_api_server, namespace, broker, tmp_path) as found:
        yield found


@pytest.mark.slow
def test_an_operator_whose_watch_finds_no_definition_begins_anew_and_acts(world: World, tmp_path: Path) -> None:
    """A definition that goes ends the watches of it: kopf may ask again before it has heard of that, and ends."""
    watched = f"/apis/barnabas.dev/v1alpha1/namespaces/{world.namespace}/clusters"
    kubeconfig = tmp_path / "kubeconfig"

    async def scenario() -> None:
        proxy = RefusingProxy(world.plane)
        async with proxy.running(kubeconfig):
            operator = await asyncio.to_thread(world.operator, KUBECONFIG=str(kubeconfig))
            try:
                await asyncio.to_thread(wait_for, lambda: acts(operator), seconds_max=SECONDS_MAX)
                proxy.refuse(404)
                async with asyncio.timeout(WAIT_S):
                    while not proxy.refused[watched]:
                        await asyncio.sleep(SOON_S)
                proxy.open()
                world.apply("after", partitions=1)
                await asyncio.to_thread(world.await_ready, "after")
            finally:
                await asyncio.to_thread(operator.close)

    asyncio.run(scenario())

"""Watches on a real API server that refuses requests for a while: they resume, and ask only for what they need."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from barnabas_kube.client import ApiClient
from barnabas_kube.kubeconfig import read_kubeconfig
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kube.api import KubeApi, path_of
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.watch import OWNED, watch_all
from e2e.operators.refusing_proxy import RefusingProxy
from harness.deadline import PATIENCE_S
from local_kubernetes.control_plane import ControlPlane

SOON_S = 0.02
TRIES = 3


class Heard:
    """A stand-in for workers: the names of Topics that exist according to the watch."""

    def __init__(self) -> None:
        self.topics: set[str] = set()

    def resource_event(self, body: Mapping[str, Any], *, is_gone: bool) -> None:
        (self.topics.discard if is_gone else self.topics.add)(body["metadata"]["name"])

    def object_event(self, body: Mapping[str, Any], *, is_gone: bool) -> None:
        """Ignore events of owned objects."""

    def begin(self, namespace: str | None) -> None:
        """Ignore the begin of a namespace."""

    async def until_there_are(self, *names: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.topics != set(names):
                await asyncio.sleep(SOON_S)


@asynccontextmanager
async def watched(plane: ControlPlane, namespace: str, kubeconfig: Path) -> AsyncIterator[tuple[RefusingProxy, Heard]]:
    """Watch a namespace through a proxy."""
    proxy, heard = RefusingProxy(plane), Heard()
    async with proxy.running(kubeconfig), ApiClient(read_kubeconfig(kubeconfig), "tests") as client:
        workers = cast(ClusterWorkers, heard)
        watching = watch_all(KubeApi(client), (namespace,), workers, pytest.fail, SystemClock())
        running = asyncio.create_task(watching)
        yield proxy, heard
        assert not running.done()
        running.cancel()


@pytest.fixture
def namespace(defined_api_server: ControlPlane) -> Iterator[str]:
    name = f"refused-{uuid4().hex[:8]}"
    defined_api_server.kubectl("create", "namespace", name)
    yield name
    defined_api_server.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize(
    "status", [503, 401, *(pytest.param(each, marks=pytest.mark.soak(only=True)) for each in (404, 403))]
)
async def test_a_refused_watch_resumes_and_sees_the_changes_made_meanwhile(
    status: int, defined_api_server: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    kubectl, topics = defined_api_server.kubectl, path_of("Topic", namespace)

    async def apply(name: str) -> None:
        topic = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Topic", "metadata": {"name": name}, "spec": {}}
        await asyncio.to_thread(kubectl, "-n", namespace, "apply", "-f-", stdin=json.dumps(topic))

    async with watched(defined_api_server, namespace, tmp_path / "kubeconfig") as (proxy, heard):
        await apply("before")
        await heard.until_there_are("before")
        proxy.refuse(status)
        async with asyncio.timeout(PATIENCE_S):
            while proxy.refused[topics] < TRIES:
                await asyncio.sleep(SOON_S)
        await asyncio.to_thread(kubectl, "-n", namespace, "delete", "topic", "before")
        await apply("after")
        proxy.open()
        await heard.until_there_are("after")


async def test_owned_objects_are_listed_and_watched_by_the_cluster_label_only(
    defined_api_server: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Without the label the API server would send the objects of all other projects, too."""
    paths = [path_of(kind, namespace) for kind in OWNED]
    async with watched(defined_api_server, namespace, tmp_path / "kubeconfig") as (proxy, _):
        async with asyncio.timeout(PATIENCE_S):
            while not all(any("watch" in each for each in proxy.asked[path]) for path in paths):
                await asyncio.sleep(SOON_S)
    for path in paths:
        assert {each.get("labelSelector") for each in proxy.asked[path]} == {CLUSTER_LABEL}, path

"""A Cluster's worker over an API server and brokers in a few dicts: `here` is a fixture, for a conftest.py."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from barnabas_core.clock import LoopClock
from barnabas_kafka.security import IN_CLEAR
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.gather import REVISION
from barnabas_operator.leader_election import ALONE, NO_OUTAGES, ApiOutages, Leadership
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.reconcile.cluster_worker import ClusterWorker
from barnabas_operator.reconcile.worker_environment import (
    FINALIZER,
    Bodies,
    Connect,
    OperatorSettings,
    ReconcilerEnvironment,
    StatusWriter,
    WorkerEnvironment,
)
from barnabas_operator.resources.cluster_kind import CLUSTER, KINDS
from barnabas_operator.resources.kind import JsonObject, Key
from harness.brokers_memory import BrokersMemory
from harness.deadline import PATIENCE_S
from harness.kube_memory import KubeMemory, no_server

KEY = Key("air", "one")
SETTINGS = OperatorSettings("broker:dev", (), "brokers", batch_s=0.0, busy_s=60.0, drift_s=60.0)


def resource(kind: str, name: str, *, goes: bool = False, held: bool = False, **spec: object) -> JsonObject:
    """A resource; a Cluster is open unless it says otherwise."""
    if kind == CLUSTER.name:
        spec = {"insecure": True, **spec}
    meta: JsonObject = {"name": name, "namespace": "air", "finalizers": [FINALIZER] if held else []}
    if goes:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def topic(name: str, *, goes: bool = False, **spec: object) -> JsonObject:
    """Return a Topic; with `goes` it is being deleted, and a finalizer holds it."""
    return resource("Topic", name, goes=goes, held=goes, **{"cluster": "one", "partitions": 1, **spec})


def environment_of(
    api: KubeApi,
    connect: Callable[..., object] | None = None,
    settings: OperatorSettings = SETTINGS,
    clock: LoopClock | None = None,
    leadership: Leadership = ALONE,
    outages: ApiOutages = NO_OUTAGES,
) -> WorkerEnvironment:
    """Return an environment with one broker, unless `connect` returns others, such as a BrokersMemory."""
    brokers = cast(Connect, connect or BrokersMemory())
    return WorkerEnvironment(
        api, settings, clock or SystemClock(), brokers, lambda _: IN_CLEAR, lambda: "a" * 32, leadership, outages
    )


def looking(
    api: KubeMemory,
    settings: OperatorSettings,
    clock: LoopClock,
    found: Callable[[str], Bodies] | None = None,
) -> ReconcilerEnvironment:
    """Return the environment of a worker for one kind, whose operator leads for ever; it has no brokers."""
    leadership = Leadership(clock.monotonic_s)
    leadership.renewed(math.inf)
    environment = environment_of(api, settings=settings, clock=clock, leadership=leadership)
    statuses = StatusWriter(api, clock)
    return ReconcilerEnvironment(
        KEY, environment, statuses, lambda _: pytest.fail("asks brokers"), found or api.by_name
    )


class World:
    """One Cluster's worker with its clock, API server and brokers."""

    def __init__(self, api: KubeMemory, brokers: BrokersMemory, settings: OperatorSettings = SETTINGS) -> None:
        self.api, self.brokers = api, brokers
        self._inventory = Inventory()
        self._ended: asyncio.Queue[bool] = asyncio.Queue()
        environment = environment_of(api, brokers, settings)
        self.worker = ClusterWorker(
            KEY, self._inventory, environment, lambda _, is_good: self._ended.put_nowait(is_good)
        )

    async def round(self) -> bool:
        """Run a round over everything; return whether it ended well."""
        for each in list(self._inventory.bodies()):
            self._inventory.keep(each, is_gone=True)
        for each in list(self.api.objects.values()):
            if each["kind"] in KINDS:
                self._inventory.keep(each, is_gone=False)
        self.worker.wake()
        return await self.next()

    async def next(self) -> bool:
        """Wait for the next round, whatever starts it; return whether it ended well."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._ended.get()

    def kubernetes_saw(self, revision: str) -> None:
        """Play Kubernetes: its controller has seen the StatefulSet, and makes pods of this revision."""
        made = self.api.found("StatefulSet", "one-broker") or {}
        self.api.put({**made, "status": {"observedGeneration": 1, "updateRevision": revision}})

    def conditions(self, kind: str, name: str) -> list[str]:
        """Return the types of all conditions."""
        return [each["type"] for each in (self.api.found(kind, name) or {}).get("status", {}).get("conditions", ())]

    def said(self, kind: str, name: str, about: str = "Ready") -> tuple[str, str, str]:
        """Return status, reason and message of a condition."""
        found = self.api.found(kind, name)
        assert found is not None, f"{kind} {name} is gone"
        (told,) = (each for each in found.get("status", {}).get("conditions", ()) if each["type"] == about)
        return told["status"], told["reason"], told.get("message", "")


@asynccontextmanager
async def worker_world(settings: OperatorSettings = SETTINGS) -> AsyncIterator[World]:
    """Run a worker that has ended its first round."""
    brokers = BrokersMemory()
    async with no_server() as connection:
        found = World(KubeMemory(connection), brokers, settings)
        found.api.objects["/api/v1/namespaces/air"] = {"kind": "Namespace", "metadata": {"name": "air"}}
        running = asyncio.create_task(found.worker.run())
        await found.round()
        yield found
        running.cancel()


@pytest.fixture
async def here(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Run a worker that has ended its first round; its parameter may be other settings."""
    async with worker_world(getattr(request, "param", SETTINGS)) as found:
        yield found


def refuses(part: str, error: Exception) -> Callable[[str, str, object], Exception | None]:
    """Return a function that refuses each write to such a path."""
    return lambda method, path, _: error if part in path and method != "GET" else None


def of_broker(number: int) -> JsonObject:
    """Return the ready pod of a broker, as a StatefulSet makes it."""
    labels = {"app.kubernetes.io/name": "barnabas-broker", CLUSTER_LABEL: "one", REVISION: "new"}
    claim = {"persistentVolumeClaim": {"claimName": f"volume-0-one-broker-{number}"}}
    return {
        "kind": "Pod",
        "metadata": {"name": f"one-broker-{number}", "labels": labels},
        "spec": {"volumes": [{"name": "volume-0", **claim}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def claim_of(volume: int, broker_id: int, *, size: str = "10Gi", **labels: str) -> JsonObject:
    """Return a claim as a StatefulSet makes it. `labels` are further ones of barnabas.dev."""
    named = {CLUSTER_LABEL: "one", **{f"barnabas.dev/{name}": value for name, value in labels.items()}}
    meta = {"name": f"volume-{volume}-one-broker-{broker_id}", "labels": named}
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": {"resources": {"requests": {"storage": size}}, "volumeName": "its-disk"},
    }

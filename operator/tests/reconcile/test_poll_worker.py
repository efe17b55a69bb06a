"""Workers of single kinds, and the guarantees on which the rounds of their Cluster rely."""

import asyncio
from typing import Any

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.kube.api import KubeUnreachable
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.object_names import driver_name
from barnabas_operator.reconcile.cluster_worker import RECONCILERS
from barnabas_operator.reconcile.groups.group_poller import GroupPoller
from barnabas_operator.reconcile.reconcile_parts import PollWorker
from barnabas_operator.reconcile.worker_environment import FINALIZER, Seen
from barnabas_operator.resources.kind import JsonObject
from harness.deadline import PATIENCE_S
from harness.group_worker_world import LooksMemory
from harness.kube_memory import KubeMemory
from harness.maintenance_world import ARCHIVE, CLUSTER, KIND, SETTINGS, VOLUMES
from harness.manual_loop_clock import ManualLoopClock
from harness.worker_world import looking, resource

NOTHING_SEEN = Seen(ClusterState({}, {}), {}, ())


class SlowKube(KubeMemory):
    """An API server that delays requests which create a Job or are about the ConsumerGroup `slow`."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.is_asked, self.may_pass = asyncio.Event(), asyncio.Event()

    async def request(self, method: str, path: str, **given: Any) -> JsonObject:
        if (method == "POST" and path.endswith("/jobs")) or path.endswith("/consumergroups/slow"):
            self.is_asked.set()
            await self.may_pass.wait()
        return await super().request(method, path, **given)


async def test_a_released_resource_keeps_no_finalizer_from_a_look_in_progress(connection: ApiClient) -> None:
    api = SlowKube(connection)
    api.put(resource(KIND, "a", cluster="one", job="archive", options=ARCHIVE, volumes=VOLUMES))
    environment = looking(api, SETTINGS, ManualLoopClock())
    reconciler = RECONCILERS[KIND](environment)
    await reconciler.reconcile(CLUSTER, environment.found(KIND), NOTHING_SEEN)
    async with asyncio.timeout(PATIENCE_S):
        await api.is_asked.wait()
    releasing = asyncio.create_task(reconciler.release(environment.found(KIND)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not releasing.done(), "the current look may still write"
    api.may_pass.set()
    async with asyncio.timeout(PATIENCE_S):
        await releasing
    assert api.found("Job", driver_name("a")) is not None
    await reconciler.release(environment.found(KIND))  # What the look has changed wakes the next round.
    reconciler.close()
    assert FINALIZER not in (api.found(KIND, "a") or {})["metadata"]["finalizers"]


async def test_a_failed_look_at_groups_leaves_no_request_in_progress(connection: ApiClient) -> None:
    api = SlowKube(connection)
    for name in ("slow", "unheard"):
        api.put(resource("ConsumerGroup", name, goes=True, held=True, cluster="one", deletionPolicy="Retain"))
    api.refuse = lambda _, path, __: KubeUnreachable("away") if path.endswith("/unheard") else None
    environment = looking(api, SETTINGS, ManualLoopClock())
    worker = PollWorker(environment, GroupPoller(environment, LooksMemory()))
    worker.rest(environment.found("ConsumerGroup"), "the Cluster is paused")
    running = asyncio.create_task(worker.poll())
    async with asyncio.timeout(PATIENCE_S):
        await api.is_asked.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not running.done(), "its requests would go on after the worker has stopped"
    api.may_pass.set()
    with pytest.raises(KubeUnreachable):
        await running
    assert api.found("ConsumerGroup", "slow") is None

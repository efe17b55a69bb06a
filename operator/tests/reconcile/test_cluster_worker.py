"""A Cluster's worker, without a Cluster."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.reconcile.cluster_worker import BATCH_S_MAX, ClusterWorker
from barnabas_operator.reconcile.cluster_workers import IDLE_S_MAX, ClusterWorkers
from barnabas_operator.reconcile.reconcile_parts import RETRY_S_MAX, retry_pause_s
from barnabas_operator.reconcile.worker_environment import OperatorSettings
from harness.deadline import PATIENCE_S
from harness.kube_memory import KubeMemory
from harness.manual_loop_clock import HurriedClock, ManualLoopClock
from harness.worker_world import KEY, environment_of, resource

SETTINGS = OperatorSettings("broker:dev", (), "", batch_s=0.0, busy_s=0.0, drift_s=60.0)


@pytest.mark.parametrize("turns", range(5))
async def test_a_worker_that_is_cancelled_right_after_it_is_woken_ends(turns: int) -> None:
    rounds: asyncio.Queue[bool] = asyncio.Queue()
    environment = environment_of(cast(KubeApi, None), settings=SETTINGS)
    worker = ClusterWorker(KEY, Inventory(), environment, lambda _took, is_done: rounds.put_nowait(is_done))
    running = asyncio.create_task(worker.run())
    await rounds.get()
    await asyncio.sleep(0)  # The worker waits for the next change.
    worker.wake()
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running], timeout=PATIENCE_S)
    assert running.cancelled()


@pytest.mark.parametrize(("failures", "pause_s"), [(1, 1.0), (2, 2.0), (7, RETRY_S_MAX), (100_000, RETRY_S_MAX)])
def test_a_failed_round_is_retried_after_growing_pauses(failures: int, pause_s: float) -> None:
    assert retry_pause_s(0.5, failures) == pause_s


class HangingApi(KubeMemory):
    """An API server that never answers."""

    def __init__(self, connection: ApiClient) -> None:
        super().__init__(connection)
        self.hangs = asyncio.Event()

    async def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.hangs.set()
        await asyncio.Event().wait()
        raise AssertionError("it never answers")


async def test_a_hanging_round_is_reported(connection: ApiClient) -> None:
    api, clock, inventory = HangingApi(connection), ManualLoopClock(), Inventory()
    workers = ClusterWorkers(inventory, environment_of(api, clock=clock), OperatorMetrics(inventory))
    workers.resource_event(KubeMemory(connection).put(resource("Cluster", "one")), is_gone=False)
    workers.begin(KEY.namespace)
    await api.hangs.wait()
    was_dead = workers.why_dead is not None
    assert not was_dead
    clock.pass_time(IDLE_S_MAX + 1)
    idle = "made no progress in its reconciliation for 601 s, longer than 600 s"
    assert workers.why_dead == f"the worker of the Cluster air/one has {idle}"
    await workers.close()
    assert workers.why_dead == "the worker of the Cluster air/one has ended"


async def test_changes_in_quick_succession_are_one_round_after_at_most_two_seconds() -> None:
    began_at: list[float] = []
    clock = HurriedClock()

    def began(took_s: float, _is_good: bool) -> None:
        began_at.append(clock.monotonic_s() - took_s)
        worker.wake()

    settings = replace(SETTINGS, batch_s=0.5)
    worker = ClusterWorker(KEY, Inventory(), environment_of(cast(KubeApi, None), None, settings, clock), began)
    running = asyncio.create_task(worker.run())
    while len(began_at) < 2:
        worker.wake()
        await asyncio.sleep(0)
    assert began_at[1] - began_at[0] == BATCH_S_MAX
    running.cancel()

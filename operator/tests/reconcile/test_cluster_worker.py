"""A Cluster's worker, without a Cluster."""

import asyncio
from typing import cast

import pytest

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.reconcile.cluster_worker import ClusterWorker
from barnabas_operator.reconcile.cluster_workers import IDLE_S_MAX, ClusterWorkers
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.reconcile.reconcile_parts import RETRY_S_MAX, retry_pause_s
from barnabas_operator.resources.object_key import Key

WAIT_S = 10.0
SETTINGS = OperatorSettings("broker:dev", (), "", batch_s=0.0, busy_s=0.0, drift_s=60.0)


@pytest.mark.parametrize("turns", range(5))
def test_a_worker_that_is_ended_just_as_it_is_woken_ends(turns: int) -> None:
    async def scenario() -> None:
        rounds: asyncio.Queue[bool] = asyncio.Queue()
        no_api = cast(KubeApi, None)
        worker = ClusterWorker(
            Key("here", "one"), Inventory(), no_api, SETTINGS, lambda _took, is_done: rounds.put_nowait(is_done)
        )
        running = asyncio.create_task(worker.run())
        await rounds.get()
        await asyncio.sleep(0)  # It waits for the next thing to do.
        worker.wake()
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=WAIT_S)
        assert running.cancelled()

    asyncio.run(scenario())


@pytest.mark.parametrize(("failures", "pause_s"), [(1, 1.0), (2, 2.0), (7, RETRY_S_MAX), (100_000, RETRY_S_MAX)])
def test_a_round_that_fails_is_tried_again_at_ever_longer_intervals(failures: int, pause_s: float) -> None:
    assert retry_pause_s(0.5, failures) == pause_s


class Clock:
    """An event loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time, self.ahead_s = loop.time, 0.0

    def __call__(self) -> float:
        return self._time() + self.ahead_s


def test_a_round_that_hangs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"kind": "Cluster", "metadata": {"namespace": "here", "name": "one"}}

    async def scenario() -> None:
        loop, hangs = asyncio.get_running_loop(), asyncio.Event()

        async def hang(_worker: ClusterWorker) -> float:
            hangs.set()
            await asyncio.Event().wait()
            return 0.0

        clock = Clock(loop)
        monkeypatch.setattr(ClusterWorker, "_round", hang)
        monkeypatch.setattr(loop, "time", clock)
        inventory = Inventory()
        workers = ClusterWorkers(inventory, cast(KubeApi, None), SETTINGS, OperatorMetrics(inventory))
        workers.resource_event(body, is_gone=False)
        workers.begin("here")
        await hangs.wait()
        was_dead = workers.why_dead is not None
        assert not was_dead
        clock.ahead_s = IDLE_S_MAX + 1
        assert (
            workers.why_dead
            == "the worker of the Cluster here/one has done nothing in its round for 601 s; allowed: 600 s"
        )
        await workers.close()
        assert workers.why_dead == "the worker of the Cluster here/one has ended"

    asyncio.run(scenario())

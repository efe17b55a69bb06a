"""What is there when the operator starts is taken in, whatever goes wrong at the first try."""

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.watch.first_lists import take_in
from harness.kube_memory import KubeMemory, no_server
from harness.manual_loop_clock import HurriedClock
from harness.worker_world import KEY, environment_of, resource


@pytest.mark.parametrize(
    "error",
    [KubeUnreachable("away"), KubeRefused(403, "Forbidden", "not yet"), ValueError("no JSON, but a proxy's page")],
)
def test_the_first_list_is_asked_for_again_until_it_is_there(error: Exception) -> None:
    async def scenario() -> None:
        async with no_server() as connection:
            api, inventory, asked = KubeMemory(connection), Inventory(), count()

            def refuse(method: str, path: str, _body: Mapping[str, Any]) -> Exception | None:
                return error if path.endswith("/clusters") and next(asked) == 0 else None

            api.put(resource("Cluster", "one", pause=True))
            api.refuse = refuse
            workers = ClusterWorkers(inventory, environment_of(api), OperatorMetrics(inventory))
            await take_in(api, KEY.namespace, workers, (1.0, 1.0), HurriedClock())
            assert KEY in inventory.clusters
            await workers.close()

    asyncio.run(scenario())

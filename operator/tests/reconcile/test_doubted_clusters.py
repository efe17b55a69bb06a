"""Another Cluster has the name of the one that is known, and the watch does not tell: etcd was put back."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.kube.api_resources import path_of
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.resources.json_types import JsonObject
from harness.brokers_memory import BrokersMemory
from harness.kube_memory import KubeMemory, no_server
from harness.worker_world import KEY, WAIT_S, environment_of, resource

PATH = path_of("Cluster", KEY.namespace, KEY.name)


class Place:
    """An operator, and an API server in which a Cluster may be another one than it knows."""

    def __init__(self, api: KubeMemory) -> None:
        self.api = api
        self.inventory = Inventory()
        self.workers = ClusterWorkers(
            self.inventory, environment_of(api, BrokersMemory()), OperatorMetrics(self.inventory)
        )
        self.workers.resource_event(api.put(self.cluster("later", "2026-02-02T00:00:00Z")), is_gone=False)
        self.workers.begin(KEY.namespace)

    def cluster(self, uid: str, created: str) -> JsonObject:
        found = resource("Cluster", KEY.name)
        return {**found, "metadata": {**found["metadata"], "uid": uid, "creationTimestamp": created}}

    async def stateful_set_of(self, uid: str) -> JsonObject:
        """Once the operator has made it for the Cluster with this uid."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for found in self.api.of_kind("StatefulSet"):
                    if found["metadata"]["ownerReferences"][0]["uid"] == uid:
                        return found
                await asyncio.sleep(0.01)

    def collect(self, found: JsonObject) -> None:
        """As Kubernetes deletes what has an owner that is not there."""
        del self.api.objects[path_of(found["kind"], KEY.namespace, found["metadata"]["name"])]
        self.workers.object_event(found, is_gone=True)


def play(scenario: Callable[[Place], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with no_server() as connection:
            place = Place(KubeMemory(connection))
            await scenario(place)
            await place.workers.close()

    asyncio.run(run())


@pytest.mark.parametrize("fails", [False, True], ids=["at once", "after the API server was away"])
def test_the_objects_are_made_for_the_cluster_that_is_there_though_it_looks_older(fails: bool) -> None:
    async def scenario(place: Place) -> None:
        known = await place.stateful_set_of("later")
        del place.api.objects[PATH]
        place.api.put(place.cluster("earlier", "2026-01-01T00:00:00Z"))
        looks = 0

        def away(method: str, path: str, _: object) -> Exception | None:
            nonlocal looks
            looks += method == "GET" and path == PATH
            return KubeUnreachable("it is away") if fails and looks == 1 and path == PATH else None

        place.api.refuse = away
        place.collect(known)
        await place.stateful_set_of("earlier")
        assert place.inventory.clusters[KEY]["metadata"]["uid"] == "earlier"

    play(scenario)


@pytest.mark.parametrize("is_served", [True, False], ids=["and is told so", "though it is not served for a moment"])
def test_the_cluster_goes_on_where_it_is_the_one_that_is_known(is_served: bool) -> None:
    """An API server that starts answers for a kind that it does not know yet as for an object that is not there."""

    async def scenario(place: Place) -> None:
        looks: asyncio.Queue[str] = asyncio.Queue()

        def answer(method: str, path: str, _: object) -> Exception | None:
            if (method, path) != ("GET", PATH):
                return None
            looks.put_nowait(path)
            return None if is_served else KubeRefused(404, "NotFound", "page not found")

        place.api.refuse = answer
        for _ in range(2):  # The second look begins when the first has had its effect.
            place.collect(await place.stateful_set_of("later"))
            async with asyncio.timeout(WAIT_S):
                await looks.get()
        await place.stateful_set_of("later")
        assert place.inventory.clusters[KEY]["metadata"]["uid"] == "later"

    play(scenario)

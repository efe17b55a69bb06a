"""Another Cluster has the name of the one that is known, and the watch does not tell: etcd was put back."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.kube.api_resources import path_of
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.reconcile.doubted_clusters import DoubtedClusters
from barnabas_operator.resources.json_types import JsonObject
from harness.brokers_memory import BrokersMemory
from harness.kube_memory import KubeMemory, no_server
from harness.manual_loop_clock import ManualLoopClock
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


def test_a_cluster_that_changes_while_it_is_looked_at_is_left_for_the_one_that_is_there() -> None:
    """The watch still tells of the later one; what was known before the look is not the newest of it."""

    async def scenario(place: Place) -> None:
        known = await place.stateful_set_of("later")
        newer = place.api.put(place.cluster("later", "2026-02-02T00:00:00Z"))
        place.api.put(place.cluster("earlier", "2026-01-01T00:00:00Z"))

        def changes(method: str, path: str, _: object) -> None:
            if (method, path) == ("GET", PATH):
                place.workers.resource_event(newer, is_gone=False)

        place.api.refuse = changes
        place.collect(known)
        await place.stateful_set_of("earlier")

    play(scenario)


class Looks(KubeMemory):
    """An API server that is asked for Clusters; each look waits for its answer."""

    def __init__(self, connection: ApiClient) -> None:
        super().__init__(connection)
        self.asked: asyncio.Queue[asyncio.Future[JsonObject]] = asyncio.Queue()

    async def get(self, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait(answer)
        return await answer


def look(scenario: Callable[[Looks, DoubtedClusters, ManualLoopClock, JsonObject], Coroutine[Any, Any, None]]) -> None:
    """At one Cluster, which nobody works on."""

    async def run() -> None:
        async with no_server() as connection:
            api, inventory, clock = Looks(connection), Inventory(), ManualLoopClock()
            known = api.put(resource("Cluster", KEY.name))
            inventory.keep(known, is_gone=False)
            doubted = DoubtedClusters(api, inventory, clock, lambda _: None, lambda _: None)
            looking = asyncio.create_task(doubted.run())
            await scenario(api, doubted, clock, known)
            looking.cancel()

    asyncio.run(run())


async def waited_s(clock: ManualLoopClock) -> float:
    """How long it waits, once it does; that time has passed then."""
    async with asyncio.timeout(WAIT_S):
        while not clock.waits_s:
            await asyncio.sleep(0)
    (pause_s,) = clock.waits_s
    clock.pass_time(pause_s)
    return pause_s


def test_what_is_deleted_during_a_look_is_looked_at_again() -> None:
    """The API server may have answered before."""

    async def scenario(api: Looks, doubted: DoubtedClusters, clock: ManualLoopClock, known: JsonObject) -> None:
        doubted.doubt(KEY)
        await waited_s(clock)
        first = await api.asked.get()
        doubted.doubt(KEY)
        first.set_result(known)
        await waited_s(clock)
        async with asyncio.timeout(WAIT_S):
            await api.asked.get()

    look(scenario)


def test_an_api_server_that_refuses_is_asked_ever_more_rarely() -> None:
    async def scenario(api: Looks, doubted: DoubtedClusters, clock: ManualLoopClock, known: JsonObject) -> None:
        doubted.doubt(KEY)
        pauses = []
        for _ in range(9):
            pauses.append(await waited_s(clock))
            (await api.asked.get()).set_exception(KubeRefused(403, "Forbidden", "its namespace goes"))
        assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
        assert pauses[-1] == pauses[-2]
        await waited_s(clock)
        (await api.asked.get()).set_result(known)
        doubted.doubt(KEY)
        assert await waited_s(clock) == 1.0

    look(scenario)

"""Rounds of a lane over an API server and brokers of a few dicts: what is refused is told, and stops nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiClient

from barnabas_operator.handlers import lane as lane_module
from barnabas_operator.handlers.inventory import Inventory, Key
from barnabas_operator.handlers.lane import Lane
from barnabas_operator.handlers.operator_settings import OperatorSettings
from barnabas_operator.handlers.status_writer import FINALIZER
from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.kube.gather import REVISION
from barnabas_operator.planning.cluster_state import StrayLog, Trouble
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from harness.brokers_memory import BrokersMemory
from harness.kube_memory import KubeMemory

KEY = Key("air", "one")
SETTINGS = OperatorSettings("broker:dev", (), "brokers", batch_s=0.0, busy_s=60.0, drift_s=60.0)
WAIT_S = 10.0
UNREADABLE = {"config": {"retention.ms": [1]}}
Json = dict[str, Any]


def resource(kind: str, name: str, *, goes: bool = False, held: bool = False, **spec: object) -> Json:
    meta: Json = {"name": name, "namespace": "air", "finalizers": [FINALIZER] if held else []}
    if goes:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def topic(name: str, *, goes: bool = False, **spec: object) -> Json:
    """Held, where it goes: it would be gone else."""
    return resource("Topic", name, goes=goes, held=goes, **{"cluster": "one", "partitions": 1, **spec})


class World:
    """One Cluster's lane, and what is around it."""

    def __init__(self, api: KubeMemory, brokers: BrokersMemory) -> None:
        self.api, self.brokers = api, brokers
        self._inventory = Inventory()
        self._ended: asyncio.Queue[bool] = asyncio.Queue()
        self.lane = Lane(KEY, self._inventory, api, SETTINGS, lambda _, is_good: self._ended.put_nowait(is_good))

    async def round(self) -> bool:
        """Over all that is there now; whether it ended well."""
        for each in [*self._inventory.topics.values(), *self._inventory.clusters.values()]:
            self._inventory.keep(each, is_gone=True)
        for each in list(self.api.objects.values()):
            if each["kind"] in ("Cluster", "Topic"):
                self._inventory.keep(each, is_gone=False)
        self.lane.wake()
        return await self.next()

    async def next(self) -> bool:
        """The same of the round that comes next, whyever."""
        async with asyncio.timeout(WAIT_S):
            return await self._ended.get()

    def conditions(self, kind: str, name: str) -> list[str]:
        """The types of those that there are."""
        return [each["type"] for each in (self.api.found(kind, name) or {}).get("status", {}).get("conditions", ())]

    def said(self, kind: str, name: str, about: str = "Ready") -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        found = self.api.found(kind, name)
        assert found is not None, f"{kind} {name} is gone"
        (told,) = (each for each in found.get("status", {}).get("conditions", ()) if each["type"] == about)
        return told["status"], told["reason"], told.get("message", "")


Scenario = Callable[[World], Awaitable[None]]


@asynccontextmanager
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    brokers = BrokersMemory()
    monkeypatch.setattr(lane_module, "ClusterAdmin", brokers)
    async with ApiClient() as connection:
        found = World(KubeMemory(connection), brokers)
        found.api.objects["/api/v1/namespaces/air"] = {"kind": "Namespace", "metadata": {"name": "air"}}
        running = asyncio.create_task(found.lane.run())
        await found.round()
        try:
            yield found
        finally:
            running.cancel()


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            async with world(monkeypatch) as found:
                await scenario(found)

        asyncio.run(whole())

    return run


Play = Callable[[Scenario], None]


def refuses(part: str, error: Exception) -> Callable[[str, str, object], Exception | None]:
    """Each write to such a path."""
    return lambda method, path, _: error if part in path and method != "GET" else None


def test_what_the_api_server_refuses_is_told_and_topics_are_made_all_the_same(play: Play) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one"))
        here.api.put(topic("flights"))
        here.api.refuse = refuses(
            "/statefulsets", KubeRefused(422, "Invalid", "must be less than or equal to memory limit")
        )
        assert await here.round()
        message = "StatefulSet one-broker: must be less than or equal to memory limit"
        assert here.said("Cluster", "one") == ("False", "InvalidSpec", message)
        assert here.said("Topic", "flights")[0] == "True"
        assert here.api.found("ConfigMap", "one-broker") is None, "running brokers stay as they are"
        asked = len([each for each in here.api.writes if "statefulsets" in each])
        await here.round()
        assert len([each for each in here.api.writes if "statefulsets" in each]) == asked, "the same is not asked again"
        assert here.said("Cluster", "one") == ("False", "InvalidSpec", message)

    play(scenario)


def test_an_object_around_the_brokers_that_is_refused_stops_no_other(play: Play) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one"))
        here.api.refuse = refuses("/networkpolicies/", KubeRefused(403, "Forbidden", "not yours"))
        assert not await here.round(), "it may be taken later"
        assert here.said("Cluster", "one") == ("False", "KubernetesError", "NetworkPolicy one-broker: not yours")
        assert here.api.found("StatefulSet", "one-broker") is not None

    play(scenario)


@pytest.mark.parametrize("part", ["/networkpolicies/", "/statefulsets/", "/clusters/one", "/topics/flights"])
def test_what_is_refused_for_want_of_rights_is_tried_again_soon(play: Play, part: str) -> None:
    """An API server that starts knows nobody's rights yet."""

    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one"))
        here.api.put(topic("flights", deletionPolicy="Delete"))
        here.api.refuse = refuses(part, KubeRefused(403, "Forbidden", "not yours"))
        assert not await here.round()
        here.api.refuse = refuses("/nothing", ValueError())
        assert await here.round()
        assert here.api.found("NetworkPolicy", "one-broker") is not None
        assert here.api.found("StatefulSet", "one-broker") is not None
        assert here.said("Cluster", "one")[1] != "KubernetesError"
        assert here.said("Topic", "flights")[0] == "True"

    play(scenario)


def test_what_brokers_say_of_losses_is_told_until_it_is_over(play: Play) -> None:
    async def scenario(here: World) -> None:
        stray = StrayLog(broker_id=0, directory="/data/0/t-0-stray", size_bytes=4096)
        here.brokers.troubles = (Trouble("flights", 0, (0,), (), offline=True, lost="broker 0 has no log"),)
        here.brokers.strays = (stray,)
        here.api.put(resource("Cluster", "one"))
        await here.round()
        assert "flights-0 (broker 0 has no log)" in here.said("Cluster", "one", "RecordsLost")[2]
        assert "broker 0 /data/0/t-0-stray" in here.said("Cluster", "one", "LogsSetAside")[2]
        here.brokers.troubles, here.brokers.strays, here.brokers.count = (), (), 2
        await here.round()
        assert here.conditions("Cluster", "one") == ["Ready"]

    play(scenario)


def test_a_bug_is_told_and_tried_again(play: Play) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one"))
        here.api.put(topic("flights"))
        here.brokers.bug = ValueError("no such thing")
        assert not await here.round()
        assert here.said("Cluster", "one") == ("False", "InternalError", "ValueError: no such thing")
        here.brokers.bug = None
        assert await here.round()
        assert here.said("Topic", "flights")[0] == "True"

    play(scenario)


def test_a_finalizer_that_is_refused_is_told_and_holds_no_other_topic_up(play: Play) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one"))
        here.api.put(topic("bad", deletionPolicy="Delete"))
        here.api.put(topic("good"))
        refused = KubeRefused(422, "Invalid", "too many annotations")
        here.api.refuse = lambda _, path, body: refused if "/bad" in path and "metadata" in body else None
        await here.round()
        why = f"the finalizer {FINALIZER}: too many annotations"
        assert here.said("Topic", "bad") == ("False", "KubernetesError", why)
        assert here.brokers.topics.keys() == {"good"}

    play(scenario)


PAUSED = "Cluster one is paused: set its spec.pause to false"
AWAY = "Cluster one does not answer yet"


@pytest.mark.parametrize(
    ("spec", "brokers", "why"),
    [
        ({"pause": True}, 1, PAUSED),
        (
            {"config": {"num.partitions": "many"}},
            1,
            "Cluster one is to be mended first: spec.config num.partitions=many",
        ),
        ({"brokers": {"replicas": "many"}}, 1, "Cluster one is to be mended first: spec.brokers.replicas"),
        ({}, 0, AWAY),
    ],
)
def test_topics_without_brokers_go_where_nothing_is_to_be_done_and_the_others_hear_why_not(
    play: Play, spec: Json, brokers: int, why: str
) -> None:
    async def scenario(here: World) -> None:
        here.brokers.count = brokers
        here.api.put(resource("Cluster", "one", **spec))
        for name, policy in (("kept", "Retain"), ("gone", "Delete"), ("guarded", "Protect")):
            here.api.put(topic(name, goes=True, deletionPolicy=policy))
        here.api.put(topic("paused", goes=True, deletionPolicy="Delete", pause=True))
        here.api.put(topic("new"))
        await here.round()
        assert here.api.found("Topic", "kept") is None
        assert here.api.found("Topic", "paused") is None
        status, reason, message = here.said("Topic", "new")
        assert (status, reason) == ("False", "ClusterNotReady")
        assert message.startswith(why)
        status, reason, message = here.said("Topic", "gone")
        assert (status, reason) == ("False", "ClusterNotReady")
        assert message.startswith(why)
        assert "with spec.deletionPolicy Retain this resource goes at once" in message
        assert here.said("Topic", "guarded")[1] == "DeletionProtected"

    play(scenario)


def test_a_topic_that_is_as_declared_stays_ready_while_its_cluster_is_paused(play: Play) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one"))
        here.api.put(topic("flights"))
        await here.round()
        here.api.put(resource("Cluster", "one", pause=True))
        await here.round()
        assert here.said("Topic", "flights")[0] == "True"
        assert here.said("Cluster", "one") == ("Unknown", "Paused", "spec.pause is true: nothing is changed")
        assert here.said("Cluster", "one", "ReconciliationPaused")[0] == "True"

    play(scenario)


@pytest.mark.parametrize(("policy", "left"), [("Delete", set()), ("Retain", {"flights"}), ("Unheard", {"flights"})])
def test_a_topic_that_cannot_be_read_goes_as_its_deletion_policy_says(play: Play, policy: str, left: set[str]) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one"))
        here.api.put(topic("flights"))
        await here.round()
        there = here.api.found("Topic", "flights") or {}
        here.api.put({**topic("flights", goes=True, deletionPolicy=policy, **UNREADABLE), "status": there["status"]})
        await here.round()
        assert here.api.found("Topic", "flights") is None
        assert here.brokers.topics.keys() == left

    play(scenario)


@pytest.mark.parametrize(("policy", "claims"), [("Delete", 0), ("Retain", 1)])
def test_a_cluster_of_a_newer_version_goes_with_its_topics(play: Play, policy: str, claims: int) -> None:
    async def scenario(here: World) -> None:
        labels = {CLUSTER_LABEL: "one"}
        here.api.put({"kind": "PersistentVolumeClaim", "metadata": {"name": "volume-0-one-broker-0", "labels": labels}})
        here.api.put(resource("Cluster", "one", goes=True, held=True, deletionPolicy=policy, unheard={"of": 1}))
        here.api.put(topic("flights", goes=True, deletionPolicy="Delete"))
        await here.round()
        assert here.api.found("Cluster", "one") is None
        assert here.api.found("Topic", "flights") is None
        assert len([path for path in here.api.objects if "persistentvolumeclaims" in path]) == claims

    play(scenario)


def test_a_protected_cluster_that_is_deleted_stays_with_all_that_is_its_own(play: Play) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one", goes=True, held=True, deletionPolicy="Protect"))
        here.api.put({**topic("held", deletionPolicy="Protect")})
        here.api.put(topic("new"))
        for _ in range(2):
            assert await here.round()
        why = "spec.deletionPolicy is Protect; set Delete or Retain first"
        assert here.said("Cluster", "one") == ("False", "DeletionProtected", why)
        held = here.api.found("Topic", "held") or {}
        assert held["metadata"]["finalizers"] == [FINALIZER]
        assert here.brokers.topics.keys() == {"held", "new"}
        assert here.api.found("StatefulSet", "one-broker") is not None

    play(scenario)


def test_a_cluster_tells_its_id_and_where_it_is_measured(play: Play) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one"))
        await here.round()
        status = (here.api.found("Cluster", "one") or {})["status"]
        assert status["clusterId"] == "a-cluster"
        assert status["metrics"] == ["http://one-broker-0.one-broker.air.svc:9404/metrics"]

    play(scenario)


TWO_DISKS: Json = {"storage": {"volumes": [{"id": 0}, {"id": 1}]}}


async def disks_are_refused(here: World, why: str, **spec: Any) -> None:
    before = here.api.found("StatefulSet", "one-broker")
    here.api.put({**resource("Cluster", "one", **spec), "metadata": {"name": "one", "generation": 2}})
    await here.round()
    assert here.said("Cluster", "one") == ("False", "NotSupported", why)
    assert here.api.found("StatefulSet", "one-broker") == before


@pytest.mark.parametrize(
    ("volumes", "why"),
    [
        (
            [{"id": 0}],
            "Removing volumes is not supported: spec.storage.volumes lacks the id 1; allowed: all ids there were",
        ),
        ([{"id": 0}, {"id": 1, "size": "1Gi"}], "spec.storage.volumes[1].size is 1Gi; allowed: 10Gi or more"),
        ([{"id": 0}, {"id": 1, "storageClass": "x"}], "spec.storage.volumes[1].storageClass is x; allowed: None"),
    ],
)
def test_a_disk_that_brokers_have_is_not_taken_away_where_nobody_refused_it(
    play: Play, volumes: list[Json], why: str
) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one", **TWO_DISKS))
        await here.round()
        await disks_are_refused(here, why, storage={"volumes": volumes})

    play(scenario)


def test_a_cluster_that_is_made_again_has_all_disks_that_were_retained(play: Play) -> None:
    async def scenario(here: World) -> None:
        for volume in range(2):
            meta = {"name": f"volume-{volume}-one-broker-0", "labels": {CLUSTER_LABEL: "one"}}
            claim = {"resources": {"requests": {"storage": "10Gi"}}}
            here.api.put({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim})
        why = "Removing volumes is not supported: spec.storage.volumes lacks the id 1; allowed: all ids there were"
        await disks_are_refused(here, why)
        assert here.api.found("ConfigMap", "one-broker") is None

    play(scenario)


def test_pods_keep_their_stateful_set_where_the_one_with_another_disk_is_refused(play: Play) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one"))
        await here.round()
        before = here.api.found("StatefulSet", "one-broker")
        here.api.refuse = refuses("/statefulsets", KubeRefused(422, "Invalid", "no"))
        here.api.put({**resource("Cluster", "one", **TWO_DISKS), "metadata": {"name": "one", "generation": 2}})
        await here.round()
        assert here.said("Cluster", "one") == ("False", "InvalidSpec", "StatefulSet one-broker: no")
        assert here.api.found("StatefulSet", "one-broker") == before

    play(scenario)


def test_a_stateful_set_with_another_disk_is_made_when_the_one_before_is_gone(play: Play) -> None:
    """And has a place for each pod, also for those that shall go: they hold replicas."""

    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one", brokers={"replicas": 3}))
        await here.round()
        for number in range(3):
            here.api.put(of_broker(number))
        fewer = resource("Cluster", "one", brokers={"replicas": 2}, **TWO_DISKS)
        here.api.put({**fewer, "metadata": {"name": "one", "generation": 2}})
        for _ in range(2):
            assert await here.round()
            ending = here.api.found("StatefulSet", "one-broker") or {}
            assert "deletionTimestamp" in ending["metadata"]
            assert len(ending["spec"]["volumeClaimTemplates"]) == 1, "its claims never change"
            why = "waiting for Kubernetes to end the StatefulSet: another one takes over its pods"
            assert here.said("Cluster", "one") == ("False", "BrokersNotReady", why)
        here.api.put({**ending, "metadata": {**ending["metadata"], "finalizers": []}})
        assert await here.round()
        made = here.api.found("StatefulSet", "one-broker") or {}
        assert len(made["spec"]["volumeClaimTemplates"]) == 2
        assert made["spec"]["replicas"] == 3

    play(scenario)


def of_broker(number: int) -> Json:
    """Its pod, which is ready, as a StatefulSet makes it."""
    labels = {"app.kubernetes.io/name": "barnabas-broker", "app.kubernetes.io/instance": "one", REVISION: "new"}
    claim = {"persistentVolumeClaim": {"claimName": f"volume-0-one-broker-{number}"}}
    return {
        "kind": "Pod",
        "metadata": {"name": f"one-broker-{number}", "labels": labels},
        "spec": {"volumes": [{"name": "volume-0", **claim}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def test_a_round_that_balanced_leaders_is_followed_by_the_next_step_at_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one", brokers={"replicas": 2}))
        await here.round()
        made = here.api.found("StatefulSet", "one-broker") or {}
        seen = {"observedGeneration": 1, "updateRevision": "new", "replicas": 2}
        here.api.put({**made, "status": seen})
        for number in range(2):
            here.api.put(of_broker(number))
        here.api.put(resource("Cluster", "one", brokers={"replicas": 1}))
        assert await here.round(), "an operator that starts does not know how leaders are"
        while (here.api.found("StatefulSet", "one-broker") or {})["spec"]["replicas"] > 1:
            assert await here.next(), "and nobody wakes it"

    monkeypatch.setattr(f"{__name__}.SETTINGS", replace(SETTINGS, busy_s=0.01))
    play(scenario)

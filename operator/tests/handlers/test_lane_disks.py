"""Rounds of a lane over disks that are there, and over the StatefulSet and the files that brokers start with."""

from typing import Any

import pytest

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.kube.gather import REVISION
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from harness.lane_world import Json, Play, World, of_broker, refuses, resource

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
        assert not here.api.of_kind("ConfigMap")

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


def test_a_broker_that_has_not_restarted_keeps_the_settings_that_it_started_with(play: Play) -> None:
    async def scenario(here: World) -> None:
        here.api.put(resource("Cluster", "one", config={"num.partitions": "2"}))
        await here.round()
        (before,) = here.api.of_kind("ConfigMap")
        here.api.put(of_broker(0))
        changed = resource("Cluster", "one", config={"num.partitions": "3"})
        here.api.put({**changed, "metadata": {"name": "one", "generation": 2}})
        here.kubernetes_saw("newer")
        await here.round()
        assert len(files := here.api.of_kind("ConfigMap")) == 2
        assert before in files, "who crashes now starts with the settings that it had"
        pod = of_broker(0)
        here.api.put(
            {**pod, "metadata": {**pod["metadata"], "labels": {**pod["metadata"]["labels"], REVISION: "newer"}}}
        )
        here.kubernetes_saw("newer")
        await here.round()
        (after,) = here.api.of_kind("ConfigMap")
        assert "num.partitions=3" in after["data"]["one-broker-0.properties"]

    play(scenario)

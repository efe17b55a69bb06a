"""Rounds of a worker over existing disks, the StatefulSet, and the files with which brokers start."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.kube.gather import REVISION
from barnabas_operator.planning.cluster_state import TopicState
from barnabas_operator.planning.object_names import EMPTIED_LABEL
from barnabas_operator.resources.kind import JsonObject
from harness.worker_world import SETTINGS, World, claim_of, of_broker, refuses, resource

TWO_DISKS: JsonObject = {"storage": {"volumes": [{"id": 0}, {"id": 1}]}}


async def disks_are_refused(here: World, why: str, **spec: Any) -> None:
    before = here.api.found("StatefulSet", "one-broker")
    here.api.put({**resource("Cluster", "one", **spec), "metadata": {"name": "one", "generation": 2}})
    await here.round()
    assert here.said("Cluster", "one") == ("False", "NotSupported", why)
    assert here.api.found("StatefulSet", "one-broker") == before


def places(here: World) -> int:
    made = here.api.found("StatefulSet", "one-broker")
    assert made is not None
    return int(made["spec"]["replicas"])


def claims(here: World) -> dict[str, bool]:
    """Return by name whether each claim is marked as emptied."""
    found = here.api.of_kind("PersistentVolumeClaim")
    return {each["metadata"]["name"]: EMPTIED_LABEL in each["metadata"]["labels"] for each in found}


@pytest.mark.parametrize(
    ("volumes", "why"),
    [
        (
            [{"id": 0}],
            "Removing volumes is not supported: spec.storage.volumes lacks the id 1; declare the missing volumes again",
        ),
        (
            [{"id": 0}, {"id": 1, "size": "1Gi"}],
            "spec.storage.volumes[1].size is 1Gi; allowed: 10Gi or more, because existing claims cannot shrink",
        ),
        (
            [{"id": 0}, {"id": 1, "storageClass": "x"}],
            (
                "spec.storage.volumes[1].storageClass is x; allowed: no value, "
                "because existing claims cannot change their storage class"
            ),
        ),
    ],
)
async def test_an_unsupported_change_of_existing_disks_is_refused_in_a_round_too(
    volumes: list[JsonObject], why: str, here: World
) -> None:
    for volume in range(2):
        here.api.put(claim_of(volume, 0))
    here.api.put(resource("Cluster", "one", **TWO_DISKS))
    await here.round()
    await disks_are_refused(here, why, storage={"volumes": volumes})


async def test_a_recreated_cluster_must_declare_all_retained_disks(here: World) -> None:
    for volume, broker_id in ((0, 0), (1, 0), (1, 1)):
        here.api.put(claim_of(volume, broker_id))
    left = "but claims of that volume hold records: volume-1-one-broker-0 and 1 more"
    allowed = "declare a volume with the id 1, or delete the claims"
    await disks_are_refused(here, f"spec.storage.volumes lacks the id 1, {left}; {allowed}")
    assert not here.api.of_kind("ConfigMap")


async def test_pods_keep_their_stateful_set_if_the_one_with_another_disk_is_refused(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    await here.round()
    before = here.api.found("StatefulSet", "one-broker")
    here.api.refuse = refuses("/statefulsets", KubeRefused(422, "Invalid", "no"))
    here.api.put({**resource("Cluster", "one", **TWO_DISKS), "metadata": {"name": "one", "generation": 2}})
    await here.round()
    assert here.said("Cluster", "one") == ("False", "InvalidSpec", "StatefulSet one-broker: no")
    assert here.api.found("StatefulSet", "one-broker") == before


async def test_a_stateful_set_with_another_disk_is_created_after_the_old_one_is_deleted(here: World) -> None:
    """It keeps all pods, also those of brokers to be removed, because they hold replicas."""
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
        assert len(ending["spec"]["volumeClaimTemplates"]) == 1, "claim templates never change"
        why = "waiting for Kubernetes to delete the StatefulSet; a new StatefulSet takes over its pods"
        message = f"3 of 3 brokers run with the declared settings; {why}"
        assert here.said("Cluster", "one", "Rolling") == ("True", "Restarting", message)
        assert here.said("Cluster", "one")[0] == "True", "its brokers still serve"
    here.api.put({**ending, "metadata": {**ending["metadata"], "finalizers": []}})
    assert await here.round()
    made = here.api.found("StatefulSet", "one-broker") or {}
    assert len(made["spec"]["volumeClaimTemplates"]) == 2
    assert made["spec"]["replicas"] == 3


async def test_a_broker_keeps_its_settings_until_it_has_restarted(here: World) -> None:
    here.api.put(resource("Cluster", "one", config={"num.partitions": "2"}))
    await here.round()
    (before,) = here.api.of_kind("ConfigMap")
    here.api.put(of_broker(0))
    changed = resource("Cluster", "one", config={"num.partitions": "3"})
    here.api.put({**changed, "metadata": {"name": "one", "generation": 2}})
    here.kubernetes_saw("newer")
    await here.round()
    assert len(files := here.api.of_kind("ConfigMap")) == 2
    assert before in files, "a broker that crashes now starts with its former settings"
    pod = of_broker(0)
    here.api.put({**pod, "metadata": {**pod["metadata"], "labels": {**pod["metadata"]["labels"], REVISION: "newer"}}})
    here.kubernetes_saw("newer")
    await here.round()
    (after,) = here.api.of_kind("ConfigMap")
    assert "num.partitions=3" in after["data"]["one-broker-0.properties"]


async def test_a_recreated_cluster_starts_all_brokers_that_have_disks(here: World) -> None:
    """Their disks may have the only copies; the brokers too many are emptied and then removed."""
    here.brokers.count = 0
    for number in range(5):
        here.api.put(claim_of(0, number))
    here.api.put(resource("Cluster", "one", brokers={"replicas": 3}))
    await here.round()
    assert places(here) == 5


async def test_external_clients_reach_brokers_that_are_not_declared_any_more(here: World) -> None:
    """These brokers lead partitions until the partitions have moved."""
    outside = [{"name": "outside", "type": "loadbalancer", "port": 9094}]
    here.brokers.count = 0
    for number in range(5):
        here.api.put(claim_of(0, number))
    here.api.put(resource("Cluster", "one", brokers={"replicas": 3}, listeners=outside))
    await here.round()
    await here.round()
    names = {each["metadata"]["name"] for each in here.api.of_kind("Service")}
    assert {f"one-broker-{number}-outside" for number in range(5)} <= names


async def test_a_broker_to_be_removed_that_has_no_address_holds_up_no_step(here: World) -> None:
    here.brokers.count = 2
    here.brokers.topics["flights"] = TopicState("id", ((0, 1),), {})
    here.api.put(resource("Cluster", "one", brokers={"replicas": 2}))
    await here.round()
    outside = [{"name": "outside", "type": "loadbalancer", "port": 9094}]
    here.api.put(resource("Cluster", "one", brokers={"replicas": 1}, listeners=outside))
    await here.round()
    reached = {"status": {"loadBalancer": {"ingress": [{"hostname": "castle.example"}]}}}
    here.api.put({**(here.api.found("Service", "one-broker-0-outside") or {}), **reached})
    await here.round()
    assert "waiting for Kubernetes to start" in here.said("Cluster", "one")[2], "the next step was taken"


async def test_a_deleted_cluster_spares_a_recreated_claim_with_the_name_of_its_own(here: World) -> None:
    def made_anew(method: str, path: str, _body: Mapping[str, Any]) -> None:
        if method == "DELETE" and "/persistentvolumeclaims/" in path:
            del here.api.objects[path]
            another = claim_of(0, 0)
            here.api.put({**another, "metadata": {**another["metadata"], "uid": "another"}})

    here.brokers.count = 0
    here.api.put(claim_of(0, 0))
    here.api.put(resource("Cluster", "one", goes=True, held=True, deletionPolicy="Delete"))
    here.api.refuse = made_anew
    await here.round()
    assert claims(here)


async def test_brokers_whose_claims_are_marked_as_emptied_are_not_started_again(here: World) -> None:
    here.brokers.count = 0
    for number in range(3):
        here.api.put(claim_of(0, number))
    for number in (3, 4):
        here.api.put(claim_of(0, number, emptied="true"))
    here.api.put(resource("Cluster", "one", brokers={"replicas": 3}))
    await here.round()
    assert places(here) == 3


async def test_a_registered_broker_that_holds_replicas_gets_its_pod_back(here: World) -> None:
    """This holds even if its disk is lost and only the metadata knows the broker."""
    here.api.put(resource("Cluster", "one", brokers={"replicas": 3}))
    here.brokers.count = 5
    here.brokers.topics["flights"] = TopicState("id", ((0, 1, 3),), {})
    await here.round()
    assert places(here) == 4


async def test_an_unregistered_broker_that_holds_replicas_gets_no_pod(here: World) -> None:
    here.api.put(resource("Cluster", "one", brokers={"replicas": 3}))
    here.brokers.count = 3
    here.brokers.topics["flights"] = TopicState("id", ((0, 1, 7),), {})
    await here.round()
    assert places(here) == 3


@pytest.mark.parametrize(("delete_claim", "left"), [(True, {0: False}), (False, {0: False, 1: True})])
@pytest.mark.parametrize("here", [replace(SETTINGS, busy_s=0.01)], indirect=True)
async def test_disks_of_a_removed_broker_are_deleted_if_declared_and_otherwise_marked(
    monkeypatch: pytest.MonkeyPatch, delete_claim: bool, left: dict[int, bool], here: World
) -> None:
    storage = {"volumes": [{"id": 0, "deleteClaim": delete_claim}]}
    config = {"auto.leader.rebalance.enable": False}

    def declared(replicas: int) -> JsonObject:
        made = resource("Cluster", "one", brokers={"replicas": replicas}, storage=storage, config=config)
        return {**made, "metadata": {"name": "one", "generation": 10 - replicas}}

    here.brokers.count = 2
    here.api.put(declared(2))
    await here.round()
    here.kubernetes_saw("new")
    for number in range(2):
        here.api.put(of_broker(number))
        here.api.put(claim_of(0, number))
    here.api.put(claim_of(0, 1, emptied="true"))
    here.api.put(declared(1))
    await here.round()
    while places(here) > 1:
        await here.next()
    assert claims(here) == {"volume-0-one-broker-0": False, "volume-0-one-broker-1": True}, "marked before removal"
    del here.api.objects["/api/v1/namespaces/air/pods/one-broker-1"]
    for _ in range(2):
        await here.round()
    assert len(claims(here)) == 2, "a registered broker may still get replicas of a new topic"
    here.brokers.count = 1
    await here.round()
    await here.round()
    assert claims(here) == {f"volume-0-one-broker-{number}": marked for number, marked in left.items()}
    here.api.put(declared(2))
    await here.round()
    assert not any(claims(here).values()), "the broker is back, and its disk counts"


def declares(here: World, generation: int, *volumes: JsonObject) -> None:
    made = resource("Cluster", "one", storage={"volumes": list(volumes)})
    here.api.put({**made, "metadata": {"name": "one", "generation": generation}})


def storage_class(here: World, name: str, binding: str) -> None:
    made = {"kind": "StorageClass", "metadata": {"name": name}, "volumeBindingMode": binding}
    here.api.objects[f"/apis/storage.k8s.io/v1/storageclasses/{name}"] = made


async def made_anew(here: World) -> None:
    """Let Kubernetes delete the StatefulSet, and let the next one take over the pods."""
    await here.round()
    ending = here.api.found("StatefulSet", "one-broker") or {}
    here.api.put({**ending, "metadata": {**ending["metadata"], "finalizers": []}})
    await here.round()
    here.kubernetes_saw("new")


MORE = {"id": 1, "storageClass": "more"}


@pytest.mark.parametrize("binding", ["Immediate", "WaitForFirstConsumer"])
async def test_a_broker_restarts_for_a_new_disk_once_it_is_bound_or_waits_for_a_consumer(
    binding: str, here: World
) -> None:
    storage_class(here, "more", binding)
    here.api.put(claim_of(0, 0))
    declares(here, 1, {"id": 0})
    await here.round()
    here.kubernetes_saw("new")
    here.api.put(of_broker(0))
    declares(here, 2, {"id": 0}, MORE)
    await made_anew(here)
    if binding == "Immediate":
        for _ in range(2):
            await here.round()
        claim_name = "volume-1-one-broker-0"
        why = f"broker 0 can restart only after the claim {claim_name} is bound, but the claim has no volume yet"
        way_out = "as long as the claim is not bound, volume 1 can be changed or removed"
        assert here.said("Cluster", "one") == ("False", "ClaimNotBound", f"{why}; {way_out}")
        assert here.api.found("Pod", "one-broker-0") is not None
        claim = here.api.found("PersistentVolumeClaim", "volume-1-one-broker-0") or {}
        assert claim["spec"]["storageClassName"] == "more"
        here.api.put({**claim, "status": {"phase": "Bound"}})
    await here.round()
    assert here.api.found("Pod", "one-broker-0") is None


async def test_a_disk_that_no_broker_ever_got_is_removed_without_a_restart(here: World) -> None:
    here.api.put(claim_of(0, 0))
    declares(here, 1, {"id": 0})
    await here.round()
    here.kubernetes_saw("new")
    here.api.put(of_broker(0))
    declares(here, 2, {"id": 0}, MORE)
    await made_anew(here)
    await here.round()
    assert "there is no StorageClass more" in here.said("Cluster", "one")[2]
    assert len(claims(here)) == 2
    declares(here, 3, {"id": 0})
    await made_anew(here)
    await here.round()
    assert list(claims(here)) == ["volume-0-one-broker-0"]
    assert here.said("Cluster", "one")[0] == "True"
    assert here.api.found("Pod", "one-broker-0") is not None


@pytest.mark.parametrize("corrected", [{"id": 0, "storageClass": "good"}, {"id": 0, "size": "1Gi"}])
async def test_an_impossible_storage_class_or_size_can_be_corrected(corrected: JsonObject, here: World) -> None:
    declares(here, 1, {"id": 0, "storageClass": "bad"})
    await here.round()
    spec = {"resources": {"requests": {"storage": "10Gi"}}, "storageClassName": "bad"}
    here.api.put({**claim_of(0, 0), "spec": spec})
    here.api.put({**of_broker(0), "status": {"phase": "Pending"}})
    declares(here, 2, corrected)
    await made_anew(here)
    await here.round()
    assert not claims(here), "the StatefulSet creates it again as it is declared now"
    (template,) = (here.api.found("StatefulSet", "one-broker") or {})["spec"]["volumeClaimTemplates"]
    assert template["spec"].get("storageClassName") == corrected.get("storageClass")

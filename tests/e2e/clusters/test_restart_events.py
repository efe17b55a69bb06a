"""Restarts of brokers with a real API server: running ones are evicted, and Events of the Cluster give the reason."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.manifests.kube_object import disruption_budget
from barnabas_operator.planning.brokers.pods import BrokerPod
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.object_names import labels, selector
from barnabas_operator.planning.status.cluster_events import restart_event
from barnabas_operator.reconcile.brokers.broker_reconciler import PodRestarts
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta
from harness.deadline import PATIENCE_S, wait_for
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

NOW = "2026-01-01T00:00:00Z"
OLD = BrokerPod(1, "castle-broker-1", "u-1", "old", is_ready=True)
CHANGED = "the Cluster has changed since the broker's pod was created"


@asynccontextmanager
async def api_of(plane: ControlPlane) -> AsyncIterator[KubeApi]:
    async with api_client(plane) as connection:
        yield KubeApi(connection)


def namespace_of(plane: ControlPlane) -> str:
    namespace = f"pods-{uuid4().hex[:8]}"
    plane.kubectl("create", "namespace", namespace)
    account = {"name": "default", "namespace": namespace}
    plane.requests.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})  # So may a controller.
    return namespace


def cluster_in(namespace: str, brokers: int = 3) -> Cluster:
    meta = ObjectMeta(name="castle", namespace=namespace, uid=str(uuid4()))
    return Cluster(metadata=meta, spec=ClusterSpec(brokers=Brokers(replicas=brokers)))


async def make(api: KubeApi, namespace: str, number: int) -> BrokerPod:
    """Make a broker's pod, which no node runs."""
    name = f"castle-broker-{number}"
    meta = {"name": name, "namespace": namespace, "labels": dict(labels("castle"))}
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    made = await api.create({**body, "spec": {"containers": [{"name": "broker", "image": "broker"}]}})
    return BrokerPod(number, name, made["metadata"]["uid"], "old", is_ready=True)


async def is_there(api: KubeApi, namespace: str, pod: BrokerPod) -> bool:
    found = await api.get("Pod", namespace, pod.name)
    return found is not None and found["metadata"]["uid"] == pod.uid and "deletionTimestamp" not in found["metadata"]


async def test_only_the_pod_with_the_seen_uid_is_evicted_or_deleted(api_server: ControlPlane) -> None:
    namespace = namespace_of(api_server)
    async with api_of(api_server) as api:
        pod = await make(api, namespace, 1)
        with pytest.raises(KubeRefused, match="precondition") as refused:
            await api.delete("Pod", namespace, pod.name, preconditions={"uid": str(uuid4())})
        assert refused.value.status == CONFLICT
        with pytest.raises(KubeRefused, match="precondition") as refused:
            await api.evict(namespace, pod.name, str(uuid4()))
        assert refused.value.status == CONFLICT
        assert await is_there(api, namespace, pod)
        await api.evict(namespace, pod.name, pod.uid)
        assert not await is_there(api, namespace, pod)
        await api.evict(namespace, pod.name, pod.uid)


async def test_the_disruption_budget_delays_the_restart_of_running_brokers_only(
    controllers: ControlPlane,
) -> None:
    namespace = namespace_of(controllers)
    cluster = cluster_in(namespace)
    with_pods(controllers, cluster, ready=2)
    wait_for(lambda: budget(controllers, namespace), lambda told: told == "2 2", PATIENCE_S)
    async with api_of(controllers) as api:
        pods = [await seen(api, namespace, number) for number in range(3)]
        said = "The disruption budget castle-broker needs 2 healthy pods and has 2 currently"
        restarts = PodRestarts(api, SystemClock())
        refused = await restarts.begin(cluster, [pods[1], pods[0]])
        assert refused == Refusal("EvictionRefused", f"broker 1 must restart, but its eviction is refused: {said}")
        assert [await is_there(api, namespace, pod) for pod in pods] == [True, True, True]
        assert await restarts.begin(cluster, [pods[2]._replace(is_ready=False, is_down=True)]) is None
        assert [await is_there(api, namespace, pod) for pod in pods] == [True, True, False]
    controllers.kubectl("delete", "namespace", namespace, "--wait=false")


async def test_a_single_running_broker_that_is_not_ready_is_evicted(controllers: ControlPlane) -> None:
    namespace = namespace_of(controllers)
    cluster = cluster_in(namespace, 1)
    with_pods(controllers, cluster, ready=0)
    wait_for(lambda: budget(controllers, namespace), lambda told: told == "0 0", PATIENCE_S)
    async with api_of(controllers) as api:
        pod = await seen(api, namespace, 0)
        assert await PodRestarts(api, SystemClock()).begin(cluster, [pod._replace(is_ready=False)]) is None
        assert not await is_there(api, namespace, pod)
    controllers.kubectl("delete", "namespace", namespace, "--wait=false")


def with_pods(plane: ControlPlane, cluster: Cluster, *, ready: int) -> None:
    """Make running pods, the first ones of them ready, and the Cluster's disruption budget."""
    namespace, count = str(cluster.metadata.namespace), cluster.spec.brokers.replicas
    plane.kubectl("create", "-f-", stdin=json.dumps(made_by(namespace, count)))
    for number in range(count):
        name = f"castle-broker-{number}"
        wait_for(partial(plane.requests.get, "Pod", namespace, name))
        plane.requests.merge_status("Pod", namespace, name, {"phase": "Running"})
        if number < ready:
            is_ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            plane.requests.merge_status("Pod", namespace, name, is_ready)
    allowed = {name: value for name, value in disruption_budget(cluster).items() if name != "metadata"}
    meta = {"name": "castle-broker", "namespace": namespace}
    plane.kubectl("create", "-f-", stdin=json.dumps({**allowed, "metadata": meta}))


def made_by(namespace: str, count: int) -> dict[str, Any]:
    """Return a StatefulSet that makes the pods; no node runs them."""
    template = {
        "metadata": {"labels": dict(labels("castle"))},
        "spec": {"containers": [{"name": "broker", "image": "broker"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "castle-broker", "namespace": namespace},
        "spec": {
            "replicas": count,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": dict(selector("castle"))},
            "template": template,
        },
    }


async def seen(api: KubeApi, namespace: str, number: int) -> BrokerPod:
    found = await api.get("Pod", namespace, f"castle-broker-{number}")
    assert found is not None
    return BrokerPod(number, found["metadata"]["name"], found["metadata"]["uid"], "old", is_ready=True)


def budget(plane: ControlPlane, namespace: str) -> str:
    """Return how many pods must be healthy, and how many are."""
    path = "-o=jsonpath={.status.desiredHealthy} {.status.currentHealthy}"
    return plane.kubectl("-n", namespace, "get", "pdb", "castle-broker", path)


async def test_restart_events_are_found_by_the_uid_of_their_cluster(api_server: ControlPlane) -> None:
    namespace, uid = f"events-{uuid4().hex[:8]}", str(uuid4())
    api_server.kubectl("create", "namespace", namespace)
    cluster = Cluster(metadata=ObjectMeta(name="castle", namespace=namespace, uid=uid), spec=ClusterSpec())
    async with api_of(api_server) as api:
        for pod in (OLD, OLD._replace(broker_id=2, name="castle-broker-2", restart_asked=True)):
            await api.create(restart_event(cluster, pod, NOW))
    chosen = f"--field-selector=involvedObject.kind=Cluster,involvedObject.uid={uid}"
    found = json.loads(api_server.kubectl("-n", namespace, "get", "events", chosen, "-ojson"))["items"]
    assert sorted((each["reason"], each["message"]) for each in found) == [
        ("BrokerRestarted", f"broker 1 restarts: {CHANGED}"),
        ("BrokerRestarted", "broker 2 restarts: an annotation of the pod requests a restart"),
    ]

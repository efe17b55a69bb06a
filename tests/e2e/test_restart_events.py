"""Restarts of brokers are told as Events of their Cluster, which a real API server takes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
from kubernetes_asyncio import client, config

from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.kube.kinds import path_of
from barnabas_operator.planning.pods import BrokerPod
from barnabas_operator.planning.restart_events import restart_event, restart_reason
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.object_meta import ObjectMeta
from e2e.control_plane import ControlPlane

NOW = "2026-01-01T00:00:00Z"
OLD = BrokerPod(1, "castle-broker-1", "u-1", "old", is_ready=True)


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (OLD, "POD_HAS_OLD_REVISION"),
        (OLD._replace(is_ready=False), "POD_STUCK"),
        (OLD._replace(restart_asked=True), "MANUAL_ROLLING_UPDATE"),
        (OLD._replace(restart_asked=True, is_ready=False), "MANUAL_ROLLING_UPDATE"),
    ],
)
def test_the_reason_of_a_restart_is(pod: BrokerPod, reason: str) -> None:
    assert restart_reason(pod).word == reason


def with_api(plane: ControlPlane, work: Callable[[KubeApi], Awaitable[None]]) -> None:
    async def run() -> None:
        chosen = client.Configuration()
        await config.load_kube_config(config_file=str(plane.kubeconfig), client_configuration=chosen)
        async with client.ApiClient(chosen) as connection:
            await work(KubeApi(connection))

    asyncio.run(run())


def test_only_the_very_pod_that_was_seen_is_deleted(api_server: ControlPlane) -> None:
    namespace = f"pods-{uuid4().hex[:8]}"
    api_server.kubectl("create", "namespace", namespace)
    api_server.kubectl("-n", namespace, "create", "serviceaccount", "default")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": OLD.name, "namespace": namespace}}
    body = {**pod, "spec": {"containers": [{"name": "broker", "image": "broker"}]}}

    async def delete_twice(api: KubeApi) -> None:
        uid = (await api.request("POST", path_of("Pod", namespace), body=body))["metadata"]["uid"]
        with pytest.raises(KubeRefused, match="precondition") as refused:
            await api.delete("Pod", namespace, OLD.name, preconditions={"uid": str(uuid4())})
        assert refused.value.status == CONFLICT
        assert await api.get("Pod", namespace, OLD.name) is not None
        await api.delete("Pod", namespace, OLD.name, preconditions={"uid": uid})
        assert await api.get("Pod", namespace, OLD.name) is None

    with_api(api_server, delete_twice)


def test_an_event_is_found_by_its_cluster(api_server: ControlPlane) -> None:
    namespace, uid = f"events-{uuid4().hex[:8]}", str(uuid4())
    api_server.kubectl("create", "namespace", namespace)
    cluster = Cluster(metadata=ObjectMeta(name="castle", namespace=namespace, uid=uid), spec=ClusterSpec())

    async def tell(api: KubeApi) -> None:
        for pod in (OLD, OLD._replace(broker_id=2, name="castle-broker-2", restart_asked=True)):
            await api.create(restart_event(cluster, pod, NOW))

    with_api(api_server, tell)
    chosen = f"--field-selector=involvedObject.kind=Cluster,involvedObject.uid={uid}"
    found = json.loads(api_server.kubectl("-n", namespace, "get", "events", chosen, "-ojson"))["items"]
    assert sorted((each["reason"], each["message"]) for each in found) == [
        ("MANUAL_ROLLING_UPDATE", "broker 2 restarts: its annotation asks for it"),
        ("POD_HAS_OLD_REVISION", "broker 1 restarts: it was made from an older template"),
    ]

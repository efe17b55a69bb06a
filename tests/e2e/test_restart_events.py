"""Restarts of brokers are told as Events of their Cluster, which a real API server takes."""

import asyncio
import json
from uuid import uuid4

import pytest
from kubernetes_asyncio import client, config

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.pods import BrokerPod
from barnabas_operator.planning.restart_events import restart_event, restart_reason
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.object_meta import ObjectMeta
from e2e.control_plane import ControlPlane

NOW = "2026-01-01T00:00:00Z"
OLD = BrokerPod(1, "castle-broker-1", "old", is_ready=True)


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


def test_an_event_is_found_by_its_cluster(api_server: ControlPlane) -> None:
    namespace, uid = f"events-{uuid4().hex[:8]}", str(uuid4())
    api_server.kubectl("create", "namespace", namespace)
    cluster = Cluster(metadata=ObjectMeta(name="castle", namespace=namespace, uid=uid), spec=ClusterSpec())

    async def tell() -> None:
        chosen = client.Configuration()
        await config.load_kube_config(config_file=str(api_server.kubeconfig), client_configuration=chosen)
        async with client.ApiClient(chosen) as connection:
            for pod in (OLD, OLD._replace(broker_id=2, name="castle-broker-2", restart_asked=True)):
                await KubeApi(connection).create(restart_event(cluster, pod, NOW))

    asyncio.run(tell())
    chosen = f"--field-selector=involvedObject.kind=Cluster,involvedObject.uid={uid}"
    found = json.loads(api_server.kubectl("-n", namespace, "get", "events", chosen, "-ojson"))["items"]
    assert sorted((each["reason"], each["message"]) for each in found) == [
        ("MANUAL_ROLLING_UPDATE", "broker 2 restarts: its annotation asks for it"),
        ("POD_HAS_OLD_REVISION", "broker 1 restarts: it was made from an older template"),
    ]

"""Three broker processes with their metadata in a real Kubernetes API: outages of the API server and of brokers."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from barnabas_core.config.definitions import parse_properties
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.reconcile.brokers.broker_reconciler import BrokerReconciler
from barnabas_operator.resources.cluster import Cluster, ClusterDeletionPolicy, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta
from e2e.brokers.brokers_on_the_api import HEARTBEAT_MS, SESSION_MS, prepare, three_with_flights
from harness.cluster import BarnabasCluster, PartitionView
from harness.deadline import wait_for
from harness.soak import size
from harness.worker_world import environment_of
from harness.writer import Writer
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

NOT_RENEWED = "the leases cannot be renewed"
NEVER_MS = 3_600_000


@pytest.fixture
def cluster(tmp_path: Path, api_server: ControlPlane) -> Iterator[BarnabasCluster]:
    with three_with_flights(tmp_path, api_server) as running:
        yield running


def complaints(cluster: BarnabasCluster, number: int) -> int:
    """Return how often this broker could not renew its lease."""
    log = cluster.folder_of(number) / "server.log"
    return log.read_text(encoding="utf-8").count(NOT_RENEWED)


def miss_heartbeats(cluster: BarnabasCluster, count: int) -> None:
    """Wait until each running broker has missed this many heartbeats."""
    goals = {number: complaints(cluster, number) + count for number in cluster.running}
    wait_for(lambda: all(complaints(cluster, number) >= goal for number, goal in goals.items()))


def views(cluster: BarnabasCluster) -> list[PartitionView]:
    return cluster.describe("flights")


@pytest.mark.slow
def test_brokers_serve_and_keep_their_leaders_while_the_api_server_is_down(
    cluster: BarnabasCluster, api_server: ControlPlane
) -> None:
    before = views(cluster)
    with Writer(cluster.client(), "flights", 0) as writer:
        api_server.stop_api_server()
        try:
            wait_for(lambda: len(writer.acknowledged) >= 100)
            miss_heartbeats(cluster, 2 * SESSION_MS // HEARTBEAT_MS)
            written = len(writer.acknowledged)
            wait_for(lambda: len(writer.acknowledged) > written)
            assert views(cluster) == before
        finally:
            api_server.start_api_server()
            api_server.await_ready()
        cluster.create_topic("after", 1, 3)
        assert views(cluster) == before
        api_server.daemons.send("kube-apiserver", signal.SIGSTOP)
        try:
            miss_heartbeats(cluster, 2)
        finally:
            api_server.daemons.send("kube-apiserver", signal.SIGCONT)
        cluster.create_topic("after-that", 1, 3)
        assert views(cluster) == before
    assert cluster.client().read("flights", 0) == writer.acknowledged


@pytest.mark.slow
@pytest.mark.soak
def test_a_killed_broker_restarts_in_its_pod_without_waiting_for_its_lease(
    tmp_path: Path, api_server: ControlPlane
) -> None:
    with closing(prepare(tmp_path, api_server, session_ms=NEVER_MS)) as cluster:
        cluster.start()
        cluster.create_topic("flights", 3, 3, config={"min.insync.replicas": "2"})
        with Writer(cluster.client(), "flights", 0) as writer:
            for number in range(size(1, 3)):
                wait_for(lambda: len(writer.acknowledged) > 0)
                cluster.kill(number)
                cluster.start(number)
                cluster.wait_until_full("flights")
        assert set(cluster.client().read("flights", 0)) >= set(writer.acknowledged)


def written(api_server: ControlPlane, name: str) -> list[str]:
    """Return the objects in the API that brokers of this cluster wrote."""
    found = api_server.kubectl("-n", "default", "get", "statedocuments,leases", "-o=name").split()
    return [each for each in found if each.partition("/")[2].startswith(f"{name}.")]


@pytest.mark.slow
def test_deleting_a_cluster_with_its_disks_deletes_its_leases_and_documents(
    cluster: BarnabasCluster, api_server: ControlPlane
) -> None:
    settings = parse_properties((cluster.folder_of(0) / "server.properties").read_text(encoding="utf-8"))
    name = settings["metadata.store"].value.rpartition("/")[2]
    meta = ObjectMeta(name=name, namespace="default", uid="u")

    async def erase(policy: ClusterDeletionPolicy) -> Refusal | None:
        async with api_client(api_server) as opened:
            gone = Cluster(metadata=meta, spec=ClusterSpec(deletion_policy=policy))
            return await BrokerReconciler(environment_of(KubeApi(opened))).erase(gone)

    for number in range(3):
        cluster.stop(number)
    before = written(api_server, name)
    assert {each.partition(".")[0] for each in before} == {"lease", "statedocument"}
    assert asyncio.run(erase("Retain")) is None
    assert written(api_server, name) == before
    assert asyncio.run(erase("Delete")) is None
    assert written(api_server, name) == []

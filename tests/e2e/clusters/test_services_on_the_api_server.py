"""Services of listeners and brokers that are no more go, on a real API server."""

import asyncio
import json
from uuid import uuid4

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.manifests.cluster_objects import supporting_objects
from barnabas_operator.planning.brokers.pods import BrokerSet, PodsState
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects
from barnabas_operator.reconcile.brokers.garbage_collector import GarbageCollector
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener
from barnabas_operator.resources.object_meta import ObjectMeta
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

INSIDE = Listener(name="plain", port=9092)
BY_NODE = Listener(name="by-node", port=9094, type="nodeport")
BALANCED = Listener(name="balanced", port=9095, type="loadbalancer")
ALWAYS = {"castle-broker", "castle-bootstrap"}


def cluster_of(namespace: str, generation: int, replicas: int, *listeners: Listener) -> Cluster:
    meta = ObjectMeta(name="castle", namespace=namespace, generation=generation, uid=f"uid-of-{namespace}")
    return Cluster(metadata=meta, spec=ClusterSpec(brokers=Brokers(replicas=replicas), listeners=listeners))


def names(listener: Listener, brokers: int) -> set[str]:
    each = {f"castle-broker-{number}-{listener.name}" for number in range(brokers)}
    return {f"castle-bootstrap-{listener.name}", *each}


def test_services_of_removed_listeners_and_brokers_are_deleted(api_server: ControlPlane) -> None:
    namespace = f"leftovers-{uuid4().hex[:8]}"
    api_server.kubectl("create", "namespace", namespace)
    api_server.kubectl("-n", namespace, "create", "service", "clusterip", "somebodys", "--tcp=80")
    api_server.kubectl("-n", namespace, "label", "service", "somebodys", "barnabas.dev/cluster=castle")

    def found() -> set[str]:
        listed = json.loads(api_server.kubectl("-n", namespace, "get", "services", "-ojson"))
        return {each["metadata"]["name"] for each in listed["items"]} - {"somebodys"}

    async def run() -> None:
        async with api_client(api_server) as connection:
            api = KubeApi(connection)
            leftovers = GarbageCollector(api, AppliedObjects(api))
            for each in supporting_objects(cluster_of(namespace, 1, 3, INSIDE, BY_NODE, BALANCED)):
                await api.apply(each)
            assert found() == ALWAYS | names(BY_NODE, 3) | names(BALANCED, 3)
            await leftovers.remove(
                cluster_of(namespace, 2, 3, INSIDE, BALANCED), PodsState(BrokerSet(3, "r", {})), None
            )
            assert found() == ALWAYS | names(BALANCED, 3)
            for there in (3, 2, 1):
                await leftovers.remove(
                    cluster_of(namespace, 3, 1, INSIDE, BALANCED), PodsState(BrokerSet(there, "r", {})), None
                )
                assert found() == ALWAYS | names(BALANCED, there)
            await leftovers.remove(cluster_of(namespace, 4, 1, INSIDE), PodsState(BrokerSet(1, "r", {})), None)
            assert found() == ALWAYS

    asyncio.run(run())
    assert api_server.kubectl("-n", namespace, "get", "service", "somebodys", "-oname") == "service/somebodys\n"

"""A deleted Service returns with its node port, on a real API server; if it cannot, brokers restart with a new one."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.gather import RESTART_ASKED, Nodes, gather_pods
from barnabas_operator.manifests.cluster_objects import broker_objects
from barnabas_operator.manifests.kube_object import NOBODY_ELSE
from barnabas_operator.planning.brokers.pods import PodsState, stale_addresses
from barnabas_operator.planning.object_names import selector
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, SupportingObjects
from barnabas_operator.reconcile.brokers.broker_reconciler import mark_stale_pods
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

BROKER_0, BOOTSTRAP = "castle-broker-0-outside", "castle-bootstrap-outside"


class Outside:
    """A Cluster of two brokers at node ports, and rounds of an operator over its objects."""

    def __init__(self, plane: ControlPlane, api: KubeApi, namespace: str) -> None:
        self.plane, self.api, self.namespace = plane, api, namespace
        listeners = (Listener(name="plain"), Listener(name="outside", port=9094, type="nodeport"))
        meta = ObjectMeta(name="castle", namespace=namespace, uid=f"uid-of-{namespace}")
        spec = ClusterSpec(brokers=Brokers(replicas=2), listeners=listeners)
        self.cluster = Cluster(metadata=meta, spec=spec)

    async def round(self) -> PodsState:
        """Do a round of an operator that has just started; return the state of the pods after it."""
        objects = AppliedObjects(self.api)
        assert await SupportingObjects(self.api, objects, NOBODY_ELSE).apply(self.cluster, places=2) is None
        found = await gather_pods(self.api, self.cluster, Nodes(self.api))
        await mark_stale_pods(self.api, self.cluster, found)
        for each in broker_objects(self.cluster, found.external, "broker:dev", 2):
            await objects.apply(self.cluster, each)
        return await gather_pods(self.api, self.cluster, Nodes(self.api))

    def port(self, service: str) -> int:
        found = self.plane.requests.get("Service", self.namespace, service)
        assert found is not None, f"Service {service} is gone"
        return int(found["spec"]["ports"][0]["nodePort"])

    def delete(self, service: str) -> None:
        self.plane.requests.delete("Service", self.namespace, service)

    def take(self, port: int) -> None:
        """Make another Service with this node port."""
        spec = {"type": "NodePort", "selector": {"app": "other"}, "ports": [{"port": 80, "nodePort": port}]}
        meta = {"name": "thief", "namespace": self.namespace}
        self.plane.requests.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})

    def make_pod(self, number: int) -> None:
        labels = {**selector("castle"), "controller-revision-hash": "r"}
        meta = {"name": f"castle-broker-{number}", "namespace": self.namespace, "labels": labels}
        spec = {"serviceAccountName": "castle-broker", "containers": [{"name": "broker", "image": "broker:dev"}]}
        self.plane.requests.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def annotations(self, number: int) -> dict[str, str]:
        found = self.plane.requests.get("Pod", self.namespace, f"castle-broker-{number}") or {}
        annotations: dict[str, str] = found["metadata"].get("annotations", {})
        return annotations


@asynccontextmanager
async def playing(plane: ControlPlane) -> AsyncIterator[Outside]:
    namespace = f"ports-{uuid4().hex[:8]}"
    plane.requests.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    async with api_client(plane) as opened:
        yield Outside(plane, KubeApi(opened), namespace)


async def test_deleted_services_are_created_again_with_their_node_ports(api_server: ControlPlane) -> None:
    async with playing(api_server) as outside:
        await outside.round()
        before = {name: outside.port(name) for name in (BROKER_0, BOOTSTRAP)}
        for name in before:
            outside.delete(name)
        outside.make_pod(0)
        found = await outside.round()
        assert {name: outside.port(name) for name in before} == before
        assert RESTART_ASKED not in outside.annotations(0)
        assert stale_addresses(found) is None


async def test_a_broker_whose_node_port_was_taken_restarts_and_the_cluster_reports_it(
    api_server: ControlPlane,
) -> None:
    async with playing(api_server) as outside:
        await outside.round()
        for number in range(2):
            outside.make_pod(number)
        before = outside.port(BROKER_0)
        outside.delete(BROKER_0)
        outside.take(before)
        found = await outside.round()
        after = outside.port(BROKER_0)
        assert after != before
        assert outside.annotations(0)[RESTART_ASKED] == "true"
        assert RESTART_ASKED not in outside.annotations(1)
        told = stale_addresses(found)
        message = (
            f"castle-broker-0 still advertises the address {before} for listener outside, "
            f"but the address is now {after}; brokers with an old address restart"
        )
        assert told == ("WaitingForAddresses", message)
        found = await outside.round()
        assert outside.port(BROKER_0) == after, "the new port must be kept"
        files = outside.plane.kubectl("-n", outside.namespace, "get", "configmaps", "-ojson")
        (made,) = (each for each in json.loads(files)["items"] if each["metadata"]["name"].startswith("castle-broker-"))
        assert f":{after}\n" in made["data"]["castle-broker-0.properties"].replace(",", "\n")

"""The Services of a Cluster: a headless Service, bootstrap Services, and external Services for each broker."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas_operator.manifests.kube_object import KubeObject, kube_object, patch_of
from barnabas_operator.planning.brokers.ownership import is_owned
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.object_names import (
    BROKER_LABEL,
    HTTP_PORT,
    LISTENER_LABEL,
    REPLICATION_PORT,
    bootstrap_name,
    broker_service_name,
    brokers_name,
    pod_name,
    selector,
)
from barnabas_operator.resources.cluster import Cluster, Listener

SERVICE_TYPES: Final = {"internal": "ClusterIP", "nodeport": "NodePort", "loadbalancer": "LoadBalancer"}


def services(cluster: Cluster, replicas: int) -> list[KubeObject]:
    """Return all Services of a Cluster with `replicas` brokers."""
    outside = [each for each in cluster.spec.listeners if each.type != "internal"]
    return [
        _headless(cluster),
        _bootstrap(cluster),
        *(_bootstrap_outside(cluster, each) for each in outside),
        *(_of_broker(cluster, each, number) for each in outside for number in range(replicas)),
    ]


def with_node_port(item: KubeObject, given: Mapping[str, str]) -> KubeObject:
    """Return a NodePort Service with its previous node port if it declares none; return other objects unchanged."""
    if item["kind"] != "Service" or item["spec"].get("type") != "NodePort":
        return item
    (first, *others), before = item["spec"]["ports"], given.get(item["metadata"]["name"], "")
    if not before.isdecimal() or "nodePort" in first:
        return item
    return {**item, "spec": {**item["spec"], "ports": [{**first, "nodePort": int(before)}, *others]}}


def leftover_services(cluster: Cluster, pods: PodsState, found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the Cluster's Services that can be deleted.

    The Service of a broker stays until the broker is removed. The Services of a removed listener stay until all brokers
    have restarted, because clients can use the listener until then.
    """
    wanted = {each["metadata"]["name"] for each in services(cluster, max(pods.count, cluster.spec.brokers.replicas))}
    declared = {each.name for each in cluster.spec.listeners if each.type != "internal"}
    return [
        each
        for each in found
        if is_owned(cluster, each)
        and each["metadata"]["name"] not in wanted
        and (pods.is_rolled_out or each["metadata"]["labels"].get(LISTENER_LABEL) in declared)
    ]


def _headless(cluster: Cluster) -> KubeObject:
    """Return the headless Service, by which brokers connect to each other even before they are ready."""
    ports = [_port("replication", REPLICATION_PORT), _port("http", HTTP_PORT), *_listener_ports(cluster)]
    return kube_object(
        "v1",
        "Service",
        cluster,
        brokers_name(cluster.metadata.name),
        patches=[patch_of(cluster.spec.template.brokers_service)],
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(selector(cluster.metadata.name)),
            "ports": ports,
        },
    )


def _bootstrap(cluster: Cluster) -> KubeObject:
    name = cluster.metadata.name
    ports = _listener_ports(cluster) or [_port("replication", REPLICATION_PORT)]
    patches = [patch_of(cluster.spec.template.bootstrap_service)]
    spec = {"selector": dict(selector(name)), "ports": ports}
    return kube_object("v1", "Service", cluster, bootstrap_name(name), patches=patches, spec=spec)


def _bootstrap_outside(cluster: Cluster, listener: Listener) -> KubeObject:
    name = cluster.metadata.name
    spec = {
        "type": SERVICE_TYPES[listener.type],
        "selector": dict(selector(name)),
        "ports": [_port(listener.name, listener.port)],
    }
    patches = [patch_of(listener.template.bootstrap_service)]
    return kube_object("v1", "Service", cluster, f"{bootstrap_name(name)}-{listener.name}", patches=patches, spec=spec)


def _of_broker(cluster: Cluster, listener: Listener, broker_id: int) -> KubeObject:
    """Return the external Service of one broker, which reaches the broker even before it is ready."""
    name = cluster.metadata.name
    spec = {
        "type": SERVICE_TYPES[listener.type],
        "publishNotReadyAddresses": True,
        "selector": {"statefulset.kubernetes.io/pod-name": pod_name(name, broker_id)},
        "ports": [_port(listener.name, listener.port)],
    }
    more = {BROKER_LABEL: str(broker_id), LISTENER_LABEL: listener.name}
    own = (each for each in listener.template.broker_services if each.broker_id == broker_id)
    return kube_object(
        "v1",
        "Service",
        cluster,
        broker_service_name(name, listener.name, broker_id),
        more_labels=more,
        patches=[patch_of(listener.template.broker_service), *map(patch_of, own)],
        spec=spec,
    )


def _listener_ports(cluster: Cluster) -> list[KubeObject]:
    return [_port(each.name, each.port) for each in cluster.spec.listeners if each.type == "internal"]


def _port(name: str, port: int) -> KubeObject:
    return {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}

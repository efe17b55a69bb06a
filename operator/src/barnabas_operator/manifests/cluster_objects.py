"""The Kubernetes objects that a Cluster owns, in the order in which they are applied."""

from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from barnabas_core.conventions import credential_secrets
from barnabas_operator.manifests.kube_object import (
    MONITORING,
    NOBODY_ELSE,
    KubeObject,
    Neighbours,
    broker_access,
    disruption_budget,
    kube_object,
    network_policy,
    patch_of,
    pod_monitor,
    role_binding,
)
from barnabas_operator.manifests.lag_exporter import lag_exporter_objects
from barnabas_operator.manifests.stateful_set import config_map, stateful_set
from barnabas_operator.planning.brokers.broker_security import is_secured
from barnabas_operator.planning.brokers.cluster_secrets import WantedSecret
from barnabas_operator.planning.brokers.pods import ExternalAccess, PodsState, is_owned
from barnabas_operator.planning.object_names import (
    BROKER_LABEL,
    HTTP_PORT,
    LISTENER_LABEL,
    REPLICATION_PORT,
    bootstrap_name,
    broker_service_name,
    brokers_name,
    credentials_access_name,
    pod_name,
    selector,
)
from barnabas_operator.resources.cluster import Cluster, Listener
from barnabas_operator.resources.cluster_kind import RBAC, credential_rules
from barnabas_operator.resources.quantity import ClusterTemplate, ListenerTemplate
from barnabas_operator.resources.security import LagExporterResources, LagExporterTemplate


def secret(cluster: Cluster, wanted: WantedSecret) -> KubeObject:
    """Return a Secret. It has no owner reference if it must outlive its Cluster."""
    made = kube_object(
        "v1", "Secret", cluster, wanted.name, annotations=wanted.marks, type="Opaque", data=_encoded(wanted.data)
    )
    return _without_owner(made) if wanted.outlives else made


def credential_objects(cluster: Cluster) -> list[KubeObject]:
    """Return the empty Secrets that brokers fill with SCRAM credentials, with Role and RoleBinding.

    Nothing is returned for a Cluster without security. The Secrets outlive the Cluster, so that users keep their
    passwords.
    """
    if not is_secured(cluster):
        return []
    name = credentials_access_name(cluster.metadata.name)
    secrets = [
        _without_owner(kube_object("v1", "Secret", cluster, each, type="Opaque"))
        for each in credential_secrets(cluster.metadata.name)
    ]
    role = kube_object(f"{RBAC}/v1", "Role", cluster, name, rules=credential_rules(cluster.metadata.name))
    return [*secrets, role, role_binding(cluster, name, "Role", name, brokers_name(cluster.metadata.name))]


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {name: b64encode(value).decode() for name, value in data.items()}


def _without_owner(item: KubeObject) -> KubeObject:
    meta = {name: value for name, value in item["metadata"].items() if name != "ownerReferences"}
    return {**item, "metadata": meta}


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


def supporting_objects(
    cluster: Cluster, apis: Collection[str] = (), neighbours: Neighbours = NOBODY_ELSE, places: int = 0
) -> list[KubeObject]:
    """Return the objects that do not depend on the brokers' external addresses, such as Services.

    `apis` has the optional API groups of the API server; without the PodMonitor's group, no PodMonitor is returned.
    A broker with an id below `places` gets external Services even if it is no longer declared, because clients may
    connect to the broker until it is removed.
    """
    reached_by = services(cluster, max(places, cluster.spec.brokers.replicas))
    access = (*broker_access(cluster), *credential_objects(cluster))
    objects = [*access, *reached_by, disruption_budget(cluster), network_policy(cluster, neighbours)]
    return [*objects, pod_monitor(cluster, neighbours)] if MONITORING in apis else objects


def templated_objects(cluster: Cluster, image: str) -> list[KubeObject]:
    """Return the objects whose content depends on templates, network policy peers or the lag exporter's resources.

    Only the API server can validate these fields. `image` is the lag exporter's image if the Cluster declares none.
    """
    listeners = tuple(
        replace(each, template=ListenerTemplate(), network_policy_peers=()) for each in cluster.spec.listeners
    )
    exporter = cluster.spec.lag_exporter and replace(
        cluster.spec.lag_exporter, template=LagExporterTemplate(), resources=LagExporterResources()
    )
    spec = replace(cluster.spec, template=ClusterTemplate(), listeners=listeners, lag_exporter=exporter)
    both = zip(_judged_apart(cluster, image), _judged_apart(replace(cluster, spec=spec), image), strict=True)
    return [changed for changed, made in both if changed != made]


def _judged_apart(cluster: Cluster, image: str) -> list[KubeObject]:
    return [*supporting_objects(cluster), *lag_exporter_objects(cluster, image, (), NOBODY_ELSE)]


def broker_objects(cluster: Cluster, external: ExternalAccess, image: str, replicas: int) -> list[KubeObject]:
    """Return the ConfigMap and the StatefulSet of the brokers. `image` is used if the Cluster declares none."""
    return [
        config_map(cluster, external, replicas),
        stateful_set(cluster, external, cluster.spec.brokers.image or image, replicas),
    ]

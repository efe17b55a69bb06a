"""Reads a Cluster's pods, StatefulSet, claims and Services from the API server."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.claims import claims_there
from barnabas_operator.kube.nodes import Nodes, addresses_of
from barnabas_operator.manifests.stateful_set import BROKER
from barnabas_operator.planning.brokers.broker_security import SecurityStage, stage_in
from barnabas_operator.planning.brokers.pods import (
    BrokerPod,
    BrokerSet,
    ExternalAccess,
    PodsState,
    is_outside,
    is_owned,
    node_host,
)
from barnabas_operator.planning.object_names import (
    ACCOUNT,
    BROKER_LABEL,
    CLUSTER_LABEL,
    GIVEN,
    LISTENER_LABEL,
    RESTART,
    SECURITY_STAGE,
    STALE,
    bootstrap_name,
    broker_of,
    brokers_name,
    selector,
)
from barnabas_operator.planning.status.pod_troubles import pod_trouble, runs
from barnabas_operator.resources.cluster import Cluster, Volume
from barnabas_operator.resources.foreign_json import foreign_json
from barnabas_operator.resources.json_types import Json

RESTART_ASKED: Final = "barnabas.dev/manual-rolling-update"
REVISION: Final = "controller-revision-hash"


async def gather_pods(api: KubeApi, cluster: Cluster, nodes: Nodes) -> PodsState:
    """Return the state of a Cluster's pods, StatefulSet, claims and Services. Raises KubeUnreachable and KubeRefused.

    Nodes are read, too, if the Cluster needs their labels or addresses.
    """
    name, namespace = cluster.metadata.name, cluster.metadata.namespace or "default"
    needs_nodes = cluster.spec.brokers.rack is not None or any(each.is_at_node for each in cluster.spec.listeners)
    found, account, pods, claims, services = await asyncio.gather(
        api.get("StatefulSet", namespace, brokers_name(name)),
        api.get("ServiceAccount", namespace, brokers_name(name)),
        api.listing("Pod", namespace, selector(name)),
        claims_there(api, cluster),
        api.listing("Service", namespace, {CLUSTER_LABEL: name}) if is_outside(cluster) else _nothing(),
    )
    names = {each["spec"].get("nodeName", "") for each in pods} - {""}
    node_of = await nodes.of(names) if needs_nodes else {}
    broker_set = _broker_set(found) if found is not None and is_owned(cluster, found) else None
    account_uid = account["metadata"]["uid"] if account is not None else _account_given(found)
    brokers = list(_brokers(cluster, pods, node_of, account_uid))
    return PodsState(
        broker_set,
        {pod.broker_id: pod for pod in brokers},
        ExternalAccess(
            _node_ports(services),
            _balancer_hosts(services, broker_set.given if broker_set is not None else {}),
            _node_hosts(cluster, brokers),
            _bootstrap_ports(cluster, services),
            _bootstrap_hosts(cluster, services),
            account_uid,
        ),
        claims,
    )


async def _nothing() -> list[dict[str, Any]]:
    """Return no Services, for a Cluster without external listeners."""
    return []


def _broker_set(found: Json) -> BrokerSet:
    """Return the state of a StatefulSet.

    The update revision is empty until the StatefulSet controller has observed the current pod template.
    """
    status = found.get("status", {})
    is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
    volumes = {claim["metadata"]["name"]: _volume(claim) for claim in found["spec"].get("volumeClaimTemplates", ())}
    revision = status.get("updateRevision", "") if is_seen else ""
    is_ending = "deletionTimestamp" in found["metadata"]
    template = found["spec"].get("template", {})
    pod = template.get("spec", {})
    image = next((each.get("image", "") for each in pod.get("containers", ()) if each["name"] == BROKER), "")
    replicas, given = found["spec"]["replicas"], addresses_given(found)
    restart = template.get("metadata", {}).get("annotations", {}).get(RESTART, "")
    return BrokerSet(replicas, revision, volumes, is_ending, given, image, _stage(template), restart)


def _stage(found: Json) -> SecurityStage:
    return stage_in(found.get("metadata", {}).get("annotations", {}).get(SECURITY_STAGE, ""))


def addresses_given(broker_set: Json) -> Mapping[str, str]:
    """Return the external addresses that brokers advertise, from an annotation of the StatefulSet; empty if invalid."""
    return foreign_json(broker_set["metadata"].get("annotations", {}).get(GIVEN, "{}"), dict[str, str]) or {}


def _volume(claim: Json) -> Volume:
    asked, name = claim["spec"], claim["metadata"]["name"]
    size, storage_class = asked["resources"]["requests"]["storage"], asked.get("storageClassName")
    return Volume(id=int(name.rpartition("-")[2]), size=size, storage_class=storage_class)


def _account_given(found: Json | None) -> str:
    """Return the ServiceAccount's uid from the StatefulSet's annotation, for use if the ServiceAccount is missing."""
    template = found["spec"]["template"] if found is not None else {}
    return str(template.get("metadata", {}).get("annotations", {}).get(ACCOUNT, ""))


def _brokers(
    cluster: Cluster, pods: Iterable[Json], node_of: Mapping[str, Json], account_uid: str
) -> Iterator[BrokerPod]:
    for each in pods:
        broker_id = broker_of(each["metadata"]["name"], cluster.metadata.name)
        if broker_id is not None:
            yield _pod(cluster, broker_id, each, node_of.get(each["spec"].get("nodeName", ""), {}), account_uid)


def _pod(cluster: Cluster, broker_id: int, found: Json, node: Json, account_uid: str) -> BrokerPod:
    meta, status, rack = found["metadata"], found.get("status", {}), cluster.spec.brokers.rack
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    is_ready = conditions.get("Ready") == "True"
    return BrokerPod(
        broker_id,
        meta["name"],
        meta["uid"],
        meta["labels"].get(REVISION, ""),
        is_ready=is_ready,
        restart_asked=_is_asked(found),
        rack=_labels(node).get(rack.topology_key) if rack is not None else None,
        trouble=pod_trouble(found),
        volumes=frozenset(_claim_templates(found)),
        host_ip=status.get("hostIP", ""),
        node_addresses=addresses_of(node),
        is_down=not is_ready and not runs(found),
        made_at=meta.get("creationTimestamp", ""),
        ends_at=meta.get("deletionTimestamp", ""),
        node=found["spec"].get("nodeName", ""),
        stale=meta.get("annotations", {}).get(STALE, ""),
        stage=_stage(found),
        is_cut_off=meta.get("annotations", {}).get(ACCOUNT, account_uid) != account_uid,
    )


def _claim_templates(found: Json) -> Iterator[str]:
    """Yield the name of the claim template of each of a pod's claims; a claim is named TEMPLATE-POD."""
    for volume in found["spec"].get("volumes", ()):
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"].removesuffix(f"-{found['metadata']['name']}")


def _is_asked(found: Json) -> bool:
    annotations: Mapping[str, str] = found["metadata"].get("annotations", {})
    return annotations.get(RESTART_ASKED) == "true"


def _node_ports(services: Iterable[Json]) -> dict[tuple[str, int], int]:
    return {key: port.get("nodePort", 0) for key, each in _of_brokers(services) for port in each["spec"]["ports"]}


def _bootstrap_ports(cluster: Cluster, services: Iterable[Json]) -> dict[str, int]:
    return {name: each["spec"]["ports"][0].get("nodePort", 0) for name, each in _of_bootstrap(cluster, services)}


def _bootstrap_hosts(cluster: Cluster, services: Iterable[Json]) -> frozenset[str]:
    return frozenset(host for _, each in _of_bootstrap(cluster, services) for host in _ingress_hosts(each))


def _of_bootstrap(cluster: Cluster, services: Iterable[Json]) -> Iterator[tuple[str, Json]]:
    """Yield the bootstrap Service of each external listener, with the listener's name."""
    names = {f"{bootstrap_name(cluster.metadata.name)}-{each.name}": each.name for each in cluster.spec.listeners}
    for each in services:
        name = names.get(each["metadata"].get("name"))
        if name is not None:
            yield name, each


def _ingress_hosts(service: Json) -> list[str]:
    """Return the host name or address of each of a Service's load balancers."""
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress", ())
    return [host for each in ingress if (host := each.get("hostname") or each.get("ip"))]


def _balancer_hosts(services: Iterable[Json], given: Mapping[str, str]) -> dict[tuple[str, int], str]:
    """Return an address of each broker's load balancer. An address that the broker already advertises is preferred."""
    hosts: dict[tuple[str, int], str] = {}
    for key, service in _of_brokers(services):
        found = _ingress_hosts(service)
        advertised = given.get(service["metadata"]["name"], "")
        if found:
            hosts[key] = advertised if advertised in found else found[0]
    return hosts


def _of_brokers(services: Iterable[Json]) -> Iterator[tuple[tuple[str, int], Json]]:
    """Yield the Services of single brokers, each with its listener name and broker id."""
    for service in services:
        labels = _labels(service)
        if BROKER_LABEL in labels:
            yield (labels[LISTENER_LABEL], int(labels[BROKER_LABEL])), service


def _node_hosts(cluster: Cluster, pods: Iterable[BrokerPod]) -> dict[tuple[str, int], str]:
    return {
        (each.name, pod.broker_id): node_host(pod.node_addresses, pod.host_ip, each.preferred_node_port_address_type)
        for each in cluster.spec.listeners
        if each.is_at_node
        for pod in pods
        if pod.host_ip
    }


def _labels(found: Json) -> Mapping[str, str]:
    labels: Mapping[str, str] = found.get("metadata", {}).get("labels", {})
    return labels

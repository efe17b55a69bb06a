"""Gathers what Kubernetes has of a Cluster: pods, their revision and place, addresses for the outside."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.facts import Facts, is_outside, takes_node_address
from barnabas_operator.planning.object_names import BROKER_LABEL, CLUSTER_LABEL, LISTENER_LABEL, brokers_name, selector
from barnabas_operator.planning.pods import BrokerPod, BrokerSet, PodsState
from barnabas_operator.resources.cluster import Cluster, Volume

RESTART_ASKED: Final = "barnabas.dev/manual-rolling-update"
STARTS: Final = "ContainerCreating"
REVISION: Final = "controller-revision-hash"
ADDRESSES: Final = ("ExternalIP", "InternalIP")
Json = Mapping[str, Any]


async def gather_pods(api: KubeApi, cluster: Cluster) -> PodsState:
    """What is so now. Raises KubeUnreachable and KubeRefused."""
    name, namespace = cluster.metadata.name, cluster.metadata.namespace or "default"
    rack, by_node = cluster.spec.brokers.rack, takes_node_address(cluster)
    found, pods, services, nodes = await asyncio.gather(
        api.get("StatefulSet", namespace, brokers_name(name)),
        api.listing("Pod", namespace, selector(name)),
        api.listing("Service", namespace, {CLUSTER_LABEL: name}) if is_outside(cluster) else _nothing(),
        api.listing("Node", None, {}) if rack or by_node else _nothing(),
    )
    racks = {node["metadata"]["name"]: _labels(node).get(rack.topology_key) for node in nodes} if rack else {}
    return PodsState(
        _broker_set(found) if found is not None else None,
        {pod.broker_id: pod for pod in (_pod(each, racks) for each in pods)},
        _facts(services, nodes if by_node else (), _told_hosts(cluster)),
    )


async def _nothing() -> list[dict[str, Any]]:
    """A round comes twice a second: what the Cluster has no use for is not asked for. Nodes may be thousands."""
    return []


def _broker_set(found: Json) -> BrokerSet:
    """The revision counts once Kubernetes has seen the template that is there."""
    status = found.get("status", {})
    is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
    volumes = {claim["metadata"]["name"]: _volume(claim) for claim in found["spec"].get("volumeClaimTemplates", ())}
    return BrokerSet(found["spec"]["replicas"], status.get("updateRevision", "") if is_seen else "", volumes)


def _volume(claim: Json) -> Volume:
    asked, name = claim["spec"], claim["metadata"]["name"]
    size, storage_class = asked["resources"]["requests"]["storage"], asked.get("storageClassName")
    return Volume(id=int(name.rpartition("-")[2]), size=size, storage_class=storage_class)


def _pod(found: Json, racks: Mapping[str, str | None]) -> BrokerPod:
    meta, status = found["metadata"], found.get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    return BrokerPod(
        int(meta["name"].rpartition("-")[2]),
        meta["name"],
        meta["uid"],
        meta["labels"].get(REVISION, ""),
        is_ready=conditions.get("Ready") == "True",
        is_ending="deletionTimestamp" in meta,
        restart_asked=_is_asked(found),
        rack=racks.get(found["spec"].get("nodeName", "")),
        trouble=_trouble(status),
        volumes=frozenset(_claim_templates(found)),
    )


def _claim_templates(found: Json) -> Iterator[str]:
    """A StatefulSet names a pod's claim after its template and the pod."""
    for volume in found["spec"].get("volumes", ()):
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"].removesuffix(f"-{found['metadata']['name']}")


def _is_asked(found: Json) -> bool:
    annotations: Mapping[str, str] = found["metadata"].get("annotations", {})
    return annotations.get(RESTART_ASKED) == "true"


def _trouble(status: Json) -> str:
    """Why the pod is not placed, or its container not running: what it said last, if it has ended."""
    for container in status.get("containerStatuses", ()):
        ended = container["state"].get("terminated") or container.get("lastState", {}).get("terminated")
        if "running" not in container["state"] and ended is not None and ended.get("message"):
            return str(ended["message"]).strip().splitlines()[-1]
        if container["state"].get("waiting", {}).get("reason", STARTS) != STARTS:
            return _words(container["state"]["waiting"])
    unplaced = (each for each in status.get("conditions", ()) if each.get("reason") == "Unschedulable")
    return next(map(_words, unplaced), "")


def _words(said: Json) -> str:
    return ": ".join(filter(None, (said.get("reason"), said.get("message"))))


def _facts(services: Iterable[Json], nodes: Iterable[Json], told: Collection[str]) -> Facts:
    ports: dict[tuple[str, int], int] = {}
    balancers: dict[tuple[str, int], str] = {}
    for service in services:
        labels = _labels(service)
        if BROKER_LABEL not in labels:
            continue
        key = labels[LISTENER_LABEL], int(labels[BROKER_LABEL])
        for port in service["spec"]["ports"]:
            ports[key] = port.get("nodePort", 0)
        for balancer in service.get("status", {}).get("loadBalancer", {}).get("ingress", ()):
            balancers.setdefault(key, balancer.get("hostname") or balancer["ip"])
    return Facts(ports, balancers, _address(nodes, told))


def _told_hosts(cluster: Cluster) -> set[str]:
    """What clients have been told so far."""
    listeners = cluster.status.listeners if cluster.status is not None else ()
    return {server.rpartition(":")[0] for each in listeners for server in each.bootstrap_servers.split(",")}


def _address(nodes: Iterable[Json], told: Collection[str]) -> str | None:
    """Any node leads to any broker. As long as it is there, the one that was told: with another all brokers restart."""
    by_kind = {
        (each["type"], node["metadata"]["name"]): each["address"]
        for node in nodes
        for each in node.get("status", {}).get("addresses", ())
    }
    ordered = [by_kind[key] for kind in ADDRESSES for key in sorted(by_kind) if key[0] == kind]
    return next((address for address in ordered if address in told), next(iter(ordered), None))


def _labels(found: Json) -> Mapping[str, str]:
    labels: Mapping[str, str] = found["metadata"].get("labels", {})
    return labels

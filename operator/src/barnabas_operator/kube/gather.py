"""Reads a Cluster's pods, StatefulSet, claims and Services from the API server."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from barnabas_operator.kube.api import NOT_FOUND, KubeApi, KubeRefused
from barnabas_operator.manifests.cluster_objects import BROKER
from barnabas_operator.planning.brokers.broker_security import SecurityStage, stage_in
from barnabas_operator.planning.brokers.cluster_checks import StorageClasses, storage_classes_of
from barnabas_operator.planning.brokers.pods import (
    BrokerClaim,
    BrokerPod,
    BrokerSet,
    ExternalAccess,
    PodsState,
    is_outside,
    is_owned,
    node_host,
    resize_of,
)
from barnabas_operator.planning.maintenance.observed_run import (
    NOTHING_SEEN,
    ObservedRun,
    observed_run,
    with_application,
)
from barnabas_operator.planning.object_names import (
    ACCOUNT,
    BROKER_LABEL,
    CLUSTER_LABEL,
    EMPTIED_LABEL,
    GIVEN,
    LISTENER_LABEL,
    MAINTENANCE_JOB_LABEL,
    RESTART,
    SECURITY_STAGE,
    STALE,
    application_name,
    bootstrap_name,
    broker_of,
    brokers_name,
    disk_of,
    driver_name,
    maintenance_selector,
    pod_name,
    selector,
)
from barnabas_operator.planning.status.cluster_events import last_warning, pod_trouble, runs
from barnabas_operator.resources.cluster import Cluster, Volume
from barnabas_operator.resources.kind import Json, foreign_json
from barnabas_operator.resources.maintenance_run import MaintenanceJob

CLAIM: Final = "PersistentVolumeClaim"
HAVE_OR_HAD_A_VOLUME: Final = ("Bound", "Lost")
"""The phases of claims that are bound to a volume, or whose volume no longer exists."""


async def claims_of(api: KubeApi, cluster: Cluster) -> list[BrokerClaim]:
    """Return the claims of a Cluster's brokers, except claims that are being deleted.

    Raises KubeUnreachable and KubeRefused.
    """
    return [claim for claim in await claims_there(api, cluster) if not claim.is_ending]


async def claims_there(api: KubeApi, cluster: Cluster) -> list[BrokerClaim]:
    """Return all claims of a Cluster's brokers, even claims that are being deleted.

    Raises KubeUnreachable and KubeRefused.
    """
    namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
    listed = await api.listing(CLAIM, namespace, {CLUSTER_LABEL: name})
    return [claim for each in listed for claim in _claims(each, name)]


async def storage_classes(api: KubeApi, cluster: Cluster) -> StorageClasses:
    """Return the storage classes. Raises KubeUnreachable and KubeRefused.

    If the Cluster names a StorageClass that does not exist, the result also has each `storageClassName` of the
    PersistentVolumes, because volumes that were created manually need no StorageClass.
    """
    classes = storage_classes_of(await api.listing("StorageClass", None, {}))
    if not any(map(classes.lacks, cluster.spec.storage.volumes)):
        return classes
    made = await api.listing("PersistentVolume", None, {})
    return classes.with_names(each["spec"].get("storageClassName", "") for each in made)


async def mark_emptied(api: KubeApi, cluster: Cluster, claim: BrokerClaim, *, is_emptied: bool) -> None:
    """Label a claim whose broker was drained, or remove the label. Raises KubeUnreachable and KubeRefused."""
    change = {"metadata": {"labels": {EMPTIED_LABEL: "true" if is_emptied else None}}}
    await api.patch(CLAIM, cluster.metadata.namespace or "default", claim.name, change)


def _claims(found: Mapping[str, Any], cluster: str) -> Iterator[BrokerClaim]:
    meta, spec = found["metadata"], found["spec"]
    disk = disk_of(meta["name"], cluster)
    if disk is None:
        return
    size, storage_class = spec["resources"]["requests"]["storage"], spec.get("storageClassName")
    is_emptied, is_ending = EMPTIED_LABEL in meta["labels"], "deletionTimestamp" in meta
    resize = resize_of(found, pod_name(cluster, disk[1]))
    is_bound = bool(spec.get("volumeName")) or found.get("status", {}).get("phase") in HAVE_OR_HAD_A_VOLUME
    version = meta.get("resourceVersion", "")
    yield BrokerClaim(
        meta["name"], meta["uid"], *disk, size, storage_class, is_emptied, is_ending, resize, is_bound, version
    )


def addresses_of(node: Json) -> Mapping[str, str]:
    """Return the first address of each type of a node."""
    # Later addresses are inserted first, so that the first one of a type remains.
    return {each["type"]: each["address"] for each in reversed(node.get("status", {}).get("addresses", ()))}


class Nodes:
    """The cached nodes, which are read again only after `forget`."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._found: dict[str, Json] = {}
        self._has_all = False

    def forget(self) -> None:
        """Empty the cache."""
        self._found.clear()
        self._has_all = False

    async def all(self) -> Mapping[str, Json]:
        """Return all nodes by name. Raises KubeUnreachable and KubeRefused."""
        if not self._has_all:
            self._found = {each["metadata"]["name"]: each for each in await self._api.listing("Node", None, {})}
            self._has_all = True
        return self._found

    async def addresses(self) -> Mapping[str, Mapping[str, str]]:
        """Return the addresses of all nodes by type; a node's first address of a type counts, as in the kubelet."""
        return {name: addresses_of(node) for name, node in (await self.all()).items()}

    async def of(self, names: Collection[str]) -> Mapping[str, Json]:
        """Return the cached nodes by name; read missing `names` first. Raises KubeUnreachable and KubeRefused."""
        new = [name for name in names if name not in self._found]
        found = await asyncio.gather(*(self._api.get("Node", None, name) for name in new))
        self._found |= {name: node for name, node in zip(new, found, strict=True) if node is not None}
        return self._found


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


NAMES_MAX: Final = 50
"""The highest number of MaintenanceJobs that a label selector names.

For more MaintenanceJobs, the objects of all MaintenanceJobs of the Cluster are listed.
"""

log = logging.getLogger(__name__)


async def gather_runs(
    api: KubeApi, namespace: str, cluster: str, runs: Collection[MaintenanceJob], now: str
) -> Mapping[str, ObservedRun]:
    """Return the state of these runs, and possibly of other runs, by name. Raises KubeUnreachable and KubeRefused.

    If SparkApplications cannot be listed, the field `unknown` of their runs has the reason.
    """
    names = [run.metadata.name for run in runs]
    of_kubeflow = {run.metadata.name: run for run in runs if run.spec.backend == "Kubeflow"}
    named = {MAINTENANCE_JOB_LABEL: names} if len(names) <= NAMES_MAX else {}
    chosen = {**maintenance_selector(cluster), **named}
    jobs = await api.listing("Job", namespace, chosen)
    applications, unknown = await _applications(api, namespace, chosen) if of_kubeflow else ([], "")
    # Pods are listed after Jobs. Otherwise a Job could end in between, and its pods would still seem to be alive.
    pods = await api.listing("Pod", namespace, chosen)
    pods_of: defaultdict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        pods_of[_run_of(pod)].append(pod)
    job_of = {_run_of(job): job for job in jobs if job["metadata"]["name"] == driver_name(_run_of(job))}
    found = {name: observed_run(name, job_of.get(name), pods_of[name]) for name in job_of.keys() | pods_of.keys()}
    for each in applications:
        name = _run_of(each)
        if name in of_kubeflow and each["metadata"]["name"] == application_name(name):
            found[name] = with_application(of_kubeflow[name], observed_run(name, None, pods_of[name]), each, now)
    if unknown:
        found |= {name: found.get(name, NOTHING_SEEN)._replace(unknown=unknown) for name in of_kubeflow}
    lacking = {name: run for name, run in found.items() if run.lacks_driver and name not in of_kubeflow}
    events = await _warnings(api, namespace) if lacking else []
    return found | {name: _with_reason(run, driver_name(name), events) for name, run in lacking.items()}


async def _applications(
    api: KubeApi, namespace: str, chosen: Mapping[str, str | Collection[str]]
) -> tuple[list[Json], str]:
    """Return the SparkApplications, and the error if they cannot be listed. A missing CRD is no error."""
    try:
        return [*await api.listing("SparkApplication", namespace, chosen)], ""
    except KubeRefused as error:
        return [], "" if error.status == NOT_FOUND else f"the SparkApplications could not be listed: {error.message}"


def _with_reason(run: ObservedRun, job_name: str, events: Iterable[Json]) -> ObservedRun:
    """Return the run with `unmade` set to the last warning Event about the run's Job.

    `unmade` is the reason why the driver pod is missing. Events about an earlier Job of the same name are ignored.
    """
    uid = run.job.uid if run.job is not None else ""
    own = [event for event in events if event["involvedObject"].get("uid") == uid]
    return run._replace(unmade=last_warning(job_name, own))


async def _warnings(api: KubeApi, namespace: str) -> list[Json]:
    """Return the warning Events about Jobs; none if the operator may not list Events."""
    try:
        return [*await api.listing("Event", namespace, {}, {"involvedObject.kind": "Job", "type": "Warning"})]
    except KubeRefused as error:
        log.debug("the Events in %s could not be listed: %s", namespace, error)
        return []


def _run_of(found: Json) -> str:
    return str(found["metadata"]["labels"].get(MAINTENANCE_JOB_LABEL, ""))

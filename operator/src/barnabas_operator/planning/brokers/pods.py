"""The brokers of a Cluster in Kubernetes: StatefulSet, pods, claims, and the addresses at which clients reach them.

The addresses that Kubernetes assigned to the Services of external listeners, and their changes. A broker advertises
the address that it had at its start, and clients keep the address. So a Service that is recreated asks for its old
port; if Kubernetes assigns another port, the brokers that advertise the old port have to restart.

The values from Kubernetes on which the settings of brokers depend. These are external addresses, the uid of the
ServiceAccount, and the stage of turning security on or off.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_args

from barnabas_operator.planning.brokers.broker_security import SecurityStage, next_stage, wanted_stage
from barnabas_operator.planning.brokers.broker_steps import BrokerView
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import RESOURCE_CONFLICT, Refusal
from barnabas_operator.planning.object_names import (
    CLUSTER_LABEL,
    FIELD_MANAGER,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    bootstrap_name,
    broker_service_name,
)
from barnabas_operator.resources.cluster import Cluster, Listener, NodeAddressType, Volume
from barnabas_operator.resources.kind import API_VERSION, Json, quantity_value

RESIZING: Final = "Resizing"
PENDING: Final = "FileSystemResizePending"
FAILED: Final = "ResizeFailed"
CANNOT_GROW: Final = "VolumeCannotGrow"
_ERRORS: Final = frozenset({"ControllerResizeError", "NodeResizeError"})
_INFEASIBLE: Final = frozenset({"ControllerResizeInfeasible", "NodeResizeInfeasible"})
_ON: Final = (
    "the file system grows when the node mounts the volume; if the size does not change, restart the broker: "
    "kubectl annotate pod {pod} barnabas.dev/manual-rolling-update=true"
)
FIELDS: Final = ("labels", "annotations")


class Resize(NamedTuple):
    """The progress of a resize: the reason `RESIZING`, `PENDING` or `FAILED`, and a message."""

    reason: str
    message: str


class BrokerClaim(NamedTuple):
    """The PersistentVolumeClaim for one volume of one broker.

    `is_bound` is True if the claim has or had a volume, which may hold records. `is_emptied` is True if the broker held
    no replicas when it was removed. `is_ending` is True if the claim is being deleted; the records on the volume are
    lost when the broker's pod ends. `resize` is the progress of a resize. `version` is the claim's resource version.
    """

    name: str
    uid: str
    volume_id: int
    broker_id: int
    size: str
    storage_class: str | None = None
    is_emptied: bool = False
    is_ending: bool = False
    resize: Resize | None = None
    is_bound: bool = True
    version: str = ""


def brokers_claimed(claims: Iterable[BrokerClaim]) -> int:
    """Return 1 plus the highest broker id that has a claim.

    Claims that are being deleted, and claims of a broker that held no replicas when it was removed (`is_emptied`), do
    not count.
    """
    return max((claim.broker_id for claim in claims if not claim.is_emptied and not claim.is_ending), default=-1) + 1


def brokers_holding(state: ClusterState | None, count: int) -> int:
    """Return the number of brokers to keep: at least `count`, and enough for all registered brokers with replicas."""
    beyond = {broker for broker in state.registered if broker >= count} if state is not None else set()
    if state is None or not beyond:
        return count
    holders = {broker for topic in state.topics.values() for replicas in topic.partitions for broker in replicas}
    return max((broker + 1 for broker in beyond & holders), default=count)


def claims_in_use_again(claims: Iterable[BrokerClaim], places: int) -> list[BrokerClaim]:
    """Return the claims that are marked as `is_emptied` although their broker exists again.

    The ids of the existing brokers are the numbers below `places`.
    """
    return [claim for claim in claims if claim.is_emptied and claim.broker_id < places]


def claims_to_delete(
    cluster: Cluster, claims: Iterable[BrokerClaim], places: int, registered: Collection[int]
) -> list[BrokerClaim]:
    """Return the claims to delete: the emptied claims of removed brokers, for volumes with `deleteClaim`.

    The claims of a registered broker are kept, because it may have received replicas of a new topic before it stopped.
    """
    erased = _erased_volumes(cluster)
    gone = (each for each in claims if each.is_emptied and each.broker_id >= places)
    return [each for each in gone if each.volume_id in erased and each.broker_id not in registered]


def claims_to_erase(cluster: Cluster, claims: Iterable[BrokerClaim]) -> list[BrokerClaim]:
    """Return the claims to delete with the Cluster: all claims, or only those of volumes with `deleteClaim`."""
    if cluster.spec.deletion_policy == "Delete":
        return list(claims)
    erased = _erased_volumes(cluster)
    return [claim for claim in claims if claim.volume_id in erased]


def named(claims: Sequence[BrokerClaim]) -> str:
    """Return as text the alphabetically first name of the claims and, if there are more claims, how many."""
    first = min(claim.name for claim in claims)
    return first if len(claims) == 1 else f"{first} and {len(claims) - 1} more"


def _erased_volumes(cluster: Cluster) -> set[int]:
    return {volume.id for volume in cluster.spec.storage.volumes if volume.delete_claim}


def resize_of(found: Json, pod: str) -> Resize | None:
    """Return the progress of the resize of a pod's claim, or None if it has the requested size or no volume yet."""
    status, asked = found.get("status", {}), str(found["spec"]["resources"]["requests"]["storage"])
    has = status.get("capacity", {}).get("storage")
    if has is None or quantity_value(has) >= quantity_value(asked):
        return None
    sizes = f"the claim requests {asked}, but its volume has {has}"
    messages = {
        each["type"]: each.get("message", "") for each in status.get("conditions", ()) if each["status"] == "True"
    }
    state = status.get("allocatedResourceStatuses", {}).get("storage", "")
    failed = [f"{kind}: {messages[kind]}" for kind in sorted(_ERRORS & messages.keys())]
    if failed or state in _INFEASIBLE:
        return Resize(FAILED, f"{sizes}: {'; '.join(failed) or state}")
    if PENDING in messages:
        return Resize(PENDING, f"{sizes}: {_ON.format(pod=pod)}")
    return Resize(RESIZING, sizes)


def claim_changes(cluster: Cluster, claims: Iterable[Json]) -> Iterator[dict[str, Any]]:
    """Yield the patches that bring the labels and annotations of claims in line with the templates.

    The claim templates of a StatefulSet cannot be changed, so existing claims are patched.
    """
    template = cluster.spec.template
    wanted = {
        field: {**getattr(template.metadata, field), **getattr(template.persistent_volume_claim.metadata, field)}
        for field in FIELDS
    }
    for claim in claims:
        meta = claim["metadata"]
        if "deletionTimestamp" not in meta and _differs_from_applied(meta, wanted):
            which = {field: meta[field] for field in ("name", "namespace", "uid")}
            yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**which, **wanted}}


def _differs_from_applied(meta: Json, wanted: Mapping[str, Mapping[str, str]]) -> bool:
    applied = _applied(meta)
    return any(
        applied[field] != each.keys() or not each.items() <= (meta.get(field) or {}).items()
        for field, each in wanted.items()
    )


def _applied(meta: Json) -> dict[str, set[str]]:
    """Return the names of the labels and annotations that the operator has applied before."""
    ours = [each for each in meta.get("managedFields", ()) if _is_ours(each)]
    fields: Json = ours[0]["fieldsV1"].get("f:metadata", {}) if ours else {}
    return {field: {name.removeprefix("f:") for name in fields.get(f"f:{field}", {})} - {"."} for field in FIELDS}


def _is_ours(entry: Json) -> bool:
    return bool(entry["manager"] == FIELD_MANAGER and entry["operation"] == "Apply")


WAITING_FOR_ADDRESSES: Final = "WaitingForAddresses"
Address = tuple[str, int]
"""A host and a port."""


@dataclass(frozen=True, slots=True)
class ExternalAccess:
    """The external addresses of each broker, by listener and broker id, and other values from Kubernetes.

    `node_ports` are the ports of Services of type NodePort, and `balancer_hosts` the hosts of load balancers.
    `node_hosts` are the addresses of the nodes that run the brokers' pods. `bootstrap_ports` are the node ports of
    bootstrap Services, by listener, and `bootstrap_hosts` all hosts of their load balancers.
    `account_uid` is the uid of the brokers' ServiceAccount, or "" before it exists.
    `stage` is the `SecurityStage` of new pods, or None for the stage that the Cluster declares.
    """

    node_ports: Mapping[tuple[str, int], int] = field(default_factory=dict)
    balancer_hosts: Mapping[tuple[str, int], str] = field(default_factory=dict)
    node_hosts: Mapping[tuple[str, int], str] = field(default_factory=dict)
    bootstrap_ports: Mapping[str, int] = field(default_factory=dict)
    bootstrap_hosts: frozenset[str] = frozenset()
    account_uid: str = ""
    stage: SecurityStage | None = None

    def stage_of(self, cluster: Cluster) -> SecurityStage:
        """Return the `SecurityStage` of new pods: `stage`, or the Cluster's declared stage if `stage` is None."""
        return wanted_stage(cluster) if self.stage is None else self.stage

    def advertised(self, listener: Listener, broker_id: int) -> Address | None:
        """Return the address that a broker advertises on an external listener, or None until Kubernetes assigns one.

        An empty host stands for the address of the node, which is known only once the pod is scheduled.
        """
        key = listener.name, broker_id
        if listener.type == "loadbalancer":
            host = listener.advertised_host or self.balancer_hosts.get(key)
            return (host, listener.port) if host else None
        port = self.node_ports.get(key)
        return (listener.advertised_host or "", port) if port else None

    def address_outside(self, listener: Listener, broker_id: int) -> Address | None:
        """Return the address at which external clients reach the broker, or None until Kubernetes assigns one.

        If the broker advertises the address of its node, the host is empty until the pod is scheduled.
        """
        found = self.advertised(listener, broker_id)
        if found is None:
            return None
        return found[0] or self.node_hosts.get((listener.name, broker_id), ""), found[1]

    def lacking(self, cluster: Cluster, places: int = 0) -> list[str]:
        """Return a description of each external address that Kubernetes has not assigned yet.

        All declared brokers need external addresses. Brokers that will be removed also need external addresses if
        their ids are below `places`.
        """
        return [
            f"an address of listener {listener.name} for broker {broker_id}"
            for listener in cluster.spec.listeners
            if listener.type != "internal"
            for broker_id in range(max(places, cluster.spec.brokers.replicas))
            if self.advertised(listener, broker_id) is None
        ]


def is_outside(cluster: Cluster) -> bool:
    """True if the Cluster has a listener for clients outside Kubernetes."""
    return any(each.type != "internal" for each in cluster.spec.listeners)


def node_host(addresses: Mapping[str, str], host_ip: str, preferred: str | None) -> str:
    """Return the node address that a broker advertises: of the preferred type, else of another type, else `host_ip`."""
    order = (preferred, *get_args(NodeAddressType))
    return next((addresses[kind] for kind in order if kind in addresses), host_ip)


def bootstrap_servers(cluster: Cluster, listener: Listener, external: ExternalAccess, reported: str = "") -> str:
    """Return the bootstrap Service of an internal listener, or the addresses of all brokers of an external listener.

    If a broker's pod is not scheduled, the host is unknown. It is then copied from the address with the same port in
    the previous status (`reported`).
    """
    if listener.type == "internal":
        namespace = cluster.metadata.namespace or "default"
        return f"{bootstrap_name(cluster.metadata.name)}.{namespace}.svc:{listener.port}"
    known_hosts = {port: host for host, _, port in (server.rpartition(":") for server in reported.split(","))}
    addresses = (external.address_outside(listener, number) for number in range(cluster.spec.brokers.replicas))
    hosts = ((host or known_hosts.get(str(port)), port) for host, port in filter(None, addresses))
    return ",".join(f"{host}:{port}" for host, port in hosts if host)


class BrokerPod(NamedTuple):
    """The pod of a broker. A pod that replaces it has the same name and another `uid`.

    - `revision` is the revision of the pod's template.
    - `is_down` is True if Kubernetes reports that the process does not run; `trouble` says why, if known.
    - `made_at` and `ends_at` are the pod's `creationTimestamp` and `deletionTimestamp`; `ends_at` may be "".
    - `volumes` holds the names of the claim templates of the pod's volumes.
    - `host_ip` is the `hostIP` in the pod's status, or ""; `node_addresses` are all addresses of the node, by type.
    - `stale` describes the outdated address that the broker still advertises.
    - `is_cut_off` is True if the pod's ServiceAccount was deleted, so that the broker has lost access to metadata.
    - `stage` is the stage of turning security on or off with which the pod was started.
    """

    broker_id: int
    name: str
    uid: str
    revision: str
    is_ready: bool
    restart_asked: bool = False
    rack: str | None = None
    trouble: str = ""
    volumes: frozenset[str] = frozenset()
    host_ip: str = ""
    node_addresses: Mapping[str, str] = MappingProxyType({})
    is_down: bool = False
    made_at: str = ""
    ends_at: str = ""
    node: str = ""
    stale: str = ""
    is_cut_off: bool = False
    stage: SecurityStage = SecurityStage.OPEN

    @property
    def is_lost(self) -> bool:
        """True if the broker does not run, or has lost its access to the metadata."""
        return self.is_down or self.is_cut_off

    @property
    def is_ending(self) -> bool:
        """True if the pod was deleted but still exists."""
        return self.ends_at != ""


@dataclass(frozen=True, slots=True)
class BrokerSet:
    """The StatefulSet of the brokers.

    `replicas` is the wanted number of pods. `revision` is the revision of the pod template, or "" if unknown. `volumes`
    holds the volumes of the claim templates by template name. `is_ending` is True if the StatefulSet is being deleted.
    `given` holds the external addresses that brokers advertise, by Service. `image` is the image of the brokers,
    `stage` the `SecurityStage` of new pods, and `restart` the requested restart after which they are created.
    """

    replicas: int
    revision: str
    volumes: Mapping[str, Volume]
    is_ending: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    stage: SecurityStage = SecurityStage.OPEN
    restart: str = ""


@dataclass(frozen=True, slots=True)
class PodsState:
    """The objects of a Cluster that exist in Kubernetes."""

    broker_set: BrokerSet | None
    pods: Mapping[int, BrokerPod] = field(default_factory=dict)
    external: ExternalAccess = field(default_factory=ExternalAccess)
    claims: Sequence[BrokerClaim] = ()

    @property
    def volumes(self) -> Collection[Volume]:
        """Return the volumes of the StatefulSet's claim templates."""
        return self.broker_set.volumes.values() if self.broker_set is not None else ()

    @property
    def lasting_claims(self) -> list[BrokerClaim]:
        """Return the claims that are not being deleted."""
        return [claim for claim in self.claims if not claim.is_ending]

    @property
    def stages(self) -> Collection[SecurityStage]:
        """Return each `SecurityStage` that an existing pod has or a new pod would get."""
        of_pods = {pod.stage for pod in self.pods.values()}
        return of_pods if self.broker_set is None else of_pods | {self.broker_set.stage}

    def next_stage(self, cluster: Cluster) -> SecurityStage:
        """Return the `SecurityStage` that new pods should have next."""
        wanted, of_pods = wanted_stage(cluster), [pod.stage for pod in self.pods.values()]
        present = self.broker_set.stage if self.broker_set is not None else min(of_pods, default=wanted)
        return next_stage(present, wanted, of_pods)

    def at_stage(self, stage: SecurityStage) -> "PodsState":
        """Return a copy of the state with `stage` as the `SecurityStage` of new pods."""
        return replace(self, external=replace(self.external, stage=stage))

    @property
    def count(self) -> int:
        """Return the number of replicas of the StatefulSet.

        Without a StatefulSet, return 1 plus the highest broker id that has a pod or a claim.
        """
        if self.broker_set is not None:
            return self.broker_set.replicas
        return max(brokers_claimed(self.claims), max(self.pods, default=-1) + 1)

    def views(self) -> list[BrokerView]:
        """Return a `BrokerView` for every broker, even if the broker has no pod."""
        return [self._view(number) for number in range(self.count)]

    def _view(self, number: int) -> BrokerView:
        pod = self.pods.get(number)
        if pod is None:
            return BrokerView(number, is_running=False, is_ready=False, is_changed=False)
        is_ready = pod.is_ready and not pod.is_ending
        ending = ", ".join(self._ending(pod))
        return BrokerView(number, True, is_ready, self._is_changed(pod), self._lacks_volume(pod), pod.is_lost, ending)

    def _ending(self, pod: BrokerPod) -> Iterator[str]:
        """Yield `pod NAME` and `claim NAME` for the pod and the claims of the broker that are being deleted."""
        if pod.is_ending:
            yield f"pod {pod.name}"
        for claim in self.claims:
            if claim.is_ending and claim.broker_id == pod.broker_id:
                yield f"claim {claim.name}"

    def _lacks_volume(self, pod: BrokerPod) -> bool:
        wanted = self.broker_set.volumes.keys() if self.broker_set is not None else set()
        return not pod.is_ending and not wanted <= pod.volumes

    def _is_changed(self, pod: BrokerPod) -> bool:
        """True if the pod must restart and is not terminating already."""
        revision = self.broker_set.revision if self.broker_set is not None else ""
        return not pod.is_ending and (pod.restart_asked or (revision != "" and pod.revision != revision))

    def remaining(self) -> tuple[int, ...]:
        """Return the ids of the brokers that still have to restart."""
        return tuple(view.broker_id for view in self.views() if view.is_changed)

    @property
    def is_rolled_out(self) -> bool:
        """True if no pod has to restart, and Kubernetes has observed the pod template of a StatefulSet that stays."""
        there = self.broker_set
        return there is not None and not there.is_ending and there.revision != "" and not self.remaining()

    def unready(self) -> tuple[int, ...]:
        """Return the ids of the brokers that are missing or not ready."""
        return tuple(view.broker_id for view in self.views() if not view.is_ready)

    def troubles(self) -> str:
        """Return the problems of pods that do not run, in the words of Kubernetes."""
        return "; ".join(pod.trouble for _, pod in sorted(self.pods.items()) if pod.trouble)


def given_addresses(cluster: Cluster, external: ExternalAccess) -> dict[str, str]:
    """Return, by the name of the Service, the address that Kubernetes gave each Service of an external listener.

    The address is a node port or the host of a load balancer.
    """
    name, found = cluster.metadata.name, {}
    for listener in cluster.spec.listeners:
        if listener.type == "nodeport" and (port := external.bootstrap_ports.get(listener.name)):
            found[f"{bootstrap_name(name)}-{listener.name}"] = str(port)
        for broker_id in (number for given, number in external.node_ports if given == listener.name):
            if address := _given(listener, broker_id, external):
                found[broker_service_name(name, listener.name, broker_id)] = address
    return found


def _given(listener: Listener, broker_id: int, external: ExternalAccess) -> str:
    key = listener.name, broker_id
    if listener.type == "nodeport":
        return str(external.node_ports.get(key) or "")
    return external.balancer_hosts.get(key, "") if listener.advertised_host is None else ""


def stale_brokers(cluster: Cluster, pods: PodsState) -> dict[int, str]:
    """Return, by broker id, a description of the outdated address that the broker advertises."""
    before = pods.broker_set.given if pods.broker_set is not None else {}
    now, found = given_addresses(cluster, pods.external), {}
    for listener in cluster.spec.listeners:
        for broker_id in pods.pods:
            service = broker_service_name(cluster.metadata.name, listener.name, broker_id)
            was, is_now = before.get(service), now.get(service)
            if None not in (was, is_now) and was != is_now:
                found[broker_id] = (
                    f"still advertises the address {was} for listener {listener.name}, but the address is now {is_now}"
                )
    return found


def stale_addresses(pods: PodsState) -> Refusal | None:
    """Return a refusal that names the pods to restart because of an outdated address, or None if all are up to date."""
    stale = [f"{pod.name} {pod.stale}" for pod in pods.pods.values() if pod.stale]
    return Refusal(WAITING_FOR_ADDRESSES, f"{'; '.join(stale)}; brokers with an old address restart") if stale else None


def is_owned(cluster: Cluster, found: Json) -> bool:
    """True if the object belongs to the Cluster, or to an earlier Cluster of the same name.

    If the object has no owner reference to a Cluster, for example after a restore from a backup, its labels decide.
    The result is then False if another owner controls the object.
    """
    meta = found["metadata"]
    clusters = [each["name"] for each in _owners(found) if _is_cluster(each)]
    if clusters:
        return cluster.metadata.name in clusters
    labels: Json = meta.get("labels") or {}
    is_ours = labels.get(MANAGED_BY_LABEL) == MANAGED_BY and labels.get(CLUSTER_LABEL) == cluster.metadata.name
    return is_ours and not any(each.get("controller") for each in _owners(found))


def conflict(cluster: Cluster, wanted: Json, found: Json) -> Refusal:
    """Return the Refusal to report if an object of another owner has the name of an object that the Cluster needs."""
    kind, name = wanted["kind"], wanted["metadata"]["name"]
    whose = ", ".join(f"{each['kind']} {each['name']}" for each in _owners(found)) or "no Cluster"
    message = f"{kind} {name} already exists and belongs to {whose}; delete or rename the object,"
    return Refusal(RESOURCE_CONFLICT, f"{message} or give the Cluster {cluster.metadata.name} another name")


def _owners(found: Json) -> list[Json]:
    owners: list[Json] = found["metadata"].get("ownerReferences") or []
    return owners


def _is_cluster(owner: Json) -> bool:
    """True if the owner is a Cluster of the operator's API group, because other groups have a kind Cluster, too."""
    group = API_VERSION.partition("/")[0]
    return bool(owner["kind"] == "Cluster" and owner["apiVersion"].partition("/")[0] == group)

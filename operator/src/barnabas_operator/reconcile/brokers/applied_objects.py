"""Applies the objects of a Cluster that have changed since they were last applied, with its Secrets and claims."""

import asyncio
import json
import logging
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from barnabas_core.clock import LoopClock
from barnabas_core.conventions import credential_secrets
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.kube.gather import CLAIM, Nodes, addresses_given, claims_of, mark_emptied, storage_classes
from barnabas_operator.manifests.cluster_objects import (
    claims_of_pod,
    lag_exporter_objects,
    leftover_config_maps,
    leftover_services,
    secret,
    supporting_objects,
    with_node_port,
)
from barnabas_operator.manifests.kube_object import MONITORING, Neighbours
from barnabas_operator.manifests.maintenance_run import leftover_schedules, schedules, starter_access
from barnabas_operator.planning.admission import in_declared_fields
from barnabas_operator.planning.brokers.authorities import Data
from barnabas_operator.planning.brokers.broker_security import SecurityStage
from barnabas_operator.planning.brokers.cluster_checks import (
    added_volumes,
    claims_to_discard,
    claims_to_grow,
    claims_to_make,
    refuse_restart,
    ungrown,
)
from barnabas_operator.planning.brokers.cluster_secrets import (
    Moment,
    NodeNames,
    broker_hosts,
    given_secrets,
    node_names,
    plan_secrets,
    secret_names,
)
from barnabas_operator.planning.brokers.pods import (
    BrokerClaim,
    BrokerPod,
    PodsState,
    claim_changes,
    claims_in_use_again,
    claims_to_delete,
    claims_to_erase,
    conflict,
    is_outside,
    is_owned,
)
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import INVALID_SPEC, KUBERNETES_ERROR, Refusal, utc_moment
from barnabas_operator.planning.maintenance.run_checks import entry_problems
from barnabas_operator.planning.object_names import (
    CLUSTER_LABEL,
    brokers_name,
    lag_exporter_name,
    schedule_name,
    starter_name,
)
from barnabas_operator.reconcile.worker_environment import OperatorSettings
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json
from barnabas_operator.resources.security import CertificateStatus

log = logging.getLogger(__name__)


class ClaimsReconciler:
    """The reconciler of one Cluster's claims. All methods but `forget` may raise KubeUnreachable and KubeRefused.

    EMPTIED_LABEL marks each claim whose volume holds no needed data. When a deleted Cluster is created again, the
    operator starts each broker that has a claim without EMPTIED_LABEL.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._grown: tuple[int | None, Refusal | None] | None = None
        self._labelled: object = None

    def forget(self) -> None:
        """Check labels and sizes again: other clients may have changed claims, or a storage class allows expansion."""
        self._grown = self._labelled = None

    async def label(self, cluster: Cluster, pods: PodsState) -> None:
        """Set the labels and annotations of `spec.template` if the Cluster or its pods changed, or after `forget`."""
        about = cluster.metadata.generation, frozenset(pod.uid for pod in pods.pods.values())
        if about == self._labelled:
            return
        namespace, labels = cluster.metadata.namespace or "default", {CLUSTER_LABEL: cluster.metadata.name}
        for change in claim_changes(cluster, await self._api.listing(CLAIM, namespace, labels)):
            await self._api.apply(change)
        self._labelled = about

    async def grow(self, cluster: Cluster, claims: Iterable[BrokerClaim]) -> Refusal | None:
        """Grow the claims if the Cluster has changed, or after `forget`; return why a claim cannot grow, or None."""
        generation = cluster.metadata.generation
        if self._grown is None or self._grown[0] != generation:
            wanted = claims_to_grow(cluster, claims)
            refusals = await asyncio.gather(*(self._resize(cluster, name, size) for name, size in wanted.items()))
            self._grown = generation, next(filter(None, refusals), None)
        return self._grown[1]

    async def refuse_restart(
        self, cluster: Cluster, pods: PodsState, restarting: Sequence[BrokerPod]
    ) -> Refusal | None:
        """Create the claims of added volumes; return why the pods must not restart yet, such as an unbound claim."""
        with_more = [pod for pod in restarting if added_volumes(cluster, pod)]
        if not with_more:
            return None
        classes = await storage_classes(self._api, cluster)
        for pod in with_more:
            await self._make(cluster, pod, claims_to_make(cluster, pods, pod, classes))
        return next(filter(None, (refuse_restart(cluster, pods, pod, classes) for pod in with_more)), None)

    async def discard(self, cluster: Cluster, pods: PodsState) -> None:
        """Delete the claims that are no longer needed and were never bound to a volume."""
        if all(claim.is_bound for claim in pods.claims):
            return
        for claim in claims_to_discard(cluster, pods, await storage_classes(self._api, cluster)):
            try:
                await self._delete(cluster, claim, ", which was never bound to a disk", resourceVersion=claim.version)
            except KubeRefused as error:
                if error.status != CONFLICT:
                    raise

    async def mark(self, cluster: Cluster, claims: Iterable[BrokerClaim], broker_id: int) -> None:
        """Label the claims of a drained broker that is about to be removed.

        Claims that have the label in `claims` are labelled again, because `tidy` may have removed it since.
        """
        for claim in claims:
            if claim.broker_id == broker_id:
                await mark_emptied(self._api, cluster, claim, is_emptied=True)

    async def tidy(self, cluster: Cluster, pods: PodsState, registered: Collection[int] | None) -> None:
        """Delete the emptied claims of removed brokers, but only for volumes with `deleteClaim`.

        The claims of all other brokers lose EMPTIED_LABEL, which an earlier removal may have set. The claims of brokers
        whose ids are in `registered` are kept; if `registered` is None (unknown), all claims are kept.
        """
        for claim in claims_in_use_again(pods.lasting_claims, pods.count):
            await mark_emptied(self._api, cluster, claim, is_emptied=False)
        if registered is not None:
            for claim in claims_to_delete(cluster, pods.lasting_claims, pods.count, registered):
                await self._delete(cluster, claim, " of a removed broker")

    async def erase(self, cluster: Cluster) -> None:
        """Delete the claims of a deleted Cluster by its deletion policy."""
        for claim in claims_to_erase(cluster, await claims_of(self._api, cluster)):
            await self._delete(cluster, claim, ", because its Cluster is deleted")

    async def _delete(self, cluster: Cluster, claim: BrokerClaim, why: str, **seen: str) -> None:
        namespace = cluster.metadata.namespace or "default"
        log.info("%s/%s: deleting the claim %s%s", namespace, cluster.metadata.name, claim.name, why)
        await self._api.delete(CLAIM, namespace, claim.name, preconditions={"uid": claim.uid, **seen})

    async def _make(self, cluster: Cluster, pod: BrokerPod, names: Iterable[str]) -> None:
        made: dict[str, Json] = {each["metadata"]["name"]: each for each in claims_of_pod(cluster, pod.name)}
        for name in names:
            log.info("%s/%s: creating the claim %s", cluster.metadata.namespace, cluster.metadata.name, name)
            try:
                await self._api.create(made[name])
            except KubeRefused as error:
                if error.status != CONFLICT:
                    raise

    async def _resize(self, cluster: Cluster, name: str, size: str) -> Refusal | None:
        namespace = cluster.metadata.namespace or "default"
        try:
            await self._api.patch(CLAIM, namespace, name, {"spec": {"resources": {"requests": {"storage": size}}}})
        except KubeRefused as error:
            return ungrown(name, size, error.message)
        log.info("%s/%s: requested %s for the claim %s", namespace, cluster.metadata.name, size, name)
        return None


PASSING: Final = frozenset({"status", "metadata"})
OF_CONTROLLERS: Final = "deployment.kubernetes.io/"
DECLARED_OF_META: Final = ("labels", "annotations", "ownerReferences", "deletionTimestamp")


class _Sent(NamedTuple):
    """An object as it was last sent, and the API server's answer: a refusal, or a digest of the stored object."""

    item: Json
    refusal: Refusal | None = None
    uid: str = ""
    version: int = 0
    content: bytes = b""


class ObjectRefused(Exception):
    """The error that an object cannot be applied; `refusal` has the reason."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class AppliedObjects:
    """The applied objects of a Cluster. An invalid object is sent again only after a change or `forget`.

    An object that was refused for another reason, such as missing rights, is sent again in the next reconciliation.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._sent: dict[tuple[str, str], _Sent] = {}
        """The objects as they were last sent, by kind and name."""
        self._gone: set[tuple[str, str]] = set()
        """The applied objects that other clients have deleted, and that have not been created again yet."""

    def forget(self) -> None:
        """Forget the applied objects, so that all of them are applied again."""
        self._sent.clear()

    def forget_one(self, kind: str, name: str) -> None:
        """Forget this applied object, so that it is applied again; do nothing if the object was refused as invalid."""
        sent = self._sent.get((kind, name))
        if sent is not None and sent.refusal is None:
            del self._sent[kind, name]

    def object_event(self, found: Json, *, is_gone: bool) -> bool:
        """Forget an applied object that another client has changed or deleted, so that it is applied again.

        Returns True if `found` is such an object.
        """
        key, meta = _key(found), found["metadata"]
        sent = self._sent.get(key)
        if sent is None or sent.refusal is not None:
            return False
        if is_gone and sent.uid == meta["uid"]:
            self._gone.add(key)
        elif is_gone or int(meta["resourceVersion"]) <= sent.version or _content(found) == sent.content:
            return False
        del self._sent[key]
        what = "deleted" if is_gone else "changed"
        log.info("%s: applying an object again, because another client has %s %s %s", meta["namespace"], what, *key)
        return True

    async def apply(self, cluster: Cluster, item: Json) -> bool:
        """Apply the object `item`, unless the same object was already applied; return True if `item` was applied.

        Raises ObjectRefused if the API server refuses `item`, or if the Cluster does not own the existing object of
        this name. May also raise KubeUnreachable.
        """
        if self._is_known(item):
            return False
        try:
            found = await self._api.get(item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
            if found is not None and not is_owned(cluster, found):
                raise ObjectRefused(conflict(cluster, item, found))
            self._sent.pop(_key(item), None)  # Until the API server answers, the stored object is unknown.
            made = await self._api.apply(item)
        except KubeRefused as error:
            raise self._refused(item, error) from error
        meta, key = made["metadata"], _key(item)
        self._sent[key] = _Sent(item, None, meta["uid"], int(meta["resourceVersion"]), _content(made))
        self._gone.discard(key)
        return True

    async def apply_all(self, cluster: Cluster, items: Iterable[Json]) -> Refusal | None:
        """Apply all objects; return why the first refused object was refused, or None. Raises KubeUnreachable."""
        refused = None
        for each in items:
            try:
                await self.apply(cluster, each)
            except ObjectRefused as error:
                refused = refused or error.refusal
        return refused

    async def remove_named(self, cluster: Cluster, kinds: Iterable[str], name: str) -> None:
        """Delete the objects of this name that the Cluster owns. Raises KubeRefused and KubeUnreachable."""
        for kind in kinds:
            found = await self._api.get(kind, cluster.metadata.namespace or "default", name)
            if found is not None and is_owned(cluster, found):
                await self.remove(kind, found)

    async def remove(self, kind: str, found: Json) -> None:
        """Delete the object with this uid. Raises KubeRefused and KubeUnreachable."""
        meta = found["metadata"]
        log.info("%s: deleting %s %s, which is no longer needed", meta["namespace"], kind, meta["name"])
        self.forget_one(kind, meta["name"])
        await self._api.delete(kind, meta["namespace"], meta["name"], preconditions={"uid": meta["uid"]})

    async def ask(self, item: Json) -> None:
        """Check by a dry run whether the API server accepts the object `item`, unless `item` was already applied.

        Raises ObjectRefused if `item` is invalid. May also raise KubeUnreachable.
        """
        if self._is_known(item):
            return
        try:
            await self._api.dry_run(item)
        except KubeRefused as error:
            # Ignore other errors, such as missing rights, because they may be gone when `item` is applied later.
            if error.is_about_the_object:
                raise self._refused(item, error) from error

    def _is_known(self, item: Json) -> bool:
        sent = self._sent.get(_key(item))
        if sent is None or sent.item != item:
            return False
        if sent.refusal is not None:
            raise ObjectRefused(sent.refusal)
        return True

    def _refused(self, item: Json, error: KubeRefused) -> ObjectRefused:
        refusal = _refusal(item, error, is_gone=_key(item) in self._gone)
        if error.is_about_the_object:
            self._sent[_key(item)] = _Sent(item, refusal)
        return ObjectRefused(refusal)


def _key(item: Json) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def _content(found: Json) -> bytes:
    """Return a digest of an object without its status, its managed fields, and the annotations that controllers add."""
    meta = {name: found["metadata"].get(name) for name in DECLARED_OF_META}
    annotations = meta["annotations"] or {}
    meta["annotations"] = {name: text for name, text in annotations.items() if not name.startswith(OF_CONTROLLERS)}
    body = {name: value for name, value in found.items() if name not in PASSING}
    return blake2b(json.dumps([meta, body], sort_keys=True).encode(), digest_size=16).digest()


def _refusal(item: Json, error: KubeRefused, *, is_gone: bool) -> Refusal:
    reason = INVALID_SPEC if error.is_about_the_object else KUBERNETES_ERROR
    message = in_declared_fields(item["kind"], error.message)
    name = f"{item['kind']} {item['metadata']['name']}"
    return Refusal(reason, f"{name} is missing and cannot be created: {message}" if is_gone else f"{name}: {message}")


class SupportingObjects:
    """The supporting objects of one Cluster, such as Services.

    A deleted NodePort Service is created again with its previous node port, because clients may know that port.
    """

    def __init__(self, api: KubeApi, objects: AppliedObjects, neighbours: Neighbours) -> None:
        self._api = api
        self._neighbours = neighbours
        self._objects = objects
        self._monitors: bool | None = None

    def forget(self) -> None:
        """Check again whether the CRD of PodMonitors is installed."""
        self._monitors = None

    async def apply(self, cluster: Cluster, places: int) -> Refusal | None:
        """Apply all objects; return the error of the first refused object, or None. Raises KubeUnreachable.

        `places` is the number of brokers that need objects, including removed brokers that still have replicas.
        """
        refused, given = None, await self._given(cluster)
        for each in supporting_objects(cluster, await self.apis(), self._neighbours, places):
            try:
                await self._apply(cluster, each, with_node_port(each, given))
            except ObjectRefused as error:
                refused = refused or error.refusal
        return refused

    async def _apply(self, cluster: Cluster, item: Mapping[str, Any], pinned: Mapping[str, Any]) -> None:
        """Apply the object, with another node port if the previous one now belongs to another Service."""
        try:
            await self._objects.apply(cluster, pinned)
        except ObjectRefused as error:
            if pinned is item or error.refusal.reason != INVALID_SPEC:
                raise
            log.warning(
                "%s: the API server refused the Service with the previous node port; trying any free node port: %s",
                item["metadata"]["namespace"],
                error,
            )
            await self._objects.apply(cluster, item)

    async def _given(self, cluster: Cluster) -> Mapping[str, str]:
        if not is_outside(cluster):
            return {}
        name = brokers_name(cluster.metadata.name)
        found = await self._api.get("StatefulSet", cluster.metadata.namespace or "default", name)
        return addresses_given(found) if found is not None else {}

    async def apis(self) -> list[str]:
        """Return the optional API groups that the API server has. Raises KubeUnreachable and KubeRefused."""
        if self._monitors is None:
            self._monitors = await self._api.serves("PodMonitor")
        return [MONITORING] if self._monitors else []


OF_EXPORTER: Final = ("Deployment", "PodMonitor", "Secret")
RIGHTS: Final = ("RoleBinding", "ServiceAccount")
"""The kinds of the objects that allow the pods of a Cluster's CronJobs to create MaintenanceJobs."""


class CompanionObjects:
    """The reconciler of one Cluster's lag exporter and maintenance schedules.

    It looks for leftover objects if the Cluster has changed, or `forget` was called.
    """

    def __init__(
        self, api: KubeApi, objects: AppliedObjects, surroundings: SupportingObjects, settings: OperatorSettings
    ) -> None:
        self._api = api
        self._objects = objects
        self._surroundings = surroundings
        self._settings = settings
        self._tidied: int | None = None

    def forget(self) -> None:
        """Make the next reconciliation look for objects that an earlier operator has left behind."""
        self._tidied = None

    async def reconcile(self, cluster: Cluster) -> Refusal | None:
        """Apply the objects; return the error of an invalid maintenance entry or a refused object, or None.

        The CronJob of an invalid entry is not changed. May raise KubeUnreachable and KubeRefused.
        """
        name, settings, wrong = cluster.metadata.name, self._settings, dict(entry_problems(cluster.spec.maintenance))
        bad = {schedule_name(name, entry) for entry in wrong}
        jobs = schedules(cluster, settings.operator_image, settings.pull_secrets)
        cron_jobs = (*starter_access(cluster), *jobs)
        apis = await self._surroundings.apis()
        exporter = lag_exporter_objects(cluster, settings.operator_image, apis, settings.neighbours)
        wanted = (*(each for each in cron_jobs if each["metadata"]["name"] not in bad), *exporter)
        refused = await self._objects.apply_all(cluster, wanted)
        await self._tidy(cluster)
        return Refusal(INVALID_SPEC, next(iter(wrong.values()))) if wrong else refused

    async def _tidy(self, cluster: Cluster) -> None:
        """Delete what is no longer declared; do nothing if the spec is unchanged since the last call.

        Kubernetes also deletes the Jobs of deleted CronJobs, even running ones. If `spec.maintenance` is empty, the
        ServiceAccount and RoleBinding of the CronJobs' pods are also deleted.
        """
        if self._tidied is not None and self._tidied == cluster.metadata.generation:
            return
        namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
        for each in leftover_schedules(cluster, await self._api.listing("CronJob", namespace, {CLUSTER_LABEL: name})):
            await self._objects.remove("CronJob", each)
        if not cluster.spec.maintenance:
            await self._objects.remove_named(cluster, RIGHTS, starter_name(name))
        if cluster.spec.lag_exporter is None:
            await self._objects.remove_named(cluster, OF_EXPORTER, lag_exporter_name(name))
        self._tidied = cluster.metadata.generation


Choose = Callable[[Cluster, PodsState, Iterable[Json]], list[Json]]
CHOSEN: Final[Mapping[str, Choose]] = {"Service": leftover_services, "ConfigMap": leftover_config_maps}
"""The functions that choose the objects to delete, by kind."""


class GarbageCollector:
    """The garbage collector of one Cluster.

    `remove` does nothing unless the Cluster, its StatefulSet or the set of registered brokers has changed, a rolling
    restart has begun or ended, or `forget` was called.
    """

    def __init__(self, api: KubeApi, objects: AppliedObjects, claims: ClaimsReconciler) -> None:
        self._api = api
        self._objects = objects
        self._claims = claims
        self._seen: object = None

    def forget(self) -> None:
        """Make the next call of `remove` list the objects again; a previous leader may have left unneeded objects."""
        self._seen = None

    async def remove(self, cluster: Cluster, pods: PodsState, state: ClusterState | None) -> None:
        """Delete leftover objects. `state` is None if no broker answers; then no claim of a removed broker is deleted.

        Raises KubeUnreachable and KubeRefused.
        """
        registered = state.registered if state is not None else None
        about = cluster.metadata.generation, pods.broker_set, pods.is_rolled_out, registered
        if about == self._seen:
            return
        for kind, choose in CHOSEN.items():
            await self._remove(kind, choose, cluster, pods)
        await self._claims.tidy(cluster, pods, registered)
        self._seen = about

    async def _remove(self, kind: str, choose: Choose, cluster: Cluster, pods: PodsState) -> None:
        namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
        found = await self._api.listing(kind, namespace, {CLUSTER_LABEL: name})
        for each in choose(cluster, pods, found):
            await self._objects.remove(kind, each)


class ClusterSecretsReconciler:
    """The reconciler of one Cluster's Secrets.

    `reconcile` reads and renews the Secrets only if the Cluster or an address in its certificates has changed, or if
    `forget` was called.
    """

    def __init__(
        self, api: KubeApi, objects: AppliedObjects, nodes: Nodes, clock: LoopClock, new_password: Callable[[], str]
    ) -> None:
        self._api = api
        self._objects = objects
        self._nodes = nodes
        self._clock = clock
        self._new_password = new_password
        self._seen: object = None
        self.data: Mapping[str, Data] = {}
        """The content of the Cluster's Secrets, by name of the Secret; empty for a Cluster without security."""
        self.nodes_left_out = ""
        """The reason why the brokers' certificate lacks addresses of nodes; empty if it lacks none."""
        self.certificates: tuple[CertificateStatus, ...] | None = None
        """The expiry times of the certificates in the Secrets; None until they are known."""

    def forget(self) -> None:
        """Read the Secrets again, because certificates may be due for renewal, or Secrets may have changed."""
        self._seen = None

    async def reconcile(self, cluster: Cluster, pods: PodsState) -> Refusal | None:
        """Create and renew the Secrets; return the first error. Raises KubeUnreachable and KubeRefused."""
        if pods.external.stage_of(cluster) is SecurityStage.OPEN:
            self.data, self.certificates, self._seen, self.nodes_left_out = {}, (), None, ""
            return None
        nodes = await self._node_names(cluster, pods)
        self.nodes_left_out = nodes.left_out
        hosts = broker_hosts(cluster, pods.external, nodes.hosts)
        about = cluster.metadata.generation, hosts, pods.external
        if about == self._seen:
            return None
        refused = await self._bring(cluster, hosts, pods)
        if refused is None:
            self._seen = about
        return refused

    async def _bring(self, cluster: Cluster, hosts: frozenset[str], pods: PodsState) -> Refusal | None:
        found = await self._found(cluster)
        foreign = {name for name, item in found.items() if not is_owned(cluster, item)}
        for name in foreign - given_secrets(cluster):
            return conflict(cluster, {"kind": "Secret", "metadata": {"name": name}}, found[name])
        data = {name: _data(item) for name, item in found.items()}
        marks = {name: item["metadata"].get("annotations") or {} for name, item in found.items()}
        moment = Moment(data, marks, utc_moment(self._clock.now_ms()), self._new_password, foreign)
        plan = plan_secrets(cluster, hosts, pods.external, moment)
        if isinstance(plan, Refusal):
            return plan
        for wanted in plan.secrets:
            try:
                if await self._objects.apply(cluster, secret(cluster, wanted)) and data.get(wanted.name) != wanted.data:
                    log.info("%s/%s: renewed the Secret %s", *_cluster_key(cluster), wanted.name)
            except ObjectRefused as error:
                return error.refusal
        self.data, self.certificates = plan.by_name, plan.certificates
        return None

    async def erase(self, cluster: Cluster) -> None:
        """Delete the Secrets that the Cluster owns."""
        name, namespace = cluster.metadata.name, cluster.metadata.namespace or "default"
        found = {**await self._found(cluster), **await self._get(namespace, credential_secrets(name))}
        for each, item in found.items():
            if is_owned(cluster, item):
                uid = item["metadata"]["uid"]
                await self._api.delete("Secret", namespace, each, preconditions={"uid": uid})

    async def _found(self, cluster: Cluster) -> Mapping[str, Json]:
        return await self._get(cluster.metadata.namespace or "default", secret_names(cluster))

    async def _get(self, namespace: str, names: Sequence[str]) -> Mapping[str, Json]:
        found = await asyncio.gather(*(self._api.get("Secret", namespace, name) for name in names))
        return {name: item for name, item in zip(names, found, strict=True) if item is not None}

    async def _node_names(self, cluster: Cluster, pods: PodsState) -> NodeNames:
        """Return the node addresses for the certificate; none if no listener advertises addresses of nodes."""
        if not any(each.is_at_node for each in cluster.spec.listeners):
            return NodeNames()
        return node_names(cluster, await self._nodes.addresses(), [pod.node for pod in pods.pods.values()])


def _cluster_key(cluster: Cluster) -> tuple[str, str]:
    return cluster.metadata.namespace or "default", cluster.metadata.name


def _data(item: Json) -> Data:
    data: Mapping[str, str] = item.get("data") or {}
    return {name: b64decode(value) for name, value in data.items()}

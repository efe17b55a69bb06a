"""The validating webhook, which the API server calls before it stores a change of a resource.

The objects of a Cluster or MaintenanceJob are dry-run on the API server before the resource is stored. A MaintenanceJob
is refused if its backend is Kubeflow and Kubeflow's operator is not installed. If it has a template, its Job is
dry-run. The entries of a Cluster's `spec.maintenance` are checked like MaintenanceJobs. The Cluster's StatefulSet,
CronJobs and objects with a template are dry-run, too, and the storage classes must allow the declared volume claims.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.kube.gather import CLAIM, claims_of, storage_classes
from barnabas_operator.manifests.cluster_objects import stateful_set, templated_objects
from barnabas_operator.manifests.kube_object import ClientAccess
from barnabas_operator.manifests.maintenance_run import driver_job, schedules
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.planning.admission import JOB, AdmissionContext, Verdict, in_declared_fields
from barnabas_operator.planning.brokers.cluster_checks import (
    claims_to_grow,
    new_disks,
    refuse_disks,
    refuse_growth,
    refuse_missing_class,
)
from barnabas_operator.planning.brokers.pod_properties import reserved_users
from barnabas_operator.planning.brokers.pods import ExternalAccess
from barnabas_operator.planning.cluster_state import APPROVAL, ClusterState, declared_texts
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.maintenance.run_checks import SPARK_OPERATOR_MISSING
from barnabas_operator.planning.object_names import schedule_name
from barnabas_operator.planning.rules_of_kinds import changes, review
from barnabas_operator.resources.cluster import Brokers, Cluster
from barnabas_operator.resources.cluster_kind import CLUSTER, kind_of_plural
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP, ConsumerGroup
from barnabas_operator.resources.kind import Json, Key
from barnabas_operator.resources.maintenance_run import (
    MAINTENANCE_JOB,
    MaintenanceEntry,
    MaintenanceJob,
    MaintenanceJobSpec,
    RunSpec,
    RunTemplate,
)
from barnabas_operator.resources.schema_check import InvalidResource, readable_part, resource_of
from barnabas_operator.resources.user import USER


async def missing_claims(api: KubeApi, run: MaintenanceJob) -> tuple[str, ...]:
    """Return warnings about missing volume claims, for which the run would wait; none if claims cannot be read."""
    spec, namespace = run.spec, run.metadata.namespace or "default"
    named = {f"spec.volumes[{index}].claimName": volume.claim_name for index, volume in enumerate(spec.volumes)}
    if spec.event_logs is not None:
        named["spec.eventLogs.claimName"] = spec.event_logs.claim_name
    try:
        lacking = [field for field, claim in named.items() if await api.get(CLAIM, namespace, claim) is None]
    except (KubeUnreachable, KubeRefused):
        return ()
    return tuple(
        f"{field} is {named[field]}, but this claim does not exist; the run waits until the claim exists"
        for field in lacking
    )


log = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 2.0
ANY: Final = "any"
"""A placeholder for fields that do not affect the result of a dry run."""
OBJECTS_MAX: Final = 24
"""The largest number of objects that are dry-run, because a thousand Services would take too long."""

DryRunCall = Callable[[Cluster | MaintenanceJob, Cluster | None], Awaitable[str | None]]
"""A function that dry-runs the objects of a Cluster or MaintenanceJob; it returns the problem found, or None.

The second argument is the stored Cluster, or None if the Cluster is new.
"""


class DryRun:
    """The dry runs of objects by the API server, which store nothing.

    If the API server does not answer in time, or denies access, no problem is reported.
    """

    def __init__(self, api: KubeApi, image: str, clock: LoopClock) -> None:
        self._api = api
        self._clock = clock
        self._image = image

    async def __call__(self, resource: Cluster | MaintenanceJob, before: Cluster | None = None) -> str | None:
        """Dry-run the Kubernetes objects of a resource; return the problem found, or None."""
        runs = [resource.spec] if isinstance(resource, MaintenanceJob) else resource.spec.maintenance
        at = "spec" if isinstance(resource, MaintenanceJob) else "spec.maintenance"
        if any(run.backend == "Kubeflow" for run in runs) and await self._lacks_spark_operator():
            return f"{at}: {SPARK_OPERATOR_MISSING}"
        if isinstance(resource, MaintenanceJob):
            return await self._of_run(resource)
        of_cluster, of_runs = await asyncio.gather(self._of_cluster(resource, before), self._of_schedules(resource))
        return of_cluster or of_runs

    async def _of_run(self, run: MaintenanceJob) -> str | None:
        """Dry-run the Job of a MaintenanceJob that has a template; return the API server's error, or None.

        For the backend Kubeflow, which creates no Job, the dry run of a Job checks the same driver pod.
        """
        if run.spec.template == RunTemplate():
            return None
        try:
            async with self._clock.timeout(ANSWER_S_MAX):
                await self._api.dry_run(driver_job(run, run.spec.cluster or ANY, ClientAccess(ANY), ANY))
        except KubeRefused as error:
            return in_declared_fields(JOB, error.message) if error.is_about_the_object else None
        except (KubeUnreachable, TimeoutError) as error:
            log.warning(
                "%s/%s: the API server could not dry-run the Job: %s", run.metadata.namespace, run.metadata.name, error
            )
        return None

    async def _of_schedules(self, cluster: Cluster) -> str | None:
        """Dry-run a Job for each maintenance entry of the Cluster; return the first problem, or None."""
        entries = cluster.spec.maintenance
        reasons = await asyncio.gather(*(self._of_run(_run(cluster, each)) for each in entries))
        found = (f"spec.maintenance {each.name}: {why}" for each, why in zip(entries, reasons, strict=True) if why)
        return next(found, None)

    async def _lacks_spark_operator(self) -> bool:
        try:
            async with self._clock.timeout(ANSWER_S_MAX):
                return not await self._api.serves("SparkApplication")
        except (KubeUnreachable, KubeRefused, TimeoutError) as error:
            log.warning(
                "could not find out if the API server has the kind SparkApplication: %s", str(error) or "no answer"
            )
            return False

    async def _of_cluster(self, cluster: Cluster, before: Cluster | None) -> str | None:
        pods = stateful_set(cluster, ExternalAccess(), self._image, cluster.spec.brokers.replicas)
        others = [*templated_objects(cluster, self._image), *schedules(cluster, self._image)][:OBJECTS_MAX]
        requests = [
            self._disks(cluster, before),
            self._api.dry_run(pods),
            *(self._api.apply(each, is_dry_run=True) for each in others),
        ]
        try:
            async with self._clock.timeout(ANSWER_S_MAX):
                answers = await asyncio.gather(*requests, return_exceptions=True)
        except TimeoutError:
            answers = [TimeoutError("the API server did not answer in time")]
        if isinstance(answers[0], Refusal):
            return answers[0].message
        for each, answer in zip((pods, *others), answers[1:], strict=False):
            if isinstance(answer, KubeRefused) and answer.is_about_the_object:
                name = "" if each is pods else f"{each['kind']} {each['metadata']['name']}: "
                return name + in_declared_fields(each["kind"], answer.message)
        for answer in answers:
            _log_what_failed(cluster, answer)
        return None

    async def _disks(self, cluster: Cluster, before: Cluster | None) -> Refusal | None:
        """Return why brokers would lose disks with records, or cannot get the declared disks; None if all is well."""
        volumes = before.spec.storage.volumes if before is not None else ()
        claims = await claims_of(self._api, cluster)
        lost = refuse_disks(cluster, volumes, claims)
        if lost is not None or not (new_disks(cluster, claims) or claims_to_grow(cluster, claims)):
            return lost
        classes = await storage_classes(self._api, cluster)
        rigid = {name for name, each in classes.by_name.items() if not each.can_grow}
        return refuse_missing_class(cluster, claims, classes) or refuse_growth(cluster, claims, rigid)


def _run(cluster: Cluster, entry: MaintenanceEntry) -> MaintenanceJob:
    meta = replace(cluster.metadata, name=schedule_name(cluster.metadata.name, entry.name))
    of_run = {name: getattr(entry, name) for name in RunSpec.__struct_fields__}
    return MaintenanceJob(metadata=meta, spec=MaintenanceJobSpec(**of_run, cluster=cluster.metadata.name))


def _log_what_failed(cluster: Cluster, answer: object) -> None:
    """Log a timeout or KubeUnreachable, ignore KubeRefused, and raise any other exception."""
    meta = cluster.metadata
    if isinstance(answer, KubeUnreachable | TimeoutError):
        log.warning("%s/%s: the API server could not dry-run the objects: %s", meta.namespace, meta.name, answer)
    elif isinstance(answer, BaseException) and not isinstance(answer, KubeRefused):
        raise answer


StateOf = Callable[[Key], ClusterState | None]
"""A function that returns the last known state of a Cluster's brokers, or None."""
Previewed = ConsumerGroup | MaintenanceJob
Preview = Callable[[Cluster, Previewed], Awaitable[tuple[str, ...]]]
"""A function that warns, within a time limit, about an offset reset's effect or a run's missing volume claims."""
PREVIEWED: Final[Mapping[str, type[Previewed]]] = {
    CONSUMER_GROUP.name: ConsumerGroup,
    MAINTENANCE_JOB.name: MaintenanceJob,
}

INVALID: Final = 422
PROTECTED: Final = 403
WARNING_LENGTH_MAX: Final = 250
NAMESPACE_CONTROLLERS: Final = (
    "system:serviceaccount:kube-system:namespace-controller",
    "system:kube-controller-manager",
)


async def answer(
    request_body: Json, inventory: Inventory, state_of: StateOf, dry_run: DryRunCall, preview: Preview
) -> dict[str, Any]:
    """Return the `AdmissionReview` with the webhook's response to the request."""
    request = request_body["request"]
    verdict = await _judged(request, inventory, state_of, dry_run)
    if verdict.refusal is None:
        warnings = await _previewed(request, inventory, preview)
        verdict = verdict._replace(warnings=(*verdict.warnings, *warnings))
    is_deletion = request.get("object") is None
    return {
        "apiVersion": request_body["apiVersion"],
        "kind": "AdmissionReview",
        "response": {"uid": request["uid"], **_response(verdict, is_deletion=is_deletion)},
    }


async def _judged(request: Json, inventory: Inventory, state_of: StateOf, dry_run: DryRunCall) -> Verdict:
    old, new = request.get("oldObject"), request.get("object")
    if new is None and request.get("userInfo", {}).get("username") in NAMESPACE_CONTROLLERS:
        return Verdict()  # No resource may block the deletion of its namespace.
    if request.get("subResource") == "scale":
        old, new = _scaled(request, inventory)
        if old is None:
            # Allow the change without a check, because the watch has not reported the resource yet.
            return Verdict()
    context = _context_of(old or new or {}, inventory, state_of)
    if new is not None and new["kind"] == CLUSTER.name:
        context = AdmissionContext(rebalance_run=_rebalance_run(new, inventory))
    verdict = review(old, new, context)
    if verdict.refusal is None and new is not None and _is_to_be_applied(new) and changes(old, new):
        is_cluster = new["kind"] == CLUSTER.name
        resource = _with_news(resource_of(Cluster, new), old) if is_cluster else resource_of(MaintenanceJob, new)
        before = readable_part(Cluster, old) if is_cluster and old is not None else None
        verdict = verdict._replace(refusal=await dry_run(resource, before))
    return verdict


def _with_news(cluster: Cluster, old: Json | None) -> Cluster:
    """Return the Cluster to validate, without its unchanged maintenance entries.

    An old entry that is invalid must not block other changes.
    """
    known = readable_part(Cluster, old).spec.maintenance if old is not None else ()
    fresh = tuple(each for each in cluster.spec.maintenance if each not in known)
    return replace(cluster, spec=replace(cluster.spec, maintenance=fresh))


async def _previewed(request: Json, inventory: Inventory, preview: Preview) -> tuple[str, ...]:
    """Return the warnings about a changed resource; none if it is paused, or if its Cluster is unknown or invalid."""
    old, new = request.get("oldObject"), request.get("object")
    if new is None or new["kind"] not in PREVIEWED or not changes(old, new):
        return ()
    resource = resource_of(PREVIEWED[new["kind"]], new)
    cluster = inventory.clusters.get(inventory.cluster_of(new) or Key("", ""))
    if cluster is None or resource.is_paused:
        return ()
    try:
        return await preview(resource_of(Cluster, cluster), resource)
    except InvalidResource:
        return ()


def _is_to_be_applied(new: Json) -> bool:
    """True if the operator will apply objects for the resource: a Cluster or MaintenanceJob that is not paused."""
    return new["kind"] in (CLUSTER.name, MAINTENANCE_JOB.name) and not new.get("spec", {}).get("pause")


def _response(verdict: Verdict, *, is_deletion: bool) -> dict[str, Any]:
    response: dict[str, Any] = {"allowed": verdict.refusal is None}
    if verdict.refusal is not None:
        response["status"] = {"code": PROTECTED if is_deletion else INVALID, "message": verdict.refusal}
    if verdict.warnings:
        response["warnings"] = [warning[:WARNING_LENGTH_MAX] for warning in verdict.warnings]
    return response


def _scaled(request: Json, inventory: Inventory) -> tuple[Json | None, Json | None]:
    """Return the stored resource, and a copy with the replicas from the scale request.

    Return (None, None) if the inventory does not have the resource.
    """
    kind = kind_of_plural(request["resource"]["resource"])
    stored = inventory.of_kind(kind.name).get(Key(request["namespace"], request["name"]))
    if stored is None:
        return None, None
    assert kind.scaled is not None, "kubectl scale works only for kinds with the subresource scale"
    spec = _with(stored.get("spec", {}), kind.scaled.in_spec, request["object"]["spec"].get("replicas"))
    return stored, {**stored, "spec": spec}


def _with(there: Json, path: Sequence[str], value: object) -> Json:
    first, *rest = path
    return {**there, first: _with(there.get(first, {}), rest, value) if rest else value}


def _context_of(body: Json, inventory: Inventory, state_of: StateOf) -> AdmissionContext:
    cluster = inventory.cluster_of(body) if body["kind"] != CLUSTER.name else None
    if cluster is None:
        return AdmissionContext()
    stored = inventory.clusters.get(cluster, {})
    state, spec = state_of(cluster), stored.get("spec")
    if state is not None and spec is not None:
        # Take the number of brokers from the spec, because the state may be older than a change of this number.
        state = state.with_brokers(spec.get("brokers", {}).get("replicas", Brokers().replicas))
    fewest = declared_texts((spec or {}).get("config", {})).get("min.insync.replicas")
    reserved = reserved_users(readable_part(Cluster, stored)) if stored and body["kind"] == USER.name else ()
    return AdmissionContext(
        inventory.namesake_of(body),
        state,
        inventory.colliding_with(body),
        min_insync_replicas=fewest,
        reserved=reserved,
    )


def _rebalance_run(body: Json, inventory: Inventory) -> MaintenanceJob | None:
    """Return the MaintenanceJob that the Cluster's rebalance annotation names; None if it does not exist."""
    meta = body["metadata"]
    name = (meta.get("annotations") or {}).get(APPROVAL)
    runs = inventory.resources_of(MAINTENANCE_JOB.name, Key(meta["namespace"], meta.get("name", "")))
    found = next((run for run in runs if run["metadata"]["name"] == name), None)
    return readable_part(MaintenanceJob, found) if found is not None else None

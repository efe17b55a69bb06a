"""The validating webhook, which the API server calls before it stores a change of a resource."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from barnabas_operator.admission.dry_run import DryRunCall
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.brokers.pod_properties import reserved_users
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.configs import declared_texts
from barnabas_operator.planning.rebalance_request import APPROVAL
from barnabas_operator.planning.review import changes, review
from barnabas_operator.resources.api_objects import InvalidResource, readable_part, resource_of
from barnabas_operator.resources.cluster import Brokers, Cluster
from barnabas_operator.resources.cluster_kind import CLUSTER
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP, ConsumerGroup
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.kinds import kind_of_plural
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB, MaintenanceJob
from barnabas_operator.resources.object_key import Key
from barnabas_operator.resources.user import USER

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
    said: dict[str, Any] = {"allowed": verdict.refusal is None}
    if verdict.refusal is not None:
        said["status"] = {"code": PROTECTED if is_deletion else INVALID, "message": verdict.refusal}
    if verdict.warnings:
        said["warnings"] = [warning[:WARNING_LENGTH_MAX] for warning in verdict.warnings]
    return said


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

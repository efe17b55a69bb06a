"""The PersistentVolumeClaims of a Cluster's brokers: their resizes, their labels, and which of them are deleted."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.object_names import FIELD_MANAGER
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.quantity import quantity_value

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
    said = {each["type"]: each.get("message", "") for each in status.get("conditions", ()) if each["status"] == "True"}
    state = status.get("allocatedResourceStatuses", {}).get("storage", "")
    failed = [f"{kind}: {said[kind]}" for kind in sorted(_ERRORS & said.keys())]
    if failed or state in _INFEASIBLE:
        return Resize(FAILED, f"{sizes}: {'; '.join(failed) or state}")
    if PENDING in said:
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
        if "deletionTimestamp" not in meta and _differs(meta, wanted):
            which = {field: meta[field] for field in ("name", "namespace", "uid")}
            yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**which, **wanted}}


def _differs(meta: Json, wanted: Mapping[str, Mapping[str, str]]) -> bool:
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

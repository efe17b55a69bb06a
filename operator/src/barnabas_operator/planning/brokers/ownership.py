"""The ownership of Kubernetes objects; a Cluster changes and deletes only its own objects."""

from barnabas_operator.planning.object_names import CLUSTER_LABEL, MANAGED_BY, MANAGED_BY_LABEL
from barnabas_operator.planning.refusal import RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.object_meta import API_VERSION


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

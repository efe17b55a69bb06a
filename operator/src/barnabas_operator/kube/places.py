"""Where the API server keeps objects of each kind that the operator deals with."""

from typing import Final, NamedTuple

from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_meta import API_VERSION


class Place(NamedTuple):
    """The group version with its prefix, and the plural."""

    api: str
    plural: str
    namespaced: bool = True


PLACES: Final = {
    "StateDocument": Place("apis/internal.barnabas.dev/v1", "statedocuments"),
    "ConfigMap": Place("api/v1", "configmaps"),
    "Deployment": Place("apis/apps/v1", "deployments"),
    "Event": Place("api/v1", "events"),
    "HorizontalPodAutoscaler": Place("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "Namespace": Place("api/v1", "namespaces", namespaced=False),
    "Node": Place("api/v1", "nodes", namespaced=False),
    "PersistentVolumeClaim": Place("api/v1", "persistentvolumeclaims"),
    "Pod": Place("api/v1", "pods"),
    "Service": Place("api/v1", "services"),
    "ServiceAccount": Place("api/v1", "serviceaccounts"),
    "StatefulSet": Place("apis/apps/v1", "statefulsets"),
    "StorageClass": Place("apis/storage.k8s.io/v1", "storageclasses", namespaced=False),
    "Lease": Place("apis/coordination.k8s.io/v1", "leases"),
    "NetworkPolicy": Place("apis/networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": Place("apis/policy/v1", "poddisruptionbudgets"),
    "PodMonitor": Place("apis/monitoring.coreos.com/v1", "podmonitors"),
    "RoleBinding": Place("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
}
"""Of what Clusters own, and of what else the operator asks for."""


def place_of(kind: str) -> Place:
    """Of a kind of ours, too. Raises KeyError."""
    return Place(f"apis/{API_VERSION}", KINDS[kind].plural) if kind in KINDS else PLACES[kind]


def path_of(kind: str, namespace: str | None, name: str | None = None) -> str:
    """The path of one object, or of all in the namespace, or (None) in all."""
    place = place_of(kind)
    inside = f"namespaces/{namespace}/" if place.namespaced and namespace is not None else ""
    return f"/{place.api}/{inside}{place.plural}" + (f"/{name}" if name else "")

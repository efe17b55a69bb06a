"""Where the API server keeps objects of each kind that the operator deals with."""

from typing import Final, NamedTuple

from barnabas_operator.resources.object_meta import API_VERSION


class Kind(NamedTuple):
    """The group version with its prefix, and the plural."""

    api: str
    plural: str
    namespaced: bool = True


KINDS: Final = {
    "Cluster": Kind(f"apis/{API_VERSION}", "clusters"),
    "Topic": Kind(f"apis/{API_VERSION}", "topics"),
    "StateDocument": Kind("apis/internal.barnabas.dev/v1", "statedocuments"),
    "Deployment": Kind("apis/apps/v1", "deployments"),
    "ConfigMap": Kind("api/v1", "configmaps"),
    "Event": Kind("api/v1", "events"),
    "Namespace": Kind("api/v1", "namespaces", namespaced=False),
    "Node": Kind("api/v1", "nodes", namespaced=False),
    "PersistentVolumeClaim": Kind("api/v1", "persistentvolumeclaims"),
    "Pod": Kind("api/v1", "pods"),
    "Service": Kind("api/v1", "services"),
    "ServiceAccount": Kind("api/v1", "serviceaccounts"),
    "StatefulSet": Kind("apis/apps/v1", "statefulsets"),
    "StorageClass": Kind("apis/storage.k8s.io/v1", "storageclasses", namespaced=False),
    "Lease": Kind("apis/coordination.k8s.io/v1", "leases"),
    "NetworkPolicy": Kind("apis/networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": Kind("apis/policy/v1", "poddisruptionbudgets"),
    "PodMonitor": Kind("apis/monitoring.coreos.com/v1", "podmonitors"),
    "RoleBinding": Kind("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
}


def path_of(kind: str, namespace: str | None, name: str | None = None) -> str:
    """The path of one object, or of all in the namespace, or (None) in all."""
    place = KINDS[kind]
    inside = f"namespaces/{namespace}/" if place.namespaced and namespace is not None else ""
    return f"/{place.api}/{inside}{place.plural}" + (f"/{name}" if name else "")

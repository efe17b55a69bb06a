"""The API paths of all kinds that the operator uses."""

from typing import Final, NamedTuple

from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_meta import API_VERSION


class ApiResource(NamedTuple):
    """The path prefix of a kind's group and version, and the plural name of the kind."""

    api: str
    plural: str
    namespaced: bool = True


API_RESOURCES: Final = {
    "StateDocument": ApiResource("apis/internal.barnabas.dev/v1", "statedocuments"),
    "CronJob": ApiResource("apis/batch/v1", "cronjobs"),
    "Job": ApiResource("apis/batch/v1", "jobs"),
    "ConfigMap": ApiResource("api/v1", "configmaps"),
    "Deployment": ApiResource("apis/apps/v1", "deployments"),
    "Event": ApiResource("api/v1", "events"),
    "HorizontalPodAutoscaler": ApiResource("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "Namespace": ApiResource("api/v1", "namespaces", namespaced=False),
    "Node": ApiResource("api/v1", "nodes", namespaced=False),
    "PersistentVolume": ApiResource("api/v1", "persistentvolumes", namespaced=False),
    "PersistentVolumeClaim": ApiResource("api/v1", "persistentvolumeclaims"),
    "Pod": ApiResource("api/v1", "pods"),
    "Secret": ApiResource("api/v1", "secrets"),
    "Service": ApiResource("api/v1", "services"),
    "ServiceAccount": ApiResource("api/v1", "serviceaccounts"),
    "StatefulSet": ApiResource("apis/apps/v1", "statefulsets"),
    "SparkApplication": ApiResource("apis/sparkoperator.k8s.io/v1beta2", "sparkapplications"),
    "StorageClass": ApiResource("apis/storage.k8s.io/v1", "storageclasses", namespaced=False),
    "Lease": ApiResource("apis/coordination.k8s.io/v1", "leases"),
    "NetworkPolicy": ApiResource("apis/networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": ApiResource("apis/policy/v1", "poddisruptionbudgets"),
    "PodMonitor": ApiResource("apis/monitoring.coreos.com/v1", "podmonitors"),
    "Role": ApiResource("apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ApiResource("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
}
"""The API resources of all kinds except the operator's own."""


def api_resource_of(kind: str) -> ApiResource:
    """Return the API resource of a kind. Raises KeyError if the operator does not use the kind."""
    return ApiResource(f"apis/{API_VERSION}", KINDS[kind].plural) if kind in KINDS else API_RESOURCES[kind]


def path_of(kind: str, namespace: str | None, name: str | None = None) -> str:
    """Return the path of an object, or of all objects of the kind if `name` is None.

    If `namespace` is None, the path is that of the objects in all namespaces.
    """
    resource = api_resource_of(kind)
    inside = f"namespaces/{namespace}/" if resource.namespaced and namespace is not None else ""
    return f"/{resource.api}/{inside}{resource.plural}" + (f"/{name}" if name else "")

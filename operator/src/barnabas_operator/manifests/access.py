"""Who the brokers are to the Kubernetes API, and what they may do there: their own cluster's metadata, no more."""

from typing import Final

from barnabas_operator.manifests.kube_object import KubeObject, kube_object, patch_of
from barnabas_operator.planning.object_names import brokers_name
from barnabas_operator.resources.cluster import Cluster

RBAC: Final = "rbac.authorization.k8s.io"


def access_objects(cluster: Cluster) -> list[KubeObject]:
    """ServiceAccount, Role and RoleBinding."""
    name = brokers_name(cluster.metadata.name)
    patches = [patch_of(cluster.spec.template.service_account)]
    account = kube_object("v1", "ServiceAccount", cluster, name, patches=patches, automountServiceAccountToken=False)
    role = kube_object(f"{RBAC}/v1", "Role", cluster, name, rules=broker_rules())
    binding = kube_object(
        f"{RBAC}/v1",
        "RoleBinding",
        cluster,
        name,
        roleRef={"apiGroup": RBAC, "kind": "Role", "name": name},
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": account["metadata"]["namespace"]}],
    )
    return [account, role, binding]


def broker_rules() -> list[KubeObject]:
    """What the metadata store does with documents and leases of the namespace.

    Their names begin with the Cluster's and a dot, which rules cannot express.
    """
    return [
        {
            "apiGroups": ["internal.barnabas.dev"],
            "resources": ["statedocuments"],
            "verbs": ["get", "list", "watch", "create", "patch", "delete"],
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "create", "patch"]},
    ]

"""The ServiceAccounts of a Cluster's pods, and their RoleBindings."""

from collections.abc import Sequence

from barnabas_operator.manifests.kube_object import KubeObject, kube_object, patch_of
from barnabas_operator.planning.object_names import brokers_name
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_roles import BROKER_ROLE, RBAC
from barnabas_operator.resources.json_types import Json


def broker_access(cluster: Cluster) -> list[KubeObject]:
    """Return the brokers' ServiceAccount and RoleBinding, with access to the metadata store."""
    patches = [patch_of(cluster.spec.template.service_account)]
    return account_with_role(cluster, brokers_name(cluster.metadata.name), BROKER_ROLE, patches)


def account_with_role(cluster: Cluster, name: str, role: str, patches: Sequence[Json] = ()) -> list[KubeObject]:
    """Return a ServiceAccount, with `patches` merged over it, and its RoleBinding to the ClusterRole `role`."""
    account = kube_object("v1", "ServiceAccount", cluster, name, patches=patches, automountServiceAccountToken=False)
    return [account, role_binding(cluster, name, "ClusterRole", role, name)]


def role_binding(cluster: Cluster, name: str, kind: str, role: str, account: str) -> KubeObject:
    """Return a RoleBinding of a ServiceAccount to a role of this kind, ClusterRole or Role."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": cluster.metadata.namespace or "default"}
    role_ref = {"apiGroup": RBAC, "kind": kind, "name": role}
    return kube_object(f"{RBAC}/v1", "RoleBinding", cluster, name, roleRef=role_ref, subjects=[subject])

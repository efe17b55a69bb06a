"""Who the brokers are to the Kubernetes API, and what they may do there: their own cluster's metadata, no more."""

from barnabas_operator.manifests.kube_object import KubeObject, kube_object, patch_of
from barnabas_operator.planning.object_names import brokers_name
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_roles import BROKER_ROLE, RBAC


def access_objects(cluster: Cluster) -> list[KubeObject]:
    """ServiceAccount and RoleBinding. The role is the same for all Clusters, so the operator makes none."""
    name = brokers_name(cluster.metadata.name)
    patches = [patch_of(cluster.spec.template.service_account)]
    account = kube_object("v1", "ServiceAccount", cluster, name, patches=patches, automountServiceAccountToken=False)
    binding = kube_object(
        f"{RBAC}/v1",
        "RoleBinding",
        cluster,
        name,
        roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": BROKER_ROLE},
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": account["metadata"]["namespace"]}],
    )
    return [account, binding]

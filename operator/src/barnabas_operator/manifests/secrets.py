"""The Secrets of a secured Cluster, and the Role with which brokers store SCRAM credentials in Secrets."""

from base64 import b64encode
from collections.abc import Mapping

from barnabas_core.credential_secrets import credential_secrets
from barnabas_operator.manifests.access import role_binding
from barnabas_operator.manifests.kube_object import KubeObject, kube_object
from barnabas_operator.planning.brokers.cluster_secrets import WantedSecret
from barnabas_operator.planning.brokers.local_security import is_secured
from barnabas_operator.planning.object_names import brokers_name, credentials_access_name
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_roles import RBAC, credential_rules


def secret(cluster: Cluster, wanted: WantedSecret) -> KubeObject:
    """Return a Secret. It has no owner reference if it must outlive its Cluster."""
    made = kube_object(
        "v1", "Secret", cluster, wanted.name, annotations=wanted.marks, type="Opaque", data=_encoded(wanted.data)
    )
    return _without_owner(made) if wanted.outlives else made


def credential_objects(cluster: Cluster) -> list[KubeObject]:
    """Return the empty Secrets that brokers fill with SCRAM credentials, with Role and RoleBinding.

    Nothing is returned for a Cluster without security. The Secrets outlive the Cluster, so that users keep their
    passwords.
    """
    if not is_secured(cluster):
        return []
    name = credentials_access_name(cluster.metadata.name)
    secrets = [
        _without_owner(kube_object("v1", "Secret", cluster, each, type="Opaque"))
        for each in credential_secrets(cluster.metadata.name)
    ]
    role = kube_object(f"{RBAC}/v1", "Role", cluster, name, rules=credential_rules(cluster.metadata.name))
    return [*secrets, role, role_binding(cluster, name, "Role", name, brokers_name(cluster.metadata.name))]


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {name: b64encode(value).decode() for name, value in data.items()}


def _without_owner(item: KubeObject) -> KubeObject:
    meta = {name: value for name, value in item["metadata"].items() if name != "ownerReferences"}
    return {**item, "metadata": meta}

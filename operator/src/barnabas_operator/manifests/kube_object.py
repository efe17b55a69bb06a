"""A Kubernetes object as JSON, and what all objects of a Cluster have in common."""

from collections.abc import Mapping
from typing import Any

from barnabas_operator.planning.object_names import labels
from barnabas_operator.resources.cluster import Cluster

KubeObject = dict[str, Any]


def kube_object(
    api_version: str,
    kind: str,
    cluster: Cluster,
    name: str,
    *,
    more_labels: Mapping[str, str] | None = None,
    **body: Any,
) -> KubeObject:
    """An object in the Cluster's namespace that goes when the Cluster goes."""
    meta = cluster.metadata
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace or "default",
            "labels": {**labels(meta.name), **(more_labels or {})},
            "ownerReferences": [_owner(cluster)],
        },
        **body,
    }


def _owner(cluster: Cluster) -> KubeObject:
    return {
        "apiVersion": cluster.api_version,
        "kind": cluster.kind,
        "name": cluster.metadata.name,
        "uid": cluster.metadata.uid or "",
        "controller": True,
        "blockOwnerDeletion": False,
    }

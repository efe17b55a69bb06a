"""Kubernetes objects as JSON, with the metadata that all objects of a Cluster have in common."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from barnabas_operator.planning.brokers.strategic_merge import merged
from barnabas_operator.planning.object_names import labels
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.template import BrokerServiceTemplate, MetadataTemplate, Template, TemplateMetadata

AnyTemplate = Template | MetadataTemplate | BrokerServiceTemplate

KubeObject = dict[str, Any]


def kube_object(
    api_version: str,
    kind: str,
    cluster: Cluster,
    name: str,
    *,
    more_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    patches: Sequence[Json] = (),
    **body: Any,
) -> KubeObject:
    """Return an object that the Cluster owns, merged with the Cluster's template metadata and then with `patches`."""
    meta = cluster.metadata
    made: KubeObject = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace or "default",
            "labels": {**labels(meta.name), **(more_labels or {})},
            **({"annotations": dict(annotations)} if annotations else {}),
            "ownerReferences": [cluster.owner_reference],
        },
        **body,
    }
    return reduce(merged, (metadata_patch(cluster.spec.template.metadata), *patches), made)


def patch_of(template: AnyTemplate) -> KubeObject:
    """Return the metadata and the spec of a declared template as a patch for an object."""
    spec = {} if isinstance(template, MetadataTemplate) else template.spec
    return metadata_patch(template.metadata) | ({"spec": spec} if spec else {})


def workload_patches(
    cluster: Cluster, workload: AnyTemplate, pod: AnyTemplate, container: Json, name: str
) -> list[Json]:
    """Return the patches for a workload, its pods and their container `name`, from declared templates."""
    pods = [
        metadata_patch(cluster.spec.template.metadata),
        patch_of(pod),
        {"spec": {"containers": [{"name": name, **container}]}},
    ]
    return [patch_of(workload), *({"spec": {"template": each}} for each in pods)]


def metadata_patch(metadata: TemplateMetadata) -> KubeObject:
    """Return labels and annotations as a patch for an object; empty if there are none."""
    said = {name: each for name in ("labels", "annotations") if (each := getattr(metadata, name))}
    return {"metadata": said} if said else {}

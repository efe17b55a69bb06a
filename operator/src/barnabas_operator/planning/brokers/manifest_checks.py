"""The checks across all manifests of one directory, for local brokers."""

from collections.abc import Iterator

from barnabas_operator.planning.brokers.server_properties import cluster_problems
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.manifests import Declared, Manifests
from barnabas_operator.resources.yaml_documents import ManifestError, Place


def manifest_problems(manifests: Manifests, directory: str) -> tuple[ManifestError, ...]:
    """Return all errors. If a manifest is invalid by itself, checks across manifests are left out."""
    if manifests.errors:
        return manifests.errors
    clusters = [item for item in manifests.declared if isinstance(item.resource, Cluster)]
    if not clusters:
        return (ManifestError(Place(directory, 1, 1), "no manifest declares a Cluster; declare exactly one Cluster"),)
    return (*_other_clusters(clusters), *_invalid_cluster(clusters[0]), *_of_another(manifests, clusters[0]))


def _other_clusters(clusters: list[Declared]) -> Iterator[ManifestError]:
    first, *others = clusters
    for other in others:
        yield ManifestError(
            other.place(), f"another Cluster is declared at {first.place()}; declare exactly one Cluster"
        )


def _invalid_cluster(declared: Declared) -> Iterator[ManifestError]:
    assert isinstance(declared.resource, Cluster)
    listeners = declared.resource.spec.listeners
    if len(listeners) > 1:
        message = (
            f"spec.listeners has {len(listeners)} entries; allowed: one entry, because the brokers are local processes"
        )
        yield ManifestError(declared.place(("spec", "listeners")), message)
        return
    for path, message in cluster_problems(declared.resource):
        yield ManifestError(declared.place(path), message)


def _of_another(manifests: Manifests, cluster: Declared) -> Iterator[ManifestError]:
    name = cluster.resource.metadata.name
    for item in manifests.declared:
        if not isinstance(item.resource, Cluster) and item.resource.spec.cluster not in (None, name):
            message = f"spec.cluster is {item.resource.spec.cluster!r}; allowed: {name}, the Cluster of these manifests"
            yield ManifestError(item.place(("spec", "cluster")), message)

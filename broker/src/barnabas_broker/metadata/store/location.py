"""The location of a cluster's metadata, from `metadata.store`, which the config has validated."""

from pathlib import Path
from typing import Final, NamedTuple

_SQLITE: Final = "sqlite:///"
_KUBERNETES: Final = "kubernetes://"


class SqliteFile(NamedTuple):
    """`sqlite:///PATH`; an absolute path makes it four slashes."""

    path: Path


class KubernetesCluster(NamedTuple):
    """`kubernetes://NAMESPACE/CLUSTER`: objects in that namespace that have the cluster's label."""

    namespace: str
    cluster: str


def location(metadata_store: str) -> SqliteFile | KubernetesCluster:
    """The store that the setting `metadata.store` names."""
    if metadata_store.startswith(_KUBERNETES):
        namespace, _, cluster = metadata_store.removeprefix(_KUBERNETES).partition("/")
        return KubernetesCluster(namespace, cluster)
    assert metadata_store.startswith(_SQLITE), "the setting's check allows nothing else"
    return SqliteFile(Path(metadata_store.removeprefix(_SQLITE)))

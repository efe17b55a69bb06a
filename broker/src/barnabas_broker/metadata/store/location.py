"""The location of the metadata store, from the setting `metadata.store`."""

from pathlib import Path
from typing import Final, NamedTuple

_SQLITE: Final = "sqlite:///"
_KUBERNETES: Final = "kubernetes://"


class SqliteFile(NamedTuple):
    """The location `sqlite:///PATH`; with an absolute path it has four slashes."""

    path: Path


class KubernetesCluster(NamedTuple):
    """The location `kubernetes://NAMESPACE/CLUSTER`: objects in the namespace with the cluster's label."""

    namespace: str
    cluster: str


def location(metadata_store: str) -> SqliteFile | KubernetesCluster:
    """Return the location that the setting `metadata.store` names."""
    if metadata_store.startswith(_KUBERNETES):
        namespace, _, cluster = metadata_store.removeprefix(_KUBERNETES).partition("/")
        return KubernetesCluster(namespace, cluster)
    assert metadata_store.startswith(_SQLITE), "metadata.store must begin with kubernetes:// or sqlite://"
    return SqliteFile(Path(metadata_store.removeprefix(_SQLITE)))

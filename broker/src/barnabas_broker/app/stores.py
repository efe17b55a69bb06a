"""Opens the metadata store that the settings name. A store's own modules are imported here, when it is the one."""

import os
from typing import Final

from barnabas_broker.metadata.location import KubernetesCluster, SqliteFile, location
from barnabas_broker.metadata.store import MetadataStore, StoreUnavailable
from barnabas_core.clock import Clock

POD_UID: Final = "POD_UID"
"""The environment variable with the `metadata.uid` of the pod, where the broker runs in one."""


async def open_store(metadata_store: str, clock: Clock) -> MetadataStore:
    """The store, ready for use. Raises StoreUnavailable."""
    match location(metadata_store):
        case SqliteFile() as file:
            return await _open_sqlite(file, clock)
        case KubernetesCluster() as cluster:
            return _open_kubernetes(cluster, clock)


async def _open_sqlite(file: SqliteFile, clock: Clock) -> MetadataStore:
    from barnabas_broker.metadata.sqlite_store import SqliteStore

    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(str(error)) from error
    return await SqliteStore.open(file.path, clock)


def _open_kubernetes(cluster: KubernetesCluster, clock: Clock) -> MetadataStore:
    from barnabas_broker.metadata.kubernetes.access import NoAccess, find_access

    try:
        from barnabas_broker.metadata.kubernetes.store import KubernetesStore
    except ModuleNotFoundError as error:
        raise StoreUnavailable(f"{error}; `pip install 'barnabas[kubernetes]'` brings it") from error
    try:
        access = find_access(os.environ)
    except NoAccess as error:
        raise StoreUnavailable(str(error)) from error
    return KubernetesStore(cluster, access, clock, os.environ.get(POD_UID, ""))

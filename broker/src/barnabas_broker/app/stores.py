"""The opening of the metadata store; only the modules of the configured store are imported."""

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from typing import Final

from barnabas_broker.metadata.documents import CLUSTER_KEY
from barnabas_broker.metadata.store.metadata_store import (
    KubernetesCluster,
    MetadataStore,
    SecretStore,
    SqliteFile,
    StoreUnavailable,
    location,
)
from barnabas_core.clock import Clock
from barnabas_kube.access import Access

WAIT_S: Final = 1.0
POD_UID: Final = "POD_UID"
"""The environment variable with the `metadata.uid` of the broker's pod, on Kubernetes."""

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

log = logging.getLogger(__name__)


def boot_id() -> str:
    """Return the boot id, which changes when the system restarts; empty without /proc."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


async def open_store(metadata_store: str, clock: Clock, stopping: asyncio.Event) -> MetadataStore:
    """Return the open store. Wait for a store on a network until `stopping` is set. Raises StoreUnavailable."""
    match location(metadata_store):
        case SqliteFile() as file:
            return await _open_sqlite(file, clock)
        case KubernetesCluster() as cluster:
            return await _open_kubernetes(cluster, clock, stopping)


async def _open_sqlite(file: SqliteFile, clock: Clock) -> MetadataStore:
    from barnabas_broker.metadata.store.sqlite_store import SqliteStore

    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(str(error)) from error
    return await SqliteStore.open(file.path, clock, boot_id())


async def open_secrets(metadata_store: str, clock: Clock) -> SecretStore:
    """Open the store for secrets: a SQLite file beside that of the metadata, or Kubernetes. Raises StoreUnavailable."""
    match location(metadata_store):
        case SqliteFile(path):
            from barnabas_broker.metadata.store.sqlite_secrets import SqliteSecrets

            return await SqliteSecrets.open(path.with_name(f"{path.stem}.secrets{path.suffix}"), clock, boot_id())
        case KubernetesCluster() as cluster:
            from barnabas_broker.metadata.store.kubernetes.kubernetes_store import KubernetesSecrets

            return KubernetesSecrets(cluster, _access())


async def _open_kubernetes(cluster: KubernetesCluster, clock: Clock, stopping: asyncio.Event) -> MetadataStore:
    try:
        from barnabas_broker.metadata.store.kubernetes.kubernetes_store import KubernetesStore
    except ModuleNotFoundError as error:
        raise StoreUnavailable(f"{error}; install the missing module with `pip install 'barnabas[broker]'`") from error
    store = KubernetesStore(cluster, _access(), clock, os.environ.get(POD_UID, ""))
    try:
        await _until_it_answers(store, stopping)
    except BaseException:
        await store.close()
        raise
    return store


def _access() -> Access:
    from barnabas_kube.access import NoAccess
    from barnabas_kube.discovery import find_access

    try:
        return find_access(os.environ)
    except NoAccess as error:
        raise StoreUnavailable(str(error)) from error


async def _until_it_answers(store: MetadataStore, stopping: asyncio.Event) -> None:
    """Wait for the store; if the broker exited instead, Kubernetes would delay each restart longer."""
    while True:
        try:
            await store.leases("")
            await store.get(CLUSTER_KEY)
            return
        except StoreUnavailable as error:
            if stopping.is_set():
                raise
            log.warning("the broker waits until the metadata store responds: %s", error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await stopping.wait()

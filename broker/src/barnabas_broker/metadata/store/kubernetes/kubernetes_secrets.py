"""The secrets of brokers in Kubernetes: entries of a few Secrets, which are read, watched and patched by name.

A broker needs RBAC rights to these Secrets only. A broker must not create Secrets, because a user who may create
Secrets can have one filled with the token of any service account.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from http import HTTPStatus
from typing import Final

from barnabas_broker.metadata.store.kubernetes import objects
from barnabas_broker.metadata.store.kubernetes.leases import ApiRequests
from barnabas_broker.metadata.store.kubernetes.objects import MERGE_PATCH, SecretObject
from barnabas_broker.metadata.store.metadata_store import HistoryCompacted, KubernetesCluster, Secrets, StoreUnavailable
from barnabas_core.credential_secrets import credential_secrets
from barnabas_kube.access import Access
from barnabas_kube.client import Answer, parse_status

log = logging.getLogger(__name__)

WATCH_S: Final = 40
"""The seconds after which a watch ends and its Secret is read again, so that a deletion is seen within a minute."""
LATE_S: Final = 5.0
"""The seconds by which a silent server may exceed WATCH_S before it counts as unavailable."""
ATTEMPTS_MAX: Final = 20


class KubernetesSecrets:
    """A SecretStore in Kubernetes."""

    def __init__(self, cluster: KubernetesCluster, access: Access) -> None:
        """Create the store within a running event loop; this sends no request."""
        self._api = ApiRequests(access)
        self._collection = f"/api/v1/namespaces/{cluster.namespace}/secrets"
        self._names = credential_secrets(cluster.cluster)
        self._known: list[dict[str, bytes]] = [{} for _ in self._names]
        self._closed = False

    async def create(self, key: str, value: bytes) -> bytes:
        """Store a secret unless the key has one already; return the stored secret."""
        name = self._names[objects.shard_of(key)]
        for _ in range(ATTEMPTS_MAX):
            found = await self._get(name)
            if found is None:
                break
            present = _secrets_in(found).get(key)
            if present is not None or await self._patch(name, {key: value}, found.metadata.resource_version):
                return present or value
        raise StoreUnavailable(_missing(name))

    async def write(self, secrets: Secrets) -> None:
        """Store these secrets, and delete those whose value is None."""
        by_shard: dict[int, dict[str, bytes | None]] = {}
        for key, value in secrets.items():
            by_shard.setdefault(objects.shard_of(key), {})[key] = value
        names = [self._names[shard] for shard in by_shard]
        done = await asyncio.gather(*map(self._patch, names, by_shard.values()))
        if not all(done):
            raise StoreUnavailable(_missing(names[done.index(False)]))

    async def read(self) -> Mapping[str, bytes]:
        """Return all secrets."""
        for shard, found in enumerate(await asyncio.gather(*map(self._get, self._names))):
            self._see(shard, found)
        return {key: value for known in self._known for key, value in known.items()}

    async def get(self, keys: Collection[str]) -> Mapping[str, bytes]:
        """Return those of these secrets that exist, as they are stored now."""
        names = sorted({self._names[objects.shard_of(key)] for key in keys})
        stored: dict[str, bytes] = {}
        for found in await asyncio.gather(*map(self._get, names)):
            stored |= {} if found is None else _secrets_in(found)
        return {key: stored[key] for key in keys if key in stored}

    async def follow(self) -> AsyncIterator[Secrets]:
        """Yield the changes since the last `read`, and later changes, until `close` is called."""
        heard: asyncio.Queue[Secrets | StoreUnavailable] = asyncio.Queue()
        tasks = [asyncio.ensure_future(self._follow_one(shard, heard)) for shard in range(len(self._names))]
        try:
            while True:
                changes = await heard.get()
                if self._closed:
                    return
                if isinstance(changes, StoreUnavailable):
                    raise changes
                if changes:
                    yield changes
        finally:
            for task in tasks:
                task.cancel()

    async def _follow_one(self, shard: int, heard: asyncio.Queue[Secrets | StoreUnavailable]) -> None:
        try:
            while True:
                found = await self._get(self._names[shard])
                heard.put_nowait(self._see(shard, found))
                with contextlib.suppress(HistoryCompacted):
                    async for seen in self._watch(self._names[shard], found):
                        heard.put_nowait(self._see(shard, seen))
        except StoreUnavailable as error:
            heard.put_nowait(error)

    async def _watch(self, name: str, found: SecretObject | None) -> AsyncIterator[SecretObject | None]:
        """Yield a Secret after each change, or None after its deletion, until the server ends the watch."""
        query = {"fieldSelector": f"metadata.name={name}", "watch": "1", "timeoutSeconds": str(WATCH_S)}
        if found is not None:
            query["resourceVersion"] = found.metadata.resource_version
        async with contextlib.aclosing(self._api.stream(self._collection, query, WATCH_S + LATE_S)) as stream:
            async for lines in stream:
                for line in filter(None, lines):
                    yield objects.secret_after(line)

    def _see(self, shard: int, found: SecretObject | None) -> Secrets:
        """Remember the entries of a Secret, and return the entries that have changed since the Secret was last seen.

        A removed entry is returned with the value None.
        """
        before, after = self._known[shard], {} if found is None else _secrets_in(found)
        self._known[shard] = after
        gone: dict[str, bytes | None] = dict.fromkeys(before.keys() - after.keys())
        return gone | {key: value for key, value in after.items() if before.get(key) != value}

    async def _get(self, name: str) -> SecretObject | None:
        answer = await self._api.request("GET", f"{self._collection}/{name}")
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        _expect(name, answer)
        return objects.parse_secret(answer.body)

    async def _patch(self, name: str, secrets: Secrets, expected_version: str = "") -> bool:
        """Patch the Secret; return False if the Secret does not exist, or has another version."""
        body = objects.change(secrets, expected_version)
        path = f"{self._collection}/{name}"
        answer = await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        if answer.status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
            return False
        _expect(name, answer)
        return True

    async def close(self) -> None:
        """End all requests that are under way, and all calls of `follow`."""
        self._closed = True
        await self._api.close()


def _secrets_in(found: SecretObject) -> dict[str, bytes]:
    secrets, strange = objects.secrets_in(found)
    if strange:
        log.error(
            "Secret %s has entries that no broker wrote; the broker ignores them: %s", found.metadata.name, strange
        )
    return secrets


def _missing(name: str) -> str:
    return f"Secret {name} is missing, or other processes keep changing it; the operator creates missing Secrets"


def _expect(name: str, answer: Answer) -> None:
    """Raise StoreUnavailable if the API server refuses the request, for example because the Secret exceeds 1 MiB."""
    if answer.status != HTTPStatus.OK:
        raise StoreUnavailable(
            f"the API server refused a request for Secret {name}: {answer.status} {parse_status(answer.body).message}"
        )

"""The metadata store in Kubernetes, with a custom resource for each stored document and a Lease for each lease.

The resource version of an object is both the version of its document and the revision of the store. Every write to etcd
gets a higher resource version, and one watch over all documents of a cluster reports changes in the order of their
resource versions.

The secrets of brokers in Kubernetes: entries of a few Secrets, which are read, watched and patched by name. A
broker needs RBAC rights to these Secrets only. A broker must not create Secrets, because a user who may create
Secrets can have one filled with the token of any service account.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec

from barnabas_broker.metadata.store.kubernetes import leases as lease_objects
from barnabas_broker.metadata.store.kubernetes import objects
from barnabas_broker.metadata.store.kubernetes.leases import (
    BULK_S,
    ApiRequests,
    LeaseList,
    LeaseObject,
    LeaseWatch,
    Observations,
)
from barnabas_broker.metadata.store.kubernetes.objects import MERGE_PATCH, SecretObject, changes_in, is_document
from barnabas_broker.metadata.store.metadata_store import (
    ABSENT,
    Changes,
    Document,
    HistoryCompacted,
    KubernetesCluster,
    Lease,
    LeaseLost,
    Listing,
    Secrets,
    StoreUnavailable,
    VersionConflict,
    Write,
)
from barnabas_core.clock import Clock, monotonic_ms
from barnabas_core.conventions import credential_secrets
from barnabas_kube.access import Access
from barnabas_kube.client import Answer, parse_status

WRITES_AT_ONCE: Final = 16
WATCH_S: Final = 300
"""The seconds after which the API server ends a watch; the next watch continues from the same revision."""
ATTEMPTS_MAX: Final = 20

T = TypeVar("T")


class KubernetesStore:
    """A MetadataStore in Kubernetes. The clock of this process measures how long leases last."""

    def __init__(self, cluster: KubernetesCluster, access: Access, clock: Clock, pod_uid: str = "") -> None:
        """Create the store within a running event loop; this sends no request. `pod_uid` is "" outside of pods."""
        self._cluster = cluster.cluster
        self._clock = clock
        self._pod_uid = pod_uid
        self._api = ApiRequests(access)
        self._documents = f"/apis/{objects.GROUP}/{objects.VERSION}/namespaces/{cluster.namespace}/{objects.PLURAL}"
        self._leases = f"/apis/{lease_objects.API_VERSION}/namespaces/{cluster.namespace}/leases"
        self._ours = {"labelSelector": f"{objects.CLUSTER_LABEL}={self._cluster}"}
        self._observations = Observations(self._cluster, clock)
        self._lease_watch = LeaseWatch(
            self._api, self._leases, self._ours, self._list_leases, self._observations, clock
        )
        self._writing = asyncio.Semaphore(WRITES_AT_ONCE)
        self._marks = (f'"{uuid4().hex}-{number}"'.encode() for number in itertools.count())
        self._closed = False

    async def get(self, key: str) -> Document | None:
        """Return the value stored under a key with its version, or None if the key does not exist."""
        answer = await self._request("GET", self._path(key))
        if _is_absent(answer):
            return None
        return objects.document_of(_parse(answer, objects.StateObject))

    async def listing(self) -> Listing:
        """Return all stored values, in the order of their keys."""
        answer = await self._request("GET", self._documents, self._ours, timeout_s=BULK_S)
        found = _parse(answer, objects.StateObjectList)
        documents = [objects.document_of(each) for each in found.items if is_document(each, self._cluster)]
        return Listing(int(found.metadata.resource_version), sorted(documents))

    async def put(self, key: str, value: bytes, expected_version: int | None = None) -> int:
        """Write the value of a key; return the new version.

        Raises VersionConflict if `expected_version` is given and differs from the stored version.
        """
        if expected_version is None:
            return await self._put_whatever_is_there(key, value)
        if expected_version == ABSENT:
            version = await self._create(key, value)
        else:
            version = await self._replace(key, value, expected_version)
        if version is None:
            raise await self._conflict(key, expected_version)
        return version

    async def _put_whatever_is_there(self, key: str, value: bytes) -> int:
        for _ in range(ATTEMPTS_MAX):
            version = await self._replace(key, value, None) or await self._create(key, value)
            if version is not None:
                return version
        raise StoreUnavailable(
            f"the key {key} of the metadata store could not be written, because other processes wrote and deleted the "
            f"key during {ATTEMPTS_MAX} attempts"
        )

    async def _create(self, key: str, value: bytes) -> int | None:
        """Create the object of a key; return its version, or None if the key exists already.

        If an object with the same name lacks the label of the cluster, adopt the object (`_adopt`).
        """
        answer = await self._request("POST", self._documents, body=objects.creation(self._cluster, key, value))
        return await self._adopt(key, value) if answer.status == HTTPStatus.CONFLICT else _version(answer)

    async def _adopt(self, key: str, value: bytes) -> int | None:
        """Overwrite an object that has lost its cluster label, and set the label again.

        List and watch requests find only objects with the label. Return the new version; None if the object has the
        label, is gone, or has changed in the meantime.
        """
        answer = await self._request("GET", self._path(key))
        if _is_absent(answer):
            return None
        found = _parse(answer, objects.StateObject)
        if found.metadata.labels.get(objects.CLUSTER_LABEL) == self._cluster:
            return None
        body = objects.adoption(found, self._cluster, key, value)
        answer = await self._request("PATCH", self._path(key), body=body, content_type=objects.JSON_PATCH)
        is_gone = answer.status in (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY) or _is_absent(answer)
        return None if is_gone else _version(answer)

    async def _replace(self, key: str, value: bytes, expected_version: int | None) -> int | None:
        """Replace the value of a key; return the new version.

        Return None if the key does not exist, or if its version is not `expected_version`.
        """
        body = objects.replacement(key, value, expected_version)
        answer = await self._request("PATCH", self._path(key), body=body, content_type=objects.JSON_PATCH)
        failed_test = expected_version is not None and answer.status == HTTPStatus.UNPROCESSABLE_ENTITY
        if failed_test or answer.status == HTTPStatus.CONFLICT or _is_absent(answer):
            return None
        return _version(answer)

    async def _conflict(self, key: str, expected_version: int) -> VersionConflict:
        found = await self.get(key)
        actual = ABSENT if found is None else found.version
        # A 422 means a wrong version or an invalid object; if the version is right, the object is invalid.
        if actual == expected_version:
            raise StoreUnavailable(
                f"the API server refuses the new value of the key {key}, although the key has the expected "
                f"resourceVersion {actual}"
            )
        return VersionConflict(key, expected_version, actual)

    async def _delete(self, key: str, expected_version: int | None) -> None:
        if expected_version == ABSENT:
            if await self.get(key) is not None:
                raise await self._conflict(key, ABSENT)
            return
        answer = await self._request("DELETE", self._path(key), body=objects.deletion(expected_version))
        if expected_version is not None and (answer.status == HTTPStatus.CONFLICT or _is_absent(answer)):
            raise await self._conflict(key, expected_version)
        if not _is_absent(answer):
            _expect(answer, HTTPStatus.OK, HTTPStatus.ACCEPTED)

    async def write(self, writes: Sequence[Write]) -> list[int | VersionConflict]:
        """Write many keys; return the revision or the conflict of each write.

        Up to WRITES_AT_ONCE keys are written in parallel; the writes of one key are made in order.
        """
        by_key: dict[str, list[int]] = {}
        for number, write in enumerate(writes):
            by_key.setdefault(write.key, []).append(number)
        results: list[int | VersionConflict] = [0] * len(writes)

        async def write_one_after_another(numbers: Sequence[int]) -> None:
            async with self._writing:
                for number in numbers:
                    results[number] = await self._outcome(writes[number])

        await _all_of([write_one_after_another(numbers) for numbers in by_key.values()])
        if any(write.value is None for write in writes):
            latest = await self.latest_revision()
            results = [result or latest for result in results]
        return results

    async def _outcome(self, write: Write) -> int | VersionConflict:
        """Make one write; return the new version, or the conflict if another process wrote first.

        For a deletion, return 0, because the API server does not report the revision of a deletion.
        """
        try:
            if write.value is not None:
                return await self.put(write.key, write.value, write.expected_version)
            await self._delete(write.key, write.expected_version)
        except VersionConflict as conflict:
            return conflict
        return 0

    async def latest_revision(self) -> int:
        """Write a marker object, and return its resourceVersion.

        All earlier writes have lower resourceVersions, and every watch will soon reach the returned resourceVersion. No
        read returns a resourceVersion that watches are sure to reach.
        """
        return await self._put_whatever_is_there(objects.MARK_KEY, next(self._marks))

    async def watch(self, from_revision: int) -> AsyncIterator[Changes]:
        """Yield every change after `from_revision`, in order. Raises HistoryCompacted if some are no longer kept.

        The watch is resumed when the API server ends a request after WATCH_S.
        """
        if not from_revision:
            raise HistoryCompacted("a watch of the API server cannot start at revision 0")
        seen = from_revision
        while not self._closed:
            query = {
                **self._ours,
                "watch": "1",
                "allowWatchBookmarks": "1",
                "resourceVersion": str(seen),
                "timeoutSeconds": str(WATCH_S),
            }
            try:
                await self._check_history(seen)
                async for lines in self._api.stream(self._documents, query):
                    changes = changes_in(lines, self._cluster)
                    if changes is not None:
                        seen = changes.revision
                        yield changes
            except StoreUnavailable:
                if not self._closed:
                    raise

    async def _check_history(self, revision: int) -> None:
        """Raise HistoryCompacted if the API server is behind `revision`, because etcd was restored from a backup.

        A watch from a future revision would be silent until the server reaches that revision.
        """
        answer = await self._request("GET", self._documents, {**self._ours, "limit": "1"})
        latest = int(_parse(answer, objects.StateObjectList).metadata.resource_version)
        if latest < revision:
            raise HistoryCompacted(
                f"the API server is at revision {latest}, but was at {revision} before: older data was restored"
            )

    async def acquire_lease(self, name: str, holder: str, duration_ms: int) -> Lease | None:
        """Acquire or renew a lease for `holder`; return None if another holder has it."""
        now_ms = monotonic_ms(self._clock)
        await self._list_leases()
        before, lease = self._observations.object(name), self._observations.leases().get(name)
        if lease is not None and lease.holder == holder:
            return await self._renew(lease)
        is_left_over = before is not None and lease_objects.is_left_over(before, self._pod_uid)
        if lease is not None and lease.expires_at_ms > now_ms and not is_left_over:
            return None
        token = self._observations.revision  # The watch may have seen a later revision than the list.
        return await self._take(Lease(name, holder, token, duration_ms, now_ms + duration_ms), before)

    async def _take(self, lease: Lease, before: LeaseObject | None) -> Lease | None:
        """Write `lease` and return it, or return None if another holder was faster."""
        body = lease_objects.taken(self._cluster, lease, self._clock.now_ms(), before, self._pod_uid)
        if before is None:
            answer = await self._request("POST", self._leases, body=body)
        else:
            path = f"{self._leases}/{before.metadata.name}"
            answer = await self._request("PATCH", path, body=body, content_type=objects.MERGE_PATCH)
        if answer.status == HTTPStatus.CONFLICT or (before is not None and _is_absent(answer)):
            return None
        _expect(answer, HTTPStatus.OK, HTTPStatus.CREATED)
        return lease

    async def renew_lease(self, lease: Lease) -> Lease:
        """Renew a lease: the duration begins again now. Raises LeaseLost if another holder has acquired the lease."""
        renewed = await self._renew(lease)
        if renewed is None:
            raise LeaseLost(f"the lease {lease.name} is no longer held by {lease.holder}")
        return renewed

    async def _renew(self, lease: Lease) -> Lease | None:
        """Renew a lease; return None if the holder has lost the lease.

        For the holder, the duration begins before the request is sent, so the lease expires for the holder before it
        expires for other processes.
        """
        now_ms = monotonic_ms(self._clock)
        is_held = await self._patch_held(lease, lease_objects.renewed(lease, self._clock.now_ms()))
        return lease._replace(expires_at_ms=now_ms + lease.duration_ms) if is_held else None

    async def release_lease(self, lease: Lease) -> None:
        """Release the lease at once, or do nothing if the lease was lost."""
        await self._patch_held(lease, lease_objects.released(lease))

    async def _patch_held(self, lease: Lease, body: bytes) -> bool:
        """Patch a lease, and return False if it is no longer held."""
        path = f"{self._leases}/{self._lease_name(lease.name)}"
        answer = await self._request("PATCH", path, body=body, content_type=objects.JSON_PATCH)
        if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY or _is_absent(answer):
            return False
        _expect(answer, HTTPStatus.OK)
        return True

    async def leases(self, prefix: str) -> Sequence[Lease]:
        """Return all leases whose name begins with `prefix`, except leases whose holder has certainly ended."""
        await self._list_leases()
        return self._observed(prefix)

    async def followed_leases(self, prefix: str) -> Sequence[Lease]:
        """Return the leases from the watch, which may lag a little behind the API server.

        If the watch has received nothing for some time, list the leases instead.
        """
        if not self._lease_watch.is_current():
            await self._list_leases()
        return self._observed(prefix)

    def _observed(self, prefix: str) -> Sequence[Lease]:
        known = self._observations.leases()
        return [known[name] for name in sorted(known) if name.startswith(prefix)]

    async def _list_leases(self) -> LeaseList:
        """List all leases, and note when they were renewed, which a broker must know if it becomes the controller."""
        known = self._observations.revision
        listed = _parse(await self._request("GET", self._leases, self._ours), LeaseList)
        self._observations.see_all(listed, known)
        return listed

    def _lease_name(self, name: str) -> str:
        return f"{self._cluster}.{name}"

    async def close(self) -> None:
        """End the watches and all requests that are under way."""
        self._closed = True
        await self._lease_watch.close()
        await self._api.close()

    def _path(self, key: str) -> str:
        return f"{self._documents}/{objects.object_name(self._cluster, key)}"

    async def _request(self, method: str, path: str, query: Mapping[str, str] | None = None, **how: Any) -> Answer:
        if self._closed:
            raise StoreUnavailable("the metadata store is closed")
        return await self._api.request(method, path, query, **how)


async def _all_of(work: Sequence[Coroutine[object, object, None]]) -> None:
    """Await all coroutines concurrently, and raise the first failure after all have ended."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


def _is_absent(answer: Answer) -> bool:
    """True if the answer has status 404 because the object, not its resource definition, does not exist."""
    if answer.status != HTTPStatus.NOT_FOUND:
        return False
    status = parse_status(answer.body)
    return status.reason == "NotFound" and status.details is not None and status.details.name != ""


def _expect(answer: Answer, *statuses: HTTPStatus) -> None:
    if answer.status not in statuses:
        raise StoreUnavailable(
            f"the API server answers with status {answer.status}: {parse_status(answer.body).message}"
        )


def _version(answer: Answer) -> int:
    _expect(answer, HTTPStatus.OK, HTTPStatus.CREATED)
    return objects.revision_of(answer.body)


def _parse(answer: Answer, kind: type[T]) -> T:
    _expect(answer, HTTPStatus.OK)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.MsgspecError as error:
        raise StoreUnavailable(f"the API server returned an invalid {kind.__name__}: {error}") from error


log = logging.getLogger(__name__)

SECRET_WATCH_S: Final = 40
"""The seconds after which a watch ends and its Secret is read again, so that a deletion is seen within a minute."""
LATE_S: Final = 5.0
"""The seconds by which a silent server may exceed WATCH_S before it counts as unavailable."""


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
        received: asyncio.Queue[Secrets | StoreUnavailable] = asyncio.Queue()
        tasks = [asyncio.ensure_future(self._follow_one(shard, received)) for shard in range(len(self._names))]
        try:
            while True:
                changes = await received.get()
                if self._closed:
                    return
                if isinstance(changes, StoreUnavailable):
                    raise changes
                if changes:
                    yield changes
        finally:
            for task in tasks:
                task.cancel()

    async def _follow_one(self, shard: int, received: asyncio.Queue[Secrets | StoreUnavailable]) -> None:
        try:
            while True:
                found = await self._get(self._names[shard])
                received.put_nowait(self._see(shard, found))
                with contextlib.suppress(HistoryCompacted):
                    async for seen in self._watch(self._names[shard], found):
                        received.put_nowait(self._see(shard, seen))
        except StoreUnavailable as error:
            received.put_nowait(error)

    async def _watch(self, name: str, found: SecretObject | None) -> AsyncIterator[SecretObject | None]:
        """Yield a Secret after each change, or None after its deletion, until the server ends the watch."""
        query = {"fieldSelector": f"metadata.name={name}", "watch": "1", "timeoutSeconds": str(SECRET_WATCH_S)}
        if found is not None:
            query["resourceVersion"] = found.metadata.resource_version
        async with contextlib.aclosing(self._api.stream(self._collection, query, SECRET_WATCH_S + LATE_S)) as stream:
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
        _expect_ok(name, answer)
        return objects.parse_secret(answer.body)

    async def _patch(self, name: str, secrets: Secrets, expected_version: str = "") -> bool:
        """Patch the Secret; return False if the Secret does not exist, or has another version."""
        body = objects.change(secrets, expected_version)
        path = f"{self._collection}/{name}"
        answer = await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        if answer.status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
            return False
        _expect_ok(name, answer)
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


def _expect_ok(name: str, answer: Answer) -> None:
    """Raise StoreUnavailable if the API server refuses the request, for example because the Secret exceeds 1 MiB."""
    if answer.status != HTTPStatus.OK:
        raise StoreUnavailable(
            f"the API server refused a request for Secret {name}: {answer.status} {parse_status(answer.body).message}"
        )

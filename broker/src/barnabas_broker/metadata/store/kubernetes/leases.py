"""The leases as objects of coordination.k8s.io, and their expiry as this process sees it.

The clocks of machines differ, so each process counts the duration of a lease from the time at which the process first
saw the last renewal, as in client-go's leader election.

The fencing token of a lease is a resourceVersion from just before the lease changed hands. Each new holder therefore
has a higher token, even if somebody deletes the Lease object.

A lease also names the pod of its holder, in which only one broker runs at a time. Another broker in the same pod
therefore takes the lease at once, so that a restarted container need not wait until the lease expires.

The requests of the metadata store to the API server. StoreUnavailable means that the API server did not answer in
time, was overloaded, denied permission, or failed. If there was no answer, a write may have happened nevertheless.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.metadata.store.kubernetes.objects import CLUSTER_LABEL, ListMetadata, Metadata, parse_event
from barnabas_broker.metadata.store.metadata_store import HistoryCompacted, Lease, StoreUnavailable
from barnabas_core.clock import Clock, monotonic_ms
from barnabas_kube.access import Access
from barnabas_kube.client import SILENCE_S, Answer, ApiClient, NoAnswer, StreamRefused, parse_status

API_VERSION: Final = "coordination.k8s.io/v1"
TOKEN: Final = "barnabas.dev/token"
DURATION_MS: Final = "barnabas.dev/duration-ms"
"""The annotation with the duration in milliseconds, because the spec of a Lease has only whole seconds."""
POD_UID: Final = "barnabas.dev/pod-uid"


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of a Lease. A Lease without a holder has been released."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class LeaseObject(msgspec.Struct, frozen=True, rename="camel"):
    """A Lease (`coordination.k8s.io`) of the API server."""

    metadata: Metadata
    spec: LeaseSpec = LeaseSpec()
    api_version: str = API_VERSION
    kind: str = "Lease"


class LeaseList(msgspec.Struct):
    """The answer to a request that lists leases."""

    metadata: ListMetadata
    items: list[LeaseObject]


class _Renewal(NamedTuple):
    """The fields that change with each renewal of a lease, and the time at which this process first saw them."""

    token: str | None
    renew_time: str | None
    seen_at_ms: int
    """The time of this process's monotonic clock when the process first saw the fields."""


class Observations:
    """The leases of a cluster as this process has seen them, in lists and in events of a watch."""

    def __init__(self, cluster: str, clock: Clock) -> None:
        self._prefix = f"{cluster}."
        self._clock = clock
        self._objects: dict[str, LeaseObject] = {}
        self._renewals: dict[str, _Renewal] = {}
        self.revision = 0
        """The revision of the latest list or event that was applied.

        Lists and events may arrive out of order, so older events are ignored.
        """

    def see_all(self, listed: LeaseList, known: int) -> None:
        """Apply a list of all Leases; a Lease that is not in the list has been deleted.

        `known` is the value of `revision` when the list was requested. A list with a lower revision means that an older
        copy of etcd was restored, so the list replaces all earlier observations. Otherwise, the list is ignored if a
        newer event has arrived since the list was requested.
        """
        revision = int(listed.metadata.resource_version)
        if known <= revision < self.revision:
            return
        self.revision = revision
        now_ms, before = monotonic_ms(self._clock), self._renewals
        self._objects = {self._name(each): each for each in listed.items}
        self._renewals = {name: _renewal(before.get(name), each, now_ms) for name, each in self._objects.items()}

    def see_one(self, changed: LeaseObject, *, is_gone: bool) -> None:
        """Apply a watch event, unless a list or an event with the same or a later revision has been applied already."""
        name, revision = self._name(changed), int(changed.metadata.resource_version)
        if revision <= self.revision:
            return
        self.revision = revision
        if is_gone:
            self._objects.pop(name, None)
            self._renewals.pop(name, None)
        else:
            self._objects[name] = changed
            self._renewals[name] = _renewal(self._renewals.get(name), changed, monotonic_ms(self._clock))

    def leases(self) -> dict[str, Lease]:
        """Return the leases that have a holder, by name, even if they have expired."""
        return {
            name: Lease(
                name, holder, token_of(each), _duration_ms(each), self._renewals[name].seen_at_ms + _duration_ms(each)
            )
            for name, each in self._objects.items()
            if (holder := each.spec.holder_identity)
        }

    def object(self, name: str) -> LeaseObject | None:
        """Return the Lease as it was last seen, or None."""
        return self._objects.get(name)

    def _name(self, found: LeaseObject) -> str:
        return found.metadata.name.removeprefix(self._prefix)


def _renewal(known: _Renewal | None, found: LeaseObject, now_ms: int) -> _Renewal:
    token, renew_time = found.metadata.annotations.get(TOKEN), found.spec.renew_time
    if known is not None and (known.token, known.renew_time) == (token, renew_time):
        return known
    return _Renewal(token, renew_time, now_ms)


def token_of(found: LeaseObject) -> int:
    """Return the fencing token of a lease, or 0, which no holder has, if the annotation is damaged."""
    text = found.metadata.annotations.get(TOKEN, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def is_left_over(found: LeaseObject, pod_uid: str) -> bool:
    """True if an earlier process in this pod held the lease; False if `pod_uid` is "", outside of pods."""
    return pod_uid != "" and found.metadata.annotations.get(POD_UID) == pod_uid


def _duration_ms(found: LeaseObject) -> int:
    text = found.metadata.annotations.get(DURATION_MS, "")
    return int(text) if text.isascii() and text.isdigit() else (found.spec.lease_duration_seconds or 0) * 1000


def taken(cluster: str, lease: Lease, now_ms: int, before: LeaseObject | None, pod_uid: str) -> bytes:
    """Return the request body with which `lease.holder` takes the lease: a new object, or a merge patch of `before`."""
    now = _micro_time(now_ms)
    metadata = Metadata(
        name=f"{cluster}.{lease.name}",
        resource_version="" if before is None else before.metadata.resource_version,
        labels={CLUSTER_LABEL: cluster},
        annotations={TOKEN: str(lease.token), DURATION_MS: str(lease.duration_ms), POD_UID: pod_uid},
    )
    spec = LeaseSpec(
        holder_identity=lease.holder,
        lease_duration_seconds=-(-lease.duration_ms // 1000),
        acquire_time=now,
        renew_time=now,
        lease_transitions=0 if before is None else before.spec.lease_transitions + 1,
    )
    return msgspec.json.encode(LeaseObject(metadata, spec))


def renewed(lease: Lease, now_ms: int) -> bytes:
    """Return a JSON patch that renews the lease, and that fails if the lease has changed hands."""
    renewal = {"op": "replace", "path": "/spec/renewTime", "value": _micro_time(now_ms)}
    return msgspec.json.encode([*_still_held(lease), renewal])


def released(lease: Lease) -> bytes:
    """Return a JSON patch that releases the lease, and that fails if the lease has changed hands."""
    return msgspec.json.encode([*_still_held(lease), {"op": "remove", "path": "/spec/holderIdentity"}])


def _still_held(lease: Lease) -> list[dict[str, str]]:
    return [
        {"op": "test", "path": "/spec/holderIdentity", "value": lease.holder},
        {"op": "test", "path": f"/metadata/annotations/{TOKEN.replace('/', '~1')}", "value": str(lease.token)},
    ]


def _micro_time(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


REQUEST_S: Final = 3.0
"""The timeout of a request in seconds, so short that a lease renewal can be repeated before the lease expires."""
BULK_S: Final = 20.0
"""The timeout in seconds of listings, whose answers may have tens of MB."""
RETRY_AFTER_S: Final = 1.0
ANSWER_S: Final = 0.5
"""A failed request is repeated only if at least this many seconds of its timeout are left."""
AGENT: Final = "barnabas-broker"


class ApiRequests:
    """The requests of one store to the API server."""

    def __init__(self, access: Access) -> None:
        self._client = ApiClient(access, AGENT)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_S,
    ) -> Answer:
        """Return the answer to a request; repeat the request if the server is overloaded. Raises StoreUnavailable."""
        time_s = asyncio.get_running_loop().time
        end_s = time_s() + timeout_s
        try:
            while True:
                left_s = end_s - time_s()
                answer = await self._client.request(method, path, query, body, content_type, timeout_s=left_s)
                if answer.status != HTTPStatus.TOO_MANY_REQUESTS or end_s - time_s() < RETRY_AFTER_S + ANSWER_S:
                    break
                await asyncio.sleep(RETRY_AFTER_S)
        except NoAnswer as error:
            raise StoreUnavailable(str(error)) from error
        _check(f"{method} {path}", answer)
        return answer

    async def stream(
        self, path: str, query: Mapping[str, str], silence_s: float = SILENCE_S
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of a streamed body as they arrive, until the server ends the body.

        Raises HistoryCompacted if the API server no longer keeps the watched revision, and StoreUnavailable for other
        errors.
        """
        try:
            async with aclosing(self._client.stream(path, query, silence_s)) as stream:
                async for lines in stream:
                    yield lines
        except StreamRefused as refusal:
            kind = HistoryCompacted if refusal.status == HTTPStatus.GONE else StoreUnavailable
            raise kind(str(refusal)) from refusal
        except NoAnswer as error:
            raise StoreUnavailable(str(error)) from error

    async def close(self) -> None:
        """End all requests that are under way."""
        await self._client.close()


def _check(what: str, answer: Answer) -> None:
    """Raise StoreUnavailable if the server is overloaded, denied permission, or failed."""
    refused = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
    if answer.status in refused or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise StoreUnavailable(f"{what}: {answer.status} {parse_status(answer.body).message}")


WATCH_S: Final = 300
RETRY_S: Final = 1.0
CURRENT_MS: Final = 5_000
"""The time in ms without any event after which the watch counts as broken.

A working watch reports at least the renewals of this broker's own lease.
"""

log = logging.getLogger(__name__)


_LEASES: Final = msgspec.json.Decoder(LeaseObject)


class LeaseWatch:
    """The watch of a cluster's leases, which the first call of `is_current` starts.

    The watch calls `see`, which lists all leases and puts them into `observations`, before the watch follows changes.
    `see` raises StoreUnavailable.
    """

    def __init__(
        self,
        api: ApiRequests,
        path: str,
        ours: Mapping[str, str],
        see: Callable[[], Awaitable[LeaseList]],
        observations: Observations,
        clock: Clock,
    ) -> None:
        self._api = api
        self._path = path
        self._ours = ours
        self._see = see
        self._observations = observations
        self._clock = clock
        self._received_at_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    def is_current(self) -> bool:
        """True if the watch has received an event within CURRENT_MS. The first call starts the watch."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return self._received_at_ms is not None and monotonic_ms(self._clock) < self._received_at_ms + CURRENT_MS

    async def close(self) -> None:
        """End the watch, and wait for its task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        why = ""
        while True:
            try:
                revision = (await self._see()).metadata.resource_version
                while True:
                    revision = await self._follow(revision)
            except (StoreUnavailable, HistoryCompacted) as error:
                if str(error) != why:
                    log.warning("the leases cannot be watched, so the broker lists them instead: %s", error)
                why = str(error)
            self._received_at_ms = None
            await asyncio.sleep(RETRY_S)

    async def _follow(self, revision: str) -> str:
        """Follow the leases until the server ends the watch; return the revision to continue from."""
        query = {
            **self._ours,
            "watch": "1",
            "allowWatchBookmarks": "1",
            "resourceVersion": revision,
            "timeoutSeconds": str(WATCH_S),
        }
        async for lines in self._api.stream(self._path, query):
            revision = self._receive(lines) or revision
        return revision

    def _receive(self, lines: Sequence[bytes]) -> str:
        revision = ""
        for line in filter(None, lines):
            kind, found = parse_event(line, lambda kind, found: (kind, _LEASES.decode(found)))
            revision = found.metadata.resource_version
            if kind != "BOOKMARK":
                self._observations.see_one(found, is_gone=kind == "DELETED")
            self._received_at_ms = monotonic_ms(self._clock)
        return revision

"""The leases as objects of coordination.k8s.io, and their expiry as this process sees it.

The clocks of machines differ, so each process counts the duration of a lease from the time at which the process first
saw the last renewal, as in client-go's leader election.

The fencing token of a lease is a resourceVersion from just before the lease changed hands. Each new holder therefore
has a higher token, even if somebody deletes the Lease object.

A lease also names the pod of its holder, in which only one broker runs at a time. Another broker in the same pod
therefore takes the lease at once, so that a restarted container need not wait until the lease expires.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.metadata.store.kubernetes.objects import CLUSTER_LABEL, ListMetadata, Metadata
from barnabas_broker.metadata.store.metadata_store import Lease
from barnabas_core.clock import Clock, monotonic_ms

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

"""Leases as objects of coordination.k8s.io, and how long each lasts as this process sees it. No IO.

Machines have different clocks, so a lease that was renewed lasts from when this process first saw that renewal, never
from the time that its holder wrote down: as in client-go's leader election.

A token is a resource version that the API server had reached before the lease changed hands. So it rises with every
holder, even if somebody deletes the object in between.

A lease also names its holder's pod. A pod has one broker at a time, so whoever runs in the same pod as the holder and
is another one knows for certain that the holder is gone: a container that was killed starts again at once.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.metadata.kubernetes.objects import CLUSTER_LABEL, ListMetadata, Metadata
from barnabas_broker.metadata.store import Lease
from barnabas_core.clock import Clock, monotonic_ms

API_VERSION: Final = "coordination.k8s.io/v1"
TOKEN: Final = "barnabas.dev/token"
DURATION_MS: Final = "barnabas.dev/duration-ms"
"""The spec of a Lease has whole seconds only."""
POD_UID: Final = "barnabas.dev/pod-uid"


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A Lease without a holder has been released."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class LeaseObject(msgspec.Struct, frozen=True, rename="camel"):
    """A Lease of Kubernetes."""

    metadata: Metadata
    spec: LeaseSpec = LeaseSpec()
    api_version: str = API_VERSION
    kind: str = "Lease"


class LeaseList(msgspec.Struct):
    """The answer to a list request."""

    metadata: ListMetadata
    items: list[LeaseObject]


class _Renewal(NamedTuple):
    """What differs when a lease was renewed, and when this process saw it first."""

    token: str | None
    renew_time: str | None
    seen_at_ms: int
    """By a clock that nobody sets."""


class Observations:
    """What this process has seen of a cluster's leases. `clock` is its own."""

    def __init__(self, cluster: str, clock: Clock) -> None:
        self._prefix = f"{cluster}."
        self._clock = clock
        self._renewals: dict[str, _Renewal] = {}

    def see(self, objects: Iterable[LeaseObject]) -> dict[str, Lease]:
        """The leases that somebody holds, or held when they ended, by name."""
        now_ms = monotonic_ms(self._clock)
        leases: dict[str, Lease] = {}
        renewals: dict[str, _Renewal] = {}
        for each in objects:
            name = each.metadata.name.removeprefix(self._prefix)
            renewals[name] = self._renewal(name, each, now_ms)
            holder, duration_ms = each.spec.holder_identity, _duration_ms(each)
            if holder:
                expires_at_ms = renewals[name].seen_at_ms + duration_ms
                leases[name] = Lease(name, holder, token_of(each), duration_ms, expires_at_ms)
        self._renewals = renewals
        return leases

    def _renewal(self, name: str, found: LeaseObject, now_ms: int) -> _Renewal:
        known = self._renewals.get(name)
        token, renew_time = found.metadata.annotations.get(TOKEN), found.spec.renew_time
        if known is not None and (known.token, known.renew_time) == (token, renew_time):
            return known
        return _Renewal(token, renew_time, now_ms)


def token_of(found: LeaseObject) -> int:
    """0 where somebody has tampered with it: then it is nobody's."""
    text = found.metadata.annotations.get(TOKEN, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def is_left_over(found: LeaseObject, pod_uid: str) -> bool:
    """Whether an earlier process in this pod held it. `pod_uid` is "" where there is no pod: then nobody knows."""
    return pod_uid != "" and found.metadata.annotations.get(POD_UID) == pod_uid


def _duration_ms(found: LeaseObject) -> int:
    text = found.metadata.annotations.get(DURATION_MS, "")
    return int(text) if text.isascii() and text.isdigit() else (found.spec.lease_duration_seconds or 0) * 1000


def taken(cluster: str, lease: Lease, now_ms: int, before: LeaseObject | None, pod_uid: str) -> bytes:
    """The body that gives a lease to its holder: a new object, or a merge patch of the one `before`, as it was then."""
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
    """A JSON patch that fails where the lease has changed hands."""
    renewal = {"op": "replace", "path": "/spec/renewTime", "value": _micro_time(now_ms)}
    return msgspec.json.encode([*_still_held(lease), renewal])


def released(lease: Lease) -> bytes:
    """A JSON patch that fails where the lease has changed hands. The object stays."""
    return msgspec.json.encode([*_still_held(lease), {"op": "remove", "path": "/spec/holderIdentity"}])


def _still_held(lease: Lease) -> list[dict[str, str]]:
    return [
        {"op": "test", "path": "/spec/holderIdentity", "value": lease.holder},
        {"op": "test", "path": f"/metadata/annotations/{TOKEN.replace('/', '~1')}", "value": str(lease.token)},
    ]


def _micro_time(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
